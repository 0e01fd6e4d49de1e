"""Reading a finished run for commands: a trace folder, in one clear line where there is none."""

from __future__ import annotations

from ddp_audit.cli.parser import Usage
from ddp_audit.compare.run import RecordedRun
from ddp_audit.trace.store import TraceError, load_run


def read_run(folder: str) -> RecordedRun:
    """The run that a folder holds. Raises Usage where there is no trace or it is damaged."""
    try:
        return load_run(folder)
    except TraceError as error:
        raise Usage(str(error)) from None
