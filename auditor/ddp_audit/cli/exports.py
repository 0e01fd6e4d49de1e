"""`--export KIND FILE` and `--format html` of `diff` and `trace`."""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ddp_audit.cli.parser import Usage
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.verdict import Comparison
from ddp_audit.findings import Finding

KINDS = ("perfetto", "parquet")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--export",
        nargs=2,
        action="append",
        default=[],
        metavar=("KIND", "FILE"),
        help="also write all events: perfetto (JSON for ui.perfetto.dev, compressed as FILE.gz) or parquet (a table; needs "
        "ddp-audit[parquet])",
    )


def check(exports: Sequence[Sequence[str]]) -> None:
    """Raises Usage for a kind of export that there is not, or that needs what is not installed: before the work is done."""
    for kind, _ in exports:
        if kind not in KINDS:
            raise Usage(f"--export takes {' or '.join(KINDS)}, not '{kind}'")
        if kind == "parquet":
            import importlib.util

            if importlib.util.find_spec("pyarrow") is None:
                raise Usage("--export parquet needs pyarrow: pip install 'ddp-audit[parquet]'")


def write(exports: Sequence[Sequence[str]], run: RecordedRun, comparison: Comparison) -> list[str]:
    """Writes the exports; returns a line for each. Raises Usage where one cannot be written."""
    from ddp_audit.report import parquet, perfetto
    from ddp_audit.report.selection import select

    said = []
    for kind, path in exports:
        try:
            if kind == "perfetto":
                selection = select(run, comparison, perfetto.MOST)
                with _opened(path) as stream:
                    perfetto.write(selection, stream)
            else:
                selection = select(run, comparison, 1 << 62)
                parquet.write(selection, path)
        except parquet.NoArrow as error:
            raise Usage(f"--export parquet {error}") from None
        except OSError as error:
            raise Usage(f"{path}: cannot be written: {error.strerror or error}") from None
        said.append(f"ddp-audit: {kind} written to {path}. {selection.note()}".rstrip())
    return said


def _opened(path: str) -> IO[str]:
    """A text file to write, compressed where its name says so."""
    if path.endswith(".gz"):
        return gzip.open(path, "wt", encoding="utf-8")
    return Path(path).open("w", encoding="utf-8")


def page(
    run: RecordedRun,
    comparison: Comparison,
    root: Path | None,
    *,
    findings: Sequence[Finding] = (),
    log: Sequence[str] = (),
) -> str:
    """The HTML page of a comparison, with the findings that the run judged and the lines on its logs."""
    from ddp_audit.report.page import MOST, render
    from ddp_audit.report.selection import select

    return render(select(run, comparison, MOST), comparison, root, findings, log)
