"""Rewrite every case and page example in many forms that keep its meaning, and compare what the audit says: form must not matter.

    python benchmarks/forms/forms.py [--share N] [--seed S] [--write]

A program is rewritten by each form alone, and by five forms at once, drawn by the seed. Counted are the errors and warnings
of bad programs that are still reported, by code, and the clean programs (those without any) that get one. `--share N` takes
one program of N, `--write` writes `forms.md`. Exits with 1 where less is kept than `WANTED`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from forms.every import FORMS
from forms.form import Form, Source
from forms.subjects import Subject, alarms, folder_of, subjects

AT_ONCE = 5
WANTED = {"singly": 98.0, "five at once": 95.0}
SINGLY, TOGETHER = WANTED
_PAGE = Path(__file__).resolve().parent / "forms.md"


@dataclass(slots=True)
class Trial:
    """A program in another form: how many errors and warnings it had, which are gone, which are new."""

    program: str
    forms: tuple[str, ...]
    way: str
    had: int
    lost: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    failed: str = ""
    text: str = ""


def title(form: Form) -> str:
    """A form's name with its family."""
    return f"{form.family}: {form.name}"


def rewritten(subject: Subject, form: Form, source: Source) -> Source | None:
    """A program in another form; None where the form does not apply."""
    return form.rewrite(source) if subject.fits(form) else None


def drawn(subject: Subject, forms: Sequence[Form], seed: str) -> tuple[tuple[Form, ...], Source]:
    """A program in up to five forms, one on the other."""
    order = list(forms)
    random.Random(f"{seed} {subject.name}").shuffle(order)
    taken: list[Form] = []
    source = subject.source
    for form in order:
        if len(taken) == AT_ONCE:
            break
        done = rewritten(subject, form, source)
        if done is not None:
            taken.append(form)
            source = done
    return tuple(taken), source


def tried(subject: Subject, forms: Sequence[Form], seed: str, draws: int) -> list[Trial]:
    """A program in each form alone, and in five at once as often as `draws` says."""
    with folder_of(subject) as folder:
        before = alarms(subject, subject.source, folder)
        found = []
        for form in forms:
            done = rewritten(subject, form, subject.source)
            if done is not None:
                found.append(_trial(subject, (form,), SINGLY, done, before, folder))
        for number in range(draws):
            taken, source = drawn(subject, forms, f"{seed}/{number}")
            if len(taken) == AT_ONCE:
                found.append(_trial(subject, taken, TOGETHER, source, before, folder))
    return found


def _trial(subject: Subject, forms: Sequence[Form], way: str, source: Source, before: Counter[str], folder: Path) -> Trial:
    trial = Trial(subject.name, tuple(map(title, forms)), way, before.total())
    try:
        after = alarms(subject, source, folder)
    except Exception as error:
        trial.failed = f"{type(error).__name__}: {error}"
        after = Counter()
    trial.lost, trial.new = dict(before - after), dict(after - before)
    if trial.lost or trial.new or trial.failed:
        trial.text = source.text + "".join(f"\n# ---- {name}\n{text}" for name, text in source.files.items())
    return trial


def _job(task: tuple[Subject, tuple[int, ...], str, int]) -> list[Trial]:
    subject, numbers, seed, draws = task
    return tried(subject, [FORMS[number] for number in numbers], seed, draws)


def share_of(every: Iterable[Subject], share: int, seed: str) -> list[Subject]:
    """One program of so many, drawn by the seed."""
    return [one for one in every if int(hashlib.sha256(f"{seed} {one.name}".encode()).hexdigest(), 16) % share == 0]


def percent(part: int, whole: int) -> float:
    """Parts of a hundred; 100 of nothing."""
    return 100.0 * part / whole if whole else 100.0


@dataclass(slots=True)
class Figures:
    """What a set of trials adds up to."""

    findings: int = 0
    kept: int = 0
    clean: int = 0
    alarmed: int = 0
    failed: int = 0
    programs: int = 0

    def add(self, trial: Trial) -> None:
        """Count one more."""
        self.programs += 1
        self.failed += bool(trial.failed)
        self.findings += trial.had
        self.kept += trial.had - sum(trial.lost.values())
        if not trial.had:
            self.clean += 1
            self.alarmed += bool(trial.new)


