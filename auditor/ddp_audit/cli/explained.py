"""`check --explain-run`: what the auditor believes that every rank does on the first steps."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Usage
from ddp_audit.outcome import AuditResult, Options
from ddp_audit.source.paths import display_path
from ddp_audit.source.problems import SourceError

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


def one_budget(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return the block in which an audit and its explained run share one budget."""
    if not args.explain_run:
        return contextlib.nullcontext()
    from ddp_audit import budget

    return budget.together()


@dataclass(frozen=True, slots=True)
class Explained:
    """The predicted run of a script, with its path and what it does not show of the findings."""

    path: str
    predicted: Predicted
    beyond: list[str]


def explained(
    paths: Sequence[str], options: Options, overlay: Mapping[str, bytes], result: AuditResult, rules: Mapping[str, Rule]
) -> Explained | None:
    """The predicted run of the one script; None where it cannot be read or was given up, as the errors of `result` then say.

    It is the run that the findings of the audit rest on, and in addition what comes of conditions on local data.
    """
    from ddp_audit import budget
    from ddp_audit.explore.proof import CHECKED, predicted
    from ddp_audit.predicted import job_of
    from ddp_audit.report.run_findings import beyond, of_runs
    from ddp_audit.source.deep_stack import run_with_deep_stack

    if any(error.message in (budget.TOO_MUCH_MEMORY, budget.too_slow()) for error in result.errors):
        return None  # the audit spent the run's share too
    path = display_path(paths[0])
    try:
        with budget.bounded_memory(), budget.bounded_time():
            job = job_of(paths, options, bounds=CHECKED, overlay=overlay)
            if job is None:
                return None
            found = predicted(job, both_ways=True)
            return Explained(path, found, run_with_deep_stack(lambda: list(beyond(found, of_runs(result.findings, rules), result))))
    except RecursionError:
        why = "it is nested too deeply"
    except MemoryError:
        why = f"with the audit it {budget.NEEDS_TOO_MUCH}"
    except budget.GaveUp:
        why = f"with the audit it {budget.takes_too_long()}"
    result.errors.append(SourceError(path, None, f"its predicted run was given up: {why} (--explain-run)", is_audited=True))
    return None
