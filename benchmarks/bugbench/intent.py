"""What each program of the benchmark is meant to show: its header of intent.

A program of `blind/` and `reports/` is a folder `bug` or `twin` with one entry file. The comment lines at its head are its intent:

    # class: unmatched-collective      one of CLASSES
    # source: URL                      the public report after which it was written; in `blind/`
    # outcome: hang all                in the words of tests/cases/README.md, and OWN_OUTCOMES
    # where: train.py:66, engine.py:36 places, any of which names the bug; of the bug alone
    # launch: torchrun ..              may be absent: two ranks of this node, no arguments
    # needs: accelerate                may be absent: a package that the program imports and that is not installed with this one
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cases"))

from case import Outcome, Started, read_launch, read_outcomes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLASSES = {
    "unmatched-collective": "some ranks enter a collective, or a forward or backward that contains one, and others do not",
    "unequal-collective": "all ranks enter it, with other shapes, operations or arguments than each other, or than it allows",
    "unsynchronised": "gradients, parameters, buffers or settings are no longer the same on all ranks, and nothing says so",
    "wrong-data": "ranks train on each other's samples, in one order, or on what was set aside",
    "wrong-value": "a gradient or a metric is off by a factor, or counts something twice",
    "rank-local-state": "files, folders or objects that one rank has, or that all of them make at once",
    "setup": "devices, ports, process groups, launches and library options that do not fit together",
}
OWN_OUTCOMES = {
    "some-rank": "some rank, whichever it is, ends with an error that has the text",
    "completes": "all ranks leave with 0",
    "prints-differ": "what the regular expression finds in the outputs differs between ranks",
}
_HEADER = re.compile(r"#\s*(class|source|outcome|where|launch|needs):\s*(.*?)\s*$")
_PLACE = re.compile(r"([\w./-]+\.py):(\d+)")


class IntentError(Exception):
    """A header that cannot be read; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One program and what is right for it."""

    path: Path  # its entry file
    part: str  # blind, cases, reports or wild
    pair: str  # name that a bug, its twin and its look-alikes share
    kind: str  # bug, twin or alike
    group: str  # one of CLASSES
    outcomes: tuple[Outcome, ...]
    where: frozenset[tuple[str, int]] = frozenset()  # (file name, line); empty: not stated
    source: str = ""
    started: Started = field(default_factory=Started)
    launch: str = ""
    needs: str = ""  # a package without which it cannot be run

    @property
    def name(self) -> str:
        """For reports: `blind/evaluation_on_main/bug`."""
        return f"{self.part}/{self.pair}/{self.path.stem if self.part == 'cases' else self.kind}"

    @property
    def hindrance(self) -> str:
        """Why it cannot be run here; empty where it can."""
        reasons = [outcome.text for outcome in self.outcomes if outcome.word == "not-run"]
        return "; ".join(reasons + ([f"{self.needs} is not installed"] if self.needs and find_spec(self.needs) is None else []))

    @property
    def effect(self) -> str:
        """How a run ends: hang, abort, silent or clean."""
        words = {outcome.word for outcome in self.outcomes}
        if self.kind != "bug":
            return "clean"
        if "hang" in words:
            return "hang"
        return "abort" if words & {"error", "abort", "some-rank"} else "silent"


def own_programs(part: str) -> list[Intent]:
    """The programs of `blind/` or `reports/`, in the order of their names. Raises IntentError."""
    found = []
    for folder in sorted((HERE / part).iterdir()):
        for kind in ("bug", "twin"):
            entries = [path for path in sorted((folder / kind).glob("*.py")) if path.read_text(encoding="utf-8").startswith("#")]
            if len(entries) != 1:
                raise IntentError(f"{folder / kind}: {len(entries)} files with a header")
            found.append(_read(entries[0], part, folder.name, kind))
    return found


def _read(path: Path, part: str, pair: str, kind: str) -> Intent:
    said: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if (found := _HEADER.match(line)) is None:
            break
        said[found[1]] = found[2]
    if missing := {"class", "outcome", *(["source"] if part == "blind" else [])} - set(said):
        raise IntentError(f"{path}: the header has no line '{min(missing)}'")
    if said["class"] not in CLASSES:
        raise IntentError(f"{path}: '{said['class']}' is no class")
    places = frozenset((file, int(line)) for file, line in _PLACE.findall(said.get("where", "")))
    if bool(places) != (kind == "bug"):
        raise IntentError(f"{path}: a bug says where it is, and nothing else does")
    launch = said.get("launch", "")
    return Intent(
        path, part, pair, kind, said["class"], _outcomes(said["outcome"], path), places, said.get("source", ""),
        read_launch(launch, str(path)), launch, said.get("needs", ""),
    )  # fmt: skip


def _outcomes(text: str, path: Path) -> tuple[Outcome, ...]:
    found: list[Outcome] = []
    for part in text.split(";"):
        word, _, rest = part.strip().partition(" ")
        found += [Outcome(word, None, rest)] if word in OWN_OUTCOMES else read_outcomes(part, str(path))
    return tuple(found)
