"""Runs programs of the benchmark on real ranks and compares what they show with their intent.

    python benchmarks/bugbench/prove.py [NAME ...]

A NAME is the name of a pair; without one all of PARTS are run. One line a program, exit code 1 where one showed
something else.
The runs are watched from inside by `tests/cases/observer.py`, which uses nothing of any tool that is measured.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cases"))

from case import Outcome, Program
from intent import Intent
from judge import Shown, holds
from run import run_all
from suite import every_program

PARTS = ("blind", "reports", "wild")


def shows(outcome: Outcome, shown: Shown) -> bool:
    """Whether a run showed an outcome, one of OWN_OUTCOMES included."""
    if outcome.word == "some-rank":
        return any(outcome.text in facts["error"] for facts in shown.ranks)
    if outcome.word == "completes":
        return not any(facts["code"] for facts in shown.ranks)
    if outcome.word == "prints-differ":
        printed = [re.findall(outcome.text, text) for text in shown.output]
        return all(printed) and any(those != printed[0] for those in printed)
    return holds(outcome, shown)


def main(names: list[str]) -> int:
    every = [intent for intent in every_program() if intent.part in PARTS and not intent.hindrance]
    every = [intent for intent in every if not names or intent.pair in names]
    programs: dict[Path, Intent] = {intent.path: intent for intent in every}
    with tempfile.TemporaryDirectory() as folder:
        shown = run_all([Program(path, i.kind, "", started=i.started) for path, i in programs.items()], Path(folder))
    wrong = 0
    for path, intent in programs.items():
        missing = [f"{o.word} {o.text}".strip() for o in intent.outcomes if not shows(o, shown[path])]
        wrong += bool(missing)
        print(f"{'WRONG' if missing else 'ok'}  {intent.name}: {shown[path].summary()}", *missing, sep="\n      ")
    print(f"{len(programs) - wrong} of {len(programs)} programs showed what they say")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
