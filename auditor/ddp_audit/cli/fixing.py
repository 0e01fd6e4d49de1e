"""`--fix`, `--diff` and `--unsafe-fixes`: findings fixed in the files, or shown as unified diffs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Usage
from ddp_audit.outcome import AuditResult
from ddp_audit.report.summary import count
from ddp_audit.source.paths import display_path
from ddp_audit.source.problems import SourceError

if TYPE_CHECKING:
    from ddp_audit.fix.rounds import FixResult


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("fixes")
    way = group.add_mutually_exclusive_group()
    way.add_argument("--fix", action="store_true", help="apply the safe fixes, then report what remains")
    way.add_argument("--diff", action="store_true", help="show what --fix would change and change nothing; 1 where there is any")
    group.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: the unsafe fixes as well")


def check_options(args: argparse.Namespace) -> None:
    """Raises Usage where the options do not go together."""
    if args.unsafe_fixes and not (args.fix or args.diff):
        raise Usage("--unsafe-fixes goes with --fix or --diff")
    if args.fix and "-" in args.paths:
        raise Usage("standard input cannot be fixed in place; --diff shows what would change")


def fix_findings(
    args: argparse.Namespace, audit: Callable[[Mapping[str, bytes]], AuditResult], overlay: Mapping[str, bytes]
) -> FixResult:
    """Fixes in memory, writes the files where --fix was given, and says on stderr what was done. Raises Usage."""
    from ddp_audit.fix.rounds import apply_fixes

    outcome = apply_fixes(audit, overlay, args.unsafe_fixes)
    if args.fix:
        try:
            outcome.write()
        except SourceError as error:
            raise Usage(f"--fix: {error}") from None
    for finding in outcome.result.findings:
        if finding.fingerprint in outcome.refused:
            print(
                f"ddp-audit: {finding.place}: {finding.code}: no automatic fix: {outcome.refused[finding.fingerprint]}",
                file=sys.stderr,
            )
    verb = "fixed" if args.fix else "would fix"
    more = f" ({outcome.held_back} more with --unsafe-fixes)" if outcome.held_back else ""
    files = f" in {count(len(outcome.changed), 'file')}" if outcome.changed else ""
    print(f"ddp-audit: {verb} {count(len(outcome.fixed), 'finding')}{files}{more}", file=sys.stderr)
    return outcome


def diff_of(outcome: FixResult) -> str:
    """The unified diffs, with the paths that reports show."""
    return outcome.diff(display_path)
