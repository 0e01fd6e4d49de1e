"""What the auditor says of public repositories that nobody tuned it to, against what a reader says of the same lines.

    python benchmarks/wild/wild.py DIR [--fetch] [--write] [NAME ..]

DIR holds a checkout `owner__name` of each repository; --fetch makes those that are absent. Each is audited as a folder, with the
defaults. The findings are joined with the judgements and the missed hazards that are written down beside this file, and
compared with those of the last commit. --write keeps the findings for the next comparison. README.md describes the files.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

HERE = Path(__file__).parent
FINDINGS = "findings.tsv"
LOUD = ("error", "warning")
JUDGEMENTS = ("true", "arguable", "wrong")
SECONDS = 1800  # on the clock for one repository
NEAR = 3  # lines between a missed hazard and the finding that names it now

sys.path.insert(0, str(HERE.parents[1] / "tests" / "field"))


class Finding(NamedTuple):
    """A finding of level error or warning."""

    repository: str
    path: str
    line: int
    code: str
    level: str


@dataclass
class Judged:
    """A reader's judgement of a finding. Findings of one cause count once; `cause` is their common name."""

    judgement: str
    cause: str
    second: str  # the judgement of a second, independent reading, where there was one


@dataclass
class Audit:
    """What the audit of a repository gave, with its CPU seconds; `failure` where it gave no report."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""


@dataclass
class Counts:
    """Findings of one level by distinct cause."""

    true: int = 0
    arguable: int = 0
    wrong: int = 0
    unjudged: int = 0

    def add(self, judgement: str) -> None:
        """Count a cause under its judgement, or as unjudged."""
        name = judgement if judgement in JUDGEMENTS else "unjudged"
        setattr(self, name, getattr(self, name) + 1)

    def __str__(self) -> str:
        unjudged = f" + {self.unjudged}?" if self.unjudged else ""
        return f"{self.true} / {self.arguable} / {self.wrong}{unjudged}"


@dataclass
class Changes:
    """Findings against those of the last commit."""

    new: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)
    moved: list[tuple[Finding, Finding]] = field(default_factory=list)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a header line, none where the file is absent."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return _rows(lines)


def _rows(lines: Iterable[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def findings_of(rows: Iterable[dict[str, str]]) -> list[Finding]:
    """Return the findings of a table of findings."""
    return [Finding(r["repository"], r["path"], int(r["line"]), r["code"], r["level"]) for r in rows]


def audit(folder: Path, repository: str) -> Audit:
    """Audit a checkout in a process of its own, from its root."""
    command = [sys.executable, "-m", "ddp_audit", "check", "--format", "json", "--exit-zero", "--no-cache", "--preview", "."]
    with tempfile.TemporaryFile() as report:
        process = subprocess.Popen(command, cwd=folder, stdout=report, stderr=subprocess.DEVNULL)
        try:
            # wait4 gives the CPU seconds of this process and of those that it waited for, whatever else runs.
            _, status, usage = _wait(process)
        except subprocess.TimeoutExpired:
            return Audit(failure=f"no report in {SECONDS} seconds")
        report.seek(0)
        return read_report(report, repository, usage, os.waitstatus_to_exitcode(status))


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, int, float]:
    def too_long(*_: object) -> None:
        process.kill()
        raise subprocess.TimeoutExpired(process.args, SECONDS)

    previous = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        pid, status, usage = os.wait4(process.pid, 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    process.returncode = os.waitstatus_to_exitcode(status)
    return pid, status, usage.ru_utime + usage.ru_stime


def read_report(report: IO[bytes], repository: str, seconds: float, code: int) -> Audit:
    """Return what a JSON report says; exit code 2 says that files could not be read, which the report names."""
    try:
        said = json.load(report)["findings"]
    except (ValueError, KeyError):
        return Audit(seconds=seconds, failure=f"no report, exit code {code}")
    loud = [Finding(repository, f["path"], f["line"], f["code"], f["severity"]) for f in said if f["severity"] in LOUD]
    return Audit(sorted(set(loud)), seconds)


def read_judgements(folder: Path) -> dict[tuple[str, str, int, str], Judged]:
    """Return the judgements by repository, path, line and code."""
    return {
        (r["repository"], r["path"], int(r["line"]), r["code"]): Judged(r["judgement"], r["cause"], r["second"])
        for r in rows_of(folder / "judgements.tsv")
    }


def count(findings: Iterable[Finding], judgements: dict[tuple[str, str, int, str], Judged]) -> dict[str, Counts]:
    """Count findings by level and distinct cause; a cause that any finding gets wrong is counted by its worst finding."""
    worst: dict[tuple[str, str, str], str] = {}
    for finding in findings:
        judged = judgements.get(finding[:4])
        if judged is None:
            worst[finding.level, finding.repository, f"{finding.path}:{finding.line} {finding.code}"] = "unjudged"
            continue
        key = (finding.level, finding.repository, judged.cause)
        before = worst.get(key, "true")
        worst[key] = max(before, judged.judgement, key=JUDGEMENTS.index)
    counts = {level: Counts() for level in LOUD}
    for (level, _, _), judgement in worst.items():
        counts[level].add(judgement)
    return counts


def named_now(missed: dict[str, str], findings: Iterable[Finding]) -> bool:
    """Return whether a finding names a hazard that was missed; a hazard may allow several codes."""
    return any(
        finding[:2] == (missed["repository"], missed["path"])
        and finding.code in missed["code"].split()
        and abs(finding.line - int(missed["line"])) <= NEAR
        for finding in findings
    )


def compare(before: Iterable[Finding], after: Iterable[Finding]) -> Changes:
    """Compare two sets of findings. A finding that is gone and a new one of the same code in its file are one that moved."""
    changes = Changes()
    old, new = set(before), set(after)
    appeared = sorted(new - old)
    for finding in sorted(old - new):
        same = [f for f in appeared if (f.repository, f.path, f.code) == (finding.repository, finding.path, finding.code)]
        if same:
            nearest = min(same, key=lambda f: abs(f.line - finding.line))
            appeared.remove(nearest)
            changes.moved.append((finding, nearest))
        else:
            changes.gone.append(finding)
    changes.new = appeared
    return changes


def last_commit(folder: Path) -> list[Finding]:
    """Return the findings that the last commit holds, none before the first."""
    shown = subprocess.run(["git", "show", f"HEAD:./{FINDINGS}"], cwd=folder, capture_output=True, text=True, check=False)
    return findings_of(_rows(shown.stdout.splitlines())) if shown.returncode == 0 else []


def table(audits: dict[str, Audit], folder: Path) -> Iterator[str]:
    """Yield the lines of the table: a row for each repository, then all."""
    judgements, missed = read_judgements(folder), rows_of(folder / "missed.tsv")
    yield "| repository | CPU s | errors: true / arguable / wrong | warnings | missed hazards named now |"
    yield "|---|---|---|---|---|"
    rows = [(name, [name]) for name in audits] + [("all", list(audits))]
    for title, names in rows:
        findings = [finding for name in names for finding in audits[name].findings]
        counts = count(findings, judgements)
        hazards = [m for m in missed if m["repository"] in names]
        found = sum(named_now(m, findings) for m in hazards)
        failures = [audits[name].failure for name in names if audits[name].failure]
        seconds = sum(audits[name].seconds for name in names)
        note = f" {'; '.join(failures)}" if failures else ""
        yield f"| {title} | {seconds:.1f}{note} | {counts['error']} | {counts['warning']} | {found} of {len(hazards)} |"


def agreement(folder: Path) -> str:
    """Say how far the judgements that were made twice agree."""
    twice = [(r["judgement"], r["second"]) for r in rows_of(folder / "judgements.tsv") if r["second"]]
    return f"Judged twice: {len(twice)}, of which {sum(a == b for a, b in twice)} agree."


def show(changes: Changes) -> Iterator[str]:
    """Yield the changes, a line each."""
    for title, findings in (("New", changes.new), ("Gone", changes.gone)):
        for f in findings:
            yield f"{title}: {f.repository} {f.path}:{f.line} {f.code} {f.level}"
    for a, b in changes.moved:
        yield f"Moved: {a.repository} {a.path}:{a.line} {a.code} {a.level} -> line {b.line} {b.level}"
    if not (changes.new or changes.gone or changes.moved):
        yield "No finding changed since the last commit."


def write(findings: Iterable[Finding], path: Path) -> None:
    """Write a table of findings."""
    lines = ["\t".join(Finding._fields), *("\t".join(map(str, f)) for f in sorted(findings))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder of checkouts, owner__name each")
    parser.add_argument("names", nargs="*", help="only these repositories")
    parser.add_argument("--fetch", action="store_true", help="fetch the repositories that are not there, with git")
    parser.add_argument("--write", action="store_true", help=f"keep the findings in {FINDINGS}")
    args = parser.parse_args()
    audits: dict[str, Audit] = {}
    for row in rows_of(HERE / "repositories.tsv"):
        name = row["repository"]
        folder = args.corpus / name.replace("/", "__")
        if args.names and name not in args.names:
            continue
        if args.fetch and not folder.exists():
            from corpus import fetch

            fetch(name, row["commit"], folder)
        if not folder.is_dir():
            print(f"{name} is not in {args.corpus}", file=sys.stderr)
            continue
        audits[name] = audit(folder, name)
        print(f"{name}: {audits[name].seconds:.1f} CPU seconds", file=sys.stderr)
    findings = [finding for one in audits.values() for finding in one.findings]
    print("\n".join(table(audits, HERE)))
    print(agreement(HERE))
    print("\n".join(show(compare((f for f in last_commit(HERE) if f.repository in audits), findings))))
    if args.write:
        kept = [f for f in findings_of(rows_of(HERE / FINDINGS)) if f.repository not in audits]
        write([*kept, *findings], HERE / FINDINGS)
    return int(any(one.failure for one in audits.values()))


if __name__ == "__main__":
    sys.exit(main())
