"""`check --explain-run`: what the auditor believes that every rank does on the first steps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Usage
from ddp_audit.outcome import AuditResult, Options, UsageError
from ddp_audit.source.paths import display_path

if TYPE_CHECKING:
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.rule import Rule


def add_options(group: argparse._ArgumentGroup) -> None:
    """Adds --explain-run."""
    group.add_argument(
        "--explain-run",
        action="store_true",
        help="show what each rank is predicted to do on the first steps (one script; full, text or json)",
    )


def check_options(args: argparse.Namespace) -> None:
    """Raises Usage where --explain-run does not go with the other options."""
    if args.explain_run and args.diff:
        raise Usage("--explain-run does not go with --diff")


def check_format(args: argparse.Namespace, form: str) -> None:
    """Raises Usage for a format that has no place for a run."""
    if args.explain_run and form not in ("full", "text", "json"):
        raise Usage(f"--explain-run goes with the formats full, text and json, not with {form}")


@dataclass(frozen=True, slots=True)
class Explained:
    """The predicted run of a script, with its path and what it does not show of the findings."""

    path: str
    predicted: Predicted
    beyond: list[str]


def explained(
    paths: Sequence[str], options: Options, overlay: Mapping[str, bytes], result: AuditResult, rules: Mapping[str, Rule]
) -> Explained | None:
    """The predicted run of the one script; None where it cannot be read (the report says so).

    It is the run that the findings of the audit rest on, and in addition what comes of conditions on local data.
    """
    from ddp_audit import budget
    from ddp_audit.explore.proof import CHECKED, predicted
    from ddp_audit.predicted import job_of
    from ddp_audit.report.run_findings import beyond, of_runs
    from ddp_audit.source.deep import with_room

    job = job_of(paths, options, bounds=CHECKED, overlay=overlay)
    if job is None:
        return None
    try:
        with budget.bounded_memory(), budget.bounded_time():
            found = predicted(job, both_ways=True)
            kept = with_room(lambda: list(beyond(found, of_runs(result.findings, rules), result)))
    except RecursionError:
        raise UsageError(f"{display_path(paths[0])}: is nested too deeply to be audited (--explain-run)") from None
    except MemoryError:
        raise UsageError(f"{display_path(paths[0])}: {budget.TOO_MUCH_MEMORY} (--explain-run)") from None
    except budget.GaveUp:
        raise UsageError(f"{display_path(paths[0])}: {budget.too_slow()} (--explain-run)") from None
    return Explained(display_path(paths[0]), found, kept)
