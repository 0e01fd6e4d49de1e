"""`--baseline` and `--write-baseline`: which findings are known already."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddp_audit.baseline import BaselineError, Comparison, compare, read_baseline, rebased, write_baseline
from ddp_audit.cli.parser import Usage
from ddp_audit.outcome import AuditResult
from ddp_audit.report.summary import count
from ddp_audit.source.config import Config


class Known:
    """The baseline of one run of `check`. Raises Usage where it cannot be read."""

    def __init__(self, args: argparse.Namespace, config: Config) -> None:
        self._written: str | None = args.write_baseline
        self._folders = [path for path in args.paths if Path(path).is_dir()]
        self._name = _baseline_name(args, config)
        self._entries = None
        self._last: Comparison | None = None
        if self._name is not None:
            try:
                self._entries = read_baseline(self._name)
            except BaselineError as error:
                raise Usage(f"--baseline: {error}") from None

    @property
    def is_used(self) -> bool:
        """Whether a baseline is read or written."""
        return self._name is not None or self._written is not None

    def hold(self, result: AuditResult) -> None:
        """Takes the known findings out of a result and says in a note how many those were."""
        name = self._name or ""
        self._last = compare(
            result.findings,
            self._entries or [],
            result.files_read - result.left_out,
            result.codes,
            baseline=name,
            folders=self._folders,
        )
        if self._entries is not None:
            result.findings = self._last.new
            result.known = len(self._last.known)
            result.notes.append(f"{self._last} (baseline {self._name})")

    def write(self, result: AuditResult) -> None:
        """Writes the baseline that was asked for, if one was: what it holds is then known. Raises Usage."""
        if self._written is None or self._last is None:
            return
        try:
            unseen = rebased(self._last.unseen, self._name or self._written, self._written)
            number = write_baseline(self._written, [*self._last.new, *self._last.known], unseen)
        except BaselineError as error:
            raise Usage(f"--write-baseline: {error}") from None
        result.known += len(result.findings)
        result.findings = []
        print(f"ddp-audit: {count(number, 'finding')} written to {self._written}", file=sys.stderr)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("known findings")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--baseline", metavar="FILE", help="findings that FILE knows are counted and do not fail")
    which.add_argument("--no-baseline", action="store_true", help="report what the baseline of the settings knows too")
    group.add_argument("--write-baseline", metavar="FILE", help="write the findings to FILE; they are known from then on")


def _baseline_name(args: argparse.Namespace, config: Config) -> str | None:
    if args.baseline is not None:
        name: str = args.baseline
        return name
    path = config.baseline_file
    if path is None or args.no_baseline:
        return None
    # The settings may name the file that this run is the first to write.
    return None if args.write_baseline is not None and not path.exists() else path.as_posix()
