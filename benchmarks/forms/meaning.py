"""Run a sample of rewritten programs on real ranks: each must show what the header of its case says, so that the meaning was kept.

    python benchmarks/forms/meaning.py [--each N] [--together N] [--seed S] [--form TEXT]

Takes for each form some programs that it applies to (`--each`), and some programs in five forms at once (`--together`).
Exits with 1 where one showed something else.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cases"))

from case import Program
from run import judgement, run_all

from forms.every import FORMS
from forms.form import Source
from forms.forms import AT_ONCE, drawn, rewritten, title
from forms.subjects import Subject, put, subjects

TOGETHER_IN_ONE = 40  # programs of one torchrun


def sample(each: int, together: int, seed: str, text: str) -> list[tuple[Subject, str, Source]]:
    """Programs in other forms, with the forms' names."""
    draw = random.Random(seed)
    fit = [one for one in subjects() if not one.hindrance and one.started.torchrun and one.started.world_size == 2]
    taken: list[tuple[Subject, str, Source]] = []
    for form in FORMS:
        if text not in title(form):
            continue
        found = 0
        for one in draw.sample(fit, len(fit)):
            if found == each:
                break
            done = rewritten(one, form, one.source)
            if done is not None:
                found += 1
                taken.append((one, title(form), done))
    for number in range(together):
        one = draw.choice(fit)
        forms, source = drawn(one, FORMS, f"{seed}/{number}")
        if len(forms) == AT_ONCE:
            taken.append((one, ", ".join(map(title, forms)), source))
    return taken


def program_of(subject: Subject, source: Source, folder: Path) -> Program:
    """A program in a folder of its own, ready to be run."""
    put(folder, {**subject.beside, **source.files, subject.file: source.text})
    return Program(
        folder / subject.file,
        subject.kind,
        subject.code,
        outcomes=subject.outcomes,
        started=subject.started,
        devices=subject.devices,
    )


def wrong_ones(taken: list[tuple[Subject, str, Source]], folder: Path) -> list[str]:
    """What was shown and should not have been, a line for each program."""
    found = []
    for first in range(0, len(taken), TOGETHER_IN_ONE):
        part = taken[first : first + TOGETHER_IN_ONE]
        here = folder / f"runs-{first}"
        here.mkdir()
        made = [
            program_of(subject, source, folder / f"{first + number:04}" / subject.code.lower() / "form")
            for number, (subject, _, source) in enumerate(part)
        ]
        shown = run_all(made, here)
        for program, (subject, names, _) in zip(made, part, strict=True):
            if said := judgement(program, shown, None):
                found.append(f"{subject.name} [{names}] {said} {shown[program.path].ranks[0].get('error', '')}")
                print("wrong   ", found[-1], flush=True)
        print(f"{first + len(part)} programs run, {len(found)} wrong", flush=True)
    return found


def main() -> int:
    """Draw, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=1, help="programs for each form")
    parser.add_argument("--together", type=int, default=20, help="programs in five forms at once")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--form", default="", help="only forms with this in their name")
    given = parser.parse_args()
    taken = sample(given.each, given.together, given.seed, given.form)
    with TemporaryDirectory() as folder:
        wrong = wrong_ones(taken, Path(folder))
    print(f"{len(taken)} programs in other forms, {len(wrong)} showed something else")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
