"""`ddp-audit top DIR`: follows a traced run in the terminal until it ends."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Subparsers, Usage

if TYPE_CHECKING:
    from ddp_audit.trace.status import Status

_BUSY = 3.0  # the pause is at least so many times what reading took


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "top",
        help="follow a traced run in the terminal",
        description="Shows the step rate of a traced run, how long each rank waits for others, the collectives under way and the "
        "newest verdict, until the run ends. Where the output is not a terminal, prints one line each time.",
        epilog="exit codes: 0 the run has ended, or was left with Ctrl-C; 2 no trace, or a damaged one",
    )
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="ddp-trace", help="the folder of the trace (default: ddp-trace)"
    )
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (default: 1)")
    parser.add_argument("--once", action="store_true", help="print one frame and end")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0.05 to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Shows frames until the run ends. Raises Usage."""
    from ddp_audit.report import top_text
    from ddp_audit.report.console import is_coloured, width_for

    if not Path(args.folder).is_dir():
        raise Usage(f"{args.folder}: no such folder")
    try:
        if args.once:
            status = _read(args.folder)
            if status is None:
                raise Usage(f"{args.folder}: nothing is recorded yet")
            print(*top_text.plain(status, width_for(sys.stdout)), sep="\n")
        elif sys.stdout.isatty() and is_coloured(sys.stdout):
            _draw(args.folder, args.interval)
        else:
            _print(args.folder, args.interval)
    except KeyboardInterrupt:
        pass
    return 0


def _read(folder: str) -> Status | None:
    """The status; None while nothing is recorded. Raises Usage for a trace that cannot be read, or of a run that left none."""
    from ddp_audit.cli.recorded import no_trace_text
    from ddp_audit.trace.status import read_status
    from ddp_audit.trace.store import NoTrace, TraceError, read_meta

    try:
        return read_status(folder)
    except NoTrace as error:
        if "end" in (read_meta(Path(folder)) or {}):
            raise Usage(no_trace_text(folder, error)) from None
        return None
    except TraceError as error:
        raise Usage(str(error)) from None


def _print(folder: str, interval: float) -> None:
    from ddp_audit.report import top_text

    while True:
        began = time.monotonic()
        status = _read(folder)
        print(time.strftime("%H:%M:%S"), "nothing is recorded yet" if status is None else top_text.line(status), flush=True)
        if status is not None and status.ended:
            return
        time.sleep(max(interval, _BUSY * (time.monotonic() - began)))


def _draw(folder: str, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from ddp_audit.report import top_text
    from ddp_audit.report.console import console_for

    with Live(Text("nothing is recorded yet"), console=console_for(sys.stdout), auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            status = _read(folder)
            if status is not None:
                live.update(top_text.drawn(status), refresh=True)
                if status.ended:
                    return
            time.sleep(max(interval, _BUSY * (time.monotonic() - began)))
