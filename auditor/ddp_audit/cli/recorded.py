"""Reading a finished run for commands: a trace folder, in one clear line without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ddp_audit.cli.parser import Usage
from ddp_audit.compare.explain import code_text
from ddp_audit.compare.logs import LogNote, read_logs
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.verdict import Comparison, compare_run
from ddp_audit.trace.store import NoTrace, TraceError, load_run, read_meta
from ddp_audit.trace.worker.layout import ERRORS_FILE

Progress = Callable[[int, int], None]


def read_run(folder: str) -> RecordedRun:
    """The run that a folder holds. Raises Usage without a trace or for a damaged one."""
    try:
        return load_run(folder)
    except NoTrace as error:
        raise Usage(no_trace_text(folder, error)) from None
    except TraceError as error:
        raise Usage(str(error)) from None


def read_compared(folder: str, progress: Progress | None = None) -> tuple[RecordedRun, Comparison]:
    """The run that a folder holds, a trace or dumps of PyTorch's Flight Recorder, and its comparison. Raises Usage.

    `progress` gets the ranks that were read and the ranks in all.
    """
    from ddp_audit.trace import flight_recorder

    try:
        if flight_recorder.is_dump_folder(folder):
            dumps = flight_recorder.load_dumps(folder)
            run = flight_recorder.run_of(dumps)
            return run, flight_recorder.compare_dumps(run, dumps)
        return compared_trace(folder, progress)
    except NoTrace as error:
        raise Usage(no_trace_text(folder, error)) from None
    except TraceError as error:
        raise Usage(str(error)) from None


def no_trace_text(folder: str | os.PathLike[str], error: NoTrace) -> str:
    """Why a folder holds no trace, in one line: by what its run.json says of the command, or else the reader's own words."""
    try:
        meta = read_meta(Path(folder))
    except TraceError:
        meta = None
    if not meta or "run" not in meta:
        return str(error)
    code = meta.get("exit_code")
    if not isinstance(code, int):
        return f"{folder}: nothing is recorded yet: the command runs, and no process has called init_process_group()"
    if code == 0:
        return f"{folder}: no trace recorded: the command exited with 0, and no process of it called init_process_group()"
    how = f"ended{code_text(code)}" if code < 0 else f"exited with {code}"
    return f"{folder}: no trace recorded: the command {how} before any process called init_process_group()"


def compared_trace(folder: str | os.PathLike[str], progress: Progress | None = None) -> tuple[RecordedRun, Comparison]:
    """The run whose trace a folder holds, and its comparison. Raises TraceError."""
    from ddp_audit.compare.bulk import aligned
    from ddp_audit.trace.attempts import earlier_attempts
    from ddp_audit.trace.columns import load_columns

    run, places = load_columns(folder, progress)
    root = Path(str(run.meta.get("cwd") or "."))
    comparison = compare_run(run, aligner=aligned(run, places), root=root)
    for attempt, earlier, places in earlier_attempts(Path(folder), run):
        compared = compare_run(earlier, aligner=aligned(earlier, places), root=root)
        compared.attempt, comparison.attempt = attempt, attempt + 1
        comparison.earlier.append(compared)
        run.earlier.append(earlier)
    return run, comparison


def read_notes(folder: str, logs: Sequence[str]) -> list[LogNote]:
    """The known error texts in logs and in what the traced command wrote to its standard error. Raises Usage."""
    try:
        return read_logs([*logs, *sorted(file for file in Path(folder).glob(ERRORS_FILE.format("*")) if file.is_file())])
    except OSError as error:
        raise Usage(f"{error.filename}: {error.strerror}") from None
