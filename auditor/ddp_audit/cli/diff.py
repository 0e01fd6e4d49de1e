"""`ddp-audit diff DIR`: compares the traces of a finished or dead run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ddp_audit.cli import exports
from ddp_audit.cli.parser import Subparsers, Usage, output_file
from ddp_audit.report.columns import wrap
from ddp_audit.report.summary import lines_of


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "diff",
        help="compare the traces of a finished or dead run",
        description="Compares what the ranks of a run did, and prints where they diverge. The run may still be alive.",
        epilog="exit codes: 0 the ranks agree, 1 a divergence, a stall or a silent fault, 2 no whole trace, or a damaged one",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of a trace, or of dumps of PyTorch's Flight Recorder")
    parser.add_argument("--format", choices=("text", "json", "html"), default="text", help="html: one page that needs nothing else")
    parser.add_argument(
        "--output", type=output_file, metavar="FILE", help="write the report there instead of to standard output (-)"
    )
    exports.add_argument(parser)
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="a worker's log or standard error, or a folder of logs: known error texts in it are explained",
    )


def run(args: argparse.Namespace) -> int:
    """Compares and reports. Raises Usage without a trace."""
    from ddp_audit.gc_pause import gc_paused

    with gc_paused():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from ddp_audit.cli.prediction_check import kept
    from ddp_audit.cli.progress import Progress
    from ddp_audit.cli.recorded import read_compared, read_notes
    from ddp_audit.compare.logs import with_diff
    from ddp_audit.report import log_lines, trace_json, trace_text

    exports.check(args.export)
    progress = Progress("reading the trace")
    try:
        recorded, comparison = read_compared(args.folder, progress)
    finally:
        progress.end()
    root = Path(str(recorded.meta.get("cwd") or "."))
    notes = read_notes(args.folder, args.log)
    together = with_diff(notes, comparison.parted_ever, comparison.ranks_of_parted, int(recorded.meta.get("first_index") or 0))
    with _output(args.output) as stream:
        if args.format == "json":
            out = trace_json.as_object(comparison)
            prediction = kept(args.folder)
            if prediction is not None:
                out["prediction"] = prediction
            if notes:
                out["log"] = log_lines.as_objects(notes)
            stream.write(json.dumps(out, indent=2, ensure_ascii=False) + "\n")
        elif args.format == "html":
            log = list(log_lines.lines(notes, together)) if notes else []
            stream.write(exports.page(recorded, comparison, root, log=log))
        else:
            trace_text.show(comparison, stream, root=root)
            if recorded.meta.get("cwd") and root.resolve() != Path.cwd():
                where = wrap(f"Paths are relative to {lines_of(str(root))}", trace_text.WIDTH, break_long_words=True)
                print("", *where, sep="\n", file=stream)
            if notes:
                print("", *map(lines_of, log_lines.lines(notes, together)), sep="\n", file=stream)
    for line in exports.write(args.export, recorded, comparison):
        print(line, file=sys.stderr)
    return comparison.exit_code


@contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    try:
        with Path(path).open("w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
    except OSError as error:
        raise Usage(f"{path}: cannot be written: {error.strerror or error}") from None
