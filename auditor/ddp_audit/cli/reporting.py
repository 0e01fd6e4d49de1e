"""How `check` reports: the options of its report, which format holds, and each format written."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ddp_audit.cli.parser import output_file
from ddp_audit.outcome import AuditResult
from ddp_audit.source.config import FORMATS

if TYPE_CHECKING:
    from ddp_audit.cli.explained import Explained

OLD_NAMES = {"terminal": "full"}  # formats that go on working under the names that they had
WITH_RUN = ("full", "text", "json")  # formats that have a place for --explain-run


@dataclass(frozen=True, slots=True)
class Ways:
    """What options say of a report, whatever its format."""

    statistics: bool = False
    infos: bool = False  # are opened
    verbose: bool = False
    quiet: bool = False
    strict: bool = False


def add_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of the report."""
    group.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"full (default), or one of {', '.join(name for name in FORMATS if name != 'full')}",
    )
    group.add_argument("--output", type=output_file, metavar="FILE", help="write the report to FILE (-: standard output)")
    group.add_argument("--show", action="append", choices=("info",), default=[], help="open the infos, which a line counts")
    how = group.add_mutually_exclusive_group()
    how.add_argument("-v", "--verbose", action="store_true", help="open the infos, and explain each finding")
    how.add_argument("-q", "--quiet", action="store_true", help="a line for each error and warning, and nothing else")
    group.add_argument("--statistics", action="store_true", help="count the findings of each rule")


def chosen_form(args: argparse.Namespace, configured: str | None) -> str:
    """Return the format of the report."""
    form = args.format or ("concise" if args.quiet else None) or configured or "full"
    return OLD_NAMES.get(form, form)


def ways_of(args: argparse.Namespace, strict: bool) -> Ways:
    """Return what the options say of the report."""
    return Ways(args.statistics, "info" in args.show or args.verbose, args.verbose, args.quiet, strict)


def write_report(result: AuditResult, form: str, stream: IO[str], ways: Ways, *, run: Explained | None = None) -> None:
    """Write the report in one of the formats; counts go to stderr where the format has no room for them.

    `run` is the predicted run of the script; it comes after the findings, and only in full, text and JSON.
    """
    if form == "full":
        from ddp_audit.report import full

        full.show(result, stream, with_statistics=ways.statistics, with_infos=ways.infos, verbose=ways.verbose)
    elif form == "text":
        from ddp_audit.report import text

        stream.write(text.render(result, with_statistics=ways.statistics))
    else:
        stream.write(_document(result, form, ways, run))
        if form in ("gitlab", "junit", "json-lines", "rdjson"):  # they have no place for notes
            print("".join(f"ddp-audit: {note}\n" for note in result.notes), end="", file=sys.stderr)
        if ways.statistics:
            from ddp_audit.report.summary import statistics

            print("\n".join(statistics(result)), file=sys.stderr)
    if run is not None and form in ("full", "text"):
        from ddp_audit.report import run_text
        from ddp_audit.report.summary import lines_of

        stream.write("\n" + lines_of(run_text.render(run.predicted, run.path, beyond=run.beyond)))


def _document(result: AuditResult, form: str, ways: Ways, run: Explained | None) -> str:
    from importlib import import_module

    report = import_module(f"ddp_audit.report.{form.replace('-', '_')}")
    if form == "json":
        return str(report.render(result, None if run is None else _run_object(run)))
    if form == "junit":
        return str(report.render(result, strict=ways.strict))
    if form == "concise":
        return str(report.render(result, with_infos=ways.infos, quiet=ways.quiet))
    if form in ("grouped", "markdown"):
        return str(report.render(result, with_infos=ways.infos))
    return str(report.render(result))


def _run_object(run: Explained) -> dict[str, object]:
    from ddp_audit.report import run_json

    return run_json.as_object(run.predicted, run.path, run.beyond)


def add_summary(result: AuditResult) -> None:
    """Add the findings to the summary of a job of GitHub Actions, whose page shows ten annotations of a kind."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from ddp_audit.report import github

    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(github.summary(result))
    except OSError as error:
        print(f"ddp-audit: GITHUB_STEP_SUMMARY: {path}: {error.strerror or error}", file=sys.stderr)