def lines_of(trials: Sequence[Trial]) -> list[str]:
    """The figures, and the table by form; those that lose most first."""
    totals: dict[str, Figures] = defaultdict(Figures)
    by_form: dict[str, Figures] = defaultdict(Figures)
    for trial in trials:
        totals[trial.way].add(trial)
        if trial.way == SINGLY:
            by_form[trial.forms[0]].add(trial)
    lines = ["| | programs | errors and warnings | kept | clean programs | with a new alarm |", "|---|---|---|---|---|---|"]
    for way in WANTED:
        one = totals[way]
        lines.append(
            f"| {way} | {one.programs:,} | {one.findings:,} | {percent(one.kept, one.findings):.1f} % | {one.clean:,} "
            f"| {one.alarmed} ({0.0 if not one.clean else percent(one.alarmed, one.clean):.2f} %) |"
        )
    lines += ["", f"{len(by_form)} forms applied to some program.", ""]
    lines += ["| form | programs | findings | lost | kept | new alarms on clean |", "|---|---|---|---|---|---|"]
    order = sorted(by_form.items(), key=lambda pair: (pair[1].kept - pair[1].findings - pair[1].alarmed, pair[0]))
    for name, one in order:
        kept = f"{percent(one.kept, one.findings):.1f} %"
        lines.append(f"| {name} | {one.programs} | {one.findings} | {one.findings - one.kept} | {kept} | {one.alarmed} |")
    if failed := sum(one.failed for one in totals.values()):
        lines.append(f"\n{failed} programs could not be audited.")
    codes = Counter(code for trial in trials if trial.way == SINGLY for code, count in trial.lost.items() for _ in range(count))
    lines += ["", "Lost singly, by rule: " + (", ".join(f"{code} {count}" for code, count in codes.most_common()) or "none") + "."]
    new = Counter(code for trial in trials if trial.way == SINGLY and not trial.had for code in trial.new)
    lines += [
        "",
        "New on clean programs, by rule: " + (", ".join(f"{code} {count}" for code, count in new.most_common()) or "none") + ".",
    ]
    return lines


def run(chosen: Sequence[Subject], numbers: Sequence[int], seed: str, draws: int, processes: int) -> list[Trial]:
    """All trials of some programs, in their order."""
    tasks = [(subject, tuple(numbers), seed, draws) for subject in chosen]
    if processes == 1:
        return [trial for task in tasks for trial in _job(task)]
    with multiprocessing.Pool(processes) as pool:
        return [trial for trials in pool.imap(_job, tasks) for trial in trials]


def main() -> int:
    """Rewrite, audit, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=int, default=1, help="one program of so many (1)")
    parser.add_argument("--seed", default="1", help="draws the programs of a share, and the five forms")
    parser.add_argument("--draws", type=int, default=2, help="how often a program gets five forms at once (2)")
    parser.add_argument("--form", default="", help="only forms with this in their name")
    parser.add_argument("--program", default="", help="only programs with this in their name")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", type=int, default=0, help="so many programs that lose or gain a finding are printed")
    parser.add_argument("--losses", help="write the trials that lose or gain to this JSON file")
    parser.add_argument("--write", action="store_true", help="write the figures to forms.md")
    given = parser.parse_args()
    chosen = [one for one in share_of(subjects(), given.share, given.seed) if given.program in one.name]
    numbers = [number for number, form in enumerate(FORMS) if given.form in title(form)]
    began = time.monotonic()
    trials = run(chosen, numbers, given.seed, given.draws, given.processes)
    lines = [f"{len(chosen)} programs, {len(numbers)} forms.", "", *lines_of(trials)]
    print("\n".join(lines))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    changed = [one for one in trials if one.lost or one.failed or (one.new and not one.had)]
    for one in changed[: given.show]:
        print(f"\n---- {one.program}: {', '.join(one.forms)}\nlost {one.lost}, new {one.new} {one.failed}\n{one.text}")
    if given.losses:
        kept = [{name: getattr(one, name) for name in Trial.__slots__} for one in changed]
        Path(given.losses).write_text(json.dumps(kept, indent=1), encoding="utf-8")
    if given.write:
        command = "make forms" + (f" ARGS='--share {given.share} --seed {given.seed}'" if given.share > 1 else "")
        _PAGE.write_text(f"# Form must not matter\n\n`{command}`: " + "\n".join(lines) + "\n", encoding="utf-8")
    figures: dict[str, Figures] = defaultdict(Figures)
    for one in trials:
        figures[one.way].add(one)
    return int(any(percent(figures[way].kept, figures[way].findings) < wanted for way, wanted in WANTED.items()))


if __name__ == "__main__":
    sys.exit(main())
