"""The score sheet: what the auditor finds of what is known, on the cases and on the field labels, a rule at a time.

    python benchmarks/score.py [--corpus DIR] [--write]

Without --corpus only the cases are scored. --write puts the sheet into benchmarks/score.md, with the field part of the last time
where there is no corpus. What the columns mean stands in the sheet.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHEET = Path(__file__).with_name("score.md")
FIELD = ROOT / "tests" / "field"
FIELD_TITLE = "## Field"
LOUD = ("warning", "error")
NEAR = 3  # lines between a finding and the label that it answers
FILE_WIDE = {"missing-destroy", "destroy-normal-end-only", "missing-set-epoch", "all-ranks-write"}
SECONDS = 240  # for one file

sys.path.insert(0, str(ROOT / "tests" / "cases"))

import predictions  # noqa: E402 - found by the path above


@dataclass
class Tally:
    """Counts of one rule."""

    hits: int = 0
    misses: int = 0
    false: int = 0
    files_right: int = 0
    files_missed: int = 0
    files_false: int = 0
    files_quiet: int = 0
    wanted: int = 0
    found: int = 0
    other: int = 0
    other_found: int = 0
    traps: int = 0


@dataclass
class Field:
    """What the field part found: tallies a rule, and the lines to read."""

    tallies: dict[str, Tally] = field(default_factory=lambda: collections.defaultdict(Tally))
    missed: list[str] = field(default_factory=list)
    tripped: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    judged: collections.Counter[str] = field(default_factory=collections.Counter)
    trap_lines: int = 0
    absent: int = 0
    broken: int = 0


def score_cases() -> dict[str, Tally]:
    """Every case program against its header, by rule."""
    from case import programs

    from ddp_audit.audit import Options, audit

    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    here = Path.cwd()
    for program in programs():
        os.chdir(program.path.parent)
        result = audit([program.path.name], Options(launch=program.launch or None))
        os.chdir(here)
        said = {(f.code, f.span.line) for f in result.findings if f.code == program.code or f.severity in LOUD}
        for code in {program.code} | {code for code, _ in said | program.expects}:
            told, wanted = ({line for c, line in group if c == code} for group in (said, program.expects))
            tally = tallies[code]
            tally.hits += len(told & wanted)
            tally.misses += len(wanted - told)
            tally.false += len(told - wanted)
            tally.files_right += bool(told and wanted)
            tally.files_missed += bool(wanted and not told)
            tally.files_false += bool(told and not wanted)
            tally.files_quiet += not told and not wanted
    return tallies


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table, with `line` as a number."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [row | {"line": int(row["line"])} for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def findings_of(folder: Path, path: str) -> list[dict[str, Any]] | None:
    """What an audit of one file says, run from the root of its repository; None where it gave no report."""
    command = [sys.executable, "-m", "ddp_audit", "check", "--format", "json", "--exit-zero", path]
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        return list(json.loads(run.stdout)["findings"])
    except (ValueError, KeyError, subprocess.TimeoutExpired):
        return None


def score_field(corpus: Path) -> Field:
    """The labelled files of the repositories that are in a folder."""
    score = Field()
    labels, judged = read_rows(FIELD / "labels.tsv"), read_rows(FIELD / "judged.tsv")
    repositories: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in labels:
        repositories[row["repo"]].append(row)
    for repository, rows in sorted(repositories.items()):
        folder = corpus / repository.replace("/", "__")
        paths = sorted({row["path"] for row in rows})
        there = [path for path in paths if (folder / path).is_file()]
        score.absent += len(paths) - len(there)
        rows = [row for row in rows if row["path"] in there]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = list(pool.map(lambda path, folder=folder: findings_of(folder, path), [p for p in there if p.endswith(".py")]))
        score.broken += answers.count(None)
        findings = {(f["path"], f["line"], f["code"]): f for answer in answers for f in answer or []}.values()
        _score_repository(score, repository, rows, findings, [row for row in judged if row["repo"] == repository])
    return score


def answers_to(row: dict[str, Any], finding: dict[str, Any]) -> bool:
    """Whether a finding is what a label asks for."""
    if finding["path"] != row["path"] or finding["code"] not in row["rule"].split():
        return False
    return row["hazard"] in FILE_WIDE or finding["line"] - NEAR <= row["line"] <= finding["end_line"] + NEAR


def _score_repository(
    score: Field, repository: str, rows: list[dict[str, Any]], findings: Iterable[dict[str, Any]], judged: list[dict[str, Any]]
) -> None:
    findings = list(findings)
    hazards = [row for row in rows if not row["hazard"].startswith("ok:")]
    labelled = {row["path"] for row in rows}
    explained: set[int] = set()
    for row in hazards:
        hits = {i for i, finding in enumerate(findings) if answers_to(row, finding)}
        explained |= hits
        if not row["rule"]:
            continue
        tally = score.tallies[findings[min(hits)]["code"] if hits else row["rule"].split()[0]]
        if row["certain"] == "definite" and row["severity"] in LOUD:
            tally.wanted += 1
            tally.found += bool(hits)
            if not hits:
                score.missed.append(f"{repository} {row['path']}:{row['line']} {row['rule']} {row['hazard']}: {row['reason']}")
        else:
            tally.other += 1
            tally.other_found += bool(hits)
    for row in rows:
        if row["hazard"].startswith("ok:"):
            score.trap_lines += 1
            near = [h for h in hazards if h["path"] == row["path"] and abs(h["line"] - row["line"]) <= NEAR]
            loud = [
                i for i, f in enumerate(findings) if f["severity"] in LOUD and (f["path"], f["line"]) == (row["path"], row["line"])
            ]
            if loud and not near:
                explained |= set(loud)
                score.tallies[findings[loud[0]]["code"]].traps += 1
                score.tripped.append(
                    f"{repository} {row['path']}:{row['line']} {findings[loud[0]]['code']} on {row['hazard']}: {row['reason']}"
                )
    for i, finding in enumerate(findings):
        place = (finding["path"], finding["line"])
        near = [h for h in hazards if h["path"] == place[0] and abs(h["line"] - place[1]) <= NEAR]
        if finding["severity"] not in LOUD or i in explained or near or finding["path"] not in labelled:
            continue
        said = next((j["judgement"] for j in judged if (j["path"], j["line"], j["code"]) == (*place, finding["code"])), None)
        if said is None:
            score.unjudged.append(f"{repository} {place[0]}:{place[1]} {finding['code']} {finding['message'][:140]}")
        else:
            score.judged[said] += 1


def cases_sheet(tallies: dict[str, Tally]) -> str:
    """The table of the cases."""
    lines = [
        "## Cases",
        "Line: findings at the line that the header names. File: programs with the hazard that were told; quiet: the others.",
        "",
        "| rule | line: right | missed | false | file: right | missed | false | quiet |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = Tally()
    names = ("hits", "misses", "false", "files_right", "files_missed", "files_false", "files_quiet")
    for code, tally in sorted(tallies.items()):
        lines.append(f"| {code} | " + " | ".join(str(getattr(tally, name)) for name in names) + " |")
        for name in names:
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    lines.append("| all | " + " | ".join(str(getattr(total, name)) for name in names) + " |")
    return "\n".join(lines) + "\n"


def field_sheet(score: Field) -> str:
    """The table of the field labels, and what is to be read."""
    wanted, found = (sum(getattr(t, name) for t in score.tallies.values()) for name in ("wanted", "found"))
    traps = sum(tally.traps for tally in score.tallies.values())
    lines = [
        FIELD_TITLE,
        f"Definite errors and warnings found: {found} of {wanted}. Lines on which a naive rule would speak that were hit: {traps} "
        f"of {score.trap_lines}. Findings of level warning and error in labelled files without a label: "
        + (", ".join(f"{count} {judgement}" for judgement, count in sorted(score.judged.items())) or "0 judged")
        + f", {len(score.unjudged)} not judged. Files absent: {score.absent}, without a report: {score.broken}.",
        "",
        "| rule | definite errors and warnings | found | other labels (info, risks) | found | traps hit |",
        "|---|---|---|---|---|---|",
    ]
    for code, t in sorted(score.tallies.items()):
        lines.append(f"| {code} | {t.wanted} | {t.found} | {t.other} | {t.other_found} | {t.traps} |")
    for title, texts in (("Missed", score.missed), ("Traps hit", score.tripped), ("Not judged", score.unjudged)):
        if texts:
            lines += ["", f"{title}:", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a folder of labelled repositories, owner__name each")
    parser.add_argument("--write", action="store_true", help="write benchmarks/score.md")
    args = parser.parse_args()
    if args.corpus is not None and not args.corpus.is_dir():
        print(f"{args.corpus} is no folder", file=sys.stderr)
        return 2
    cases = f"{cases_sheet(score_cases())}\n{predictions.sheet(predictions.score())}"
    old = SHEET.read_text(encoding="utf-8").partition(FIELD_TITLE) if SHEET.exists() else ("", "", "")
    fields = field_sheet(score_field(args.corpus)) if args.corpus else old[1] + old[2]
    sheet = f"# Score sheet\n\n{cases}\n{fields}"
    print(sheet)
    if args.write:
        SHEET.write_text(sheet, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
