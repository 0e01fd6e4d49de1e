"""`check --explain-run`: what the auditor believes that every rank does on the first steps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Usage
from ddp_audit.outcome import Options
from ddp_audit.source.paths import display_path

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Run

_FIRST_STEPS = 4  # buckets are rebuilt in the second; from the third on nothing new comes
_MOST_STATEMENTS = 100_000  # of each rank


def add_options(group: argparse._ArgumentGroup) -> None:
    """Adds --explain-run."""
    group.add_argument(
        "--explain-run",
        action="store_true",
        help="show what each rank is predicted to do on the first steps (one script; text, terminal or json)",
    )


def check_options(args: argparse.Namespace) -> None:
    """Raises Usage where --explain-run does not go with the other options."""
    if args.explain_run and args.diff:
        raise Usage("--explain-run does not go with --diff")


def check_format(args: argparse.Namespace, form: str) -> None:
    """Raises Usage for a format that has no place for a run."""
    if args.explain_run and form not in ("terminal", "text", "json"):
        raise Usage(f"--explain-run goes with the formats terminal, text and json, not with {form}")


def predicted(paths: Sequence[str], options: Options, overlay: Mapping[str, bytes]) -> tuple[str, Run] | None:
    """The predicted run of the one script, with its path; None where it cannot be read (the report says so)."""
    from ddp_audit.explore.exact import Bounds, predict
    from ddp_audit.predicted import job_of

    job = job_of(paths, options, bounds=Bounds(steps=_FIRST_STEPS, ticks=_MOST_STATEMENTS), overlay=overlay)
    return None if job is None else (display_path(paths[0]), predict(job, both_ways=True))
