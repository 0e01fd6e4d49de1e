"""What a preflight finds wrong: problems are data, and every part of the check makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ERROR, WARNING, INFO = "error", "warning", "info"
_ORDER = (ERROR, WARNING, INFO)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a job. `what` is a whole sentence, `fix` an imperative one.

    `ranks` are the ranks that it is about, `nodes` the nodes; both are empty where it is about the whole job.
    """

    kind: str
    severity: str
    what: str
    fix: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object of the documented JSON."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "ranks": list(self.ranks),
            "nodes": list(self.nodes),
            "what": self.what,
            "fix": self.fix,
        }


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems once each, the worst first."""
    return sorted(dict.fromkeys(problems), key=lambda problem: _ORDER.index(problem.severity))


def fails(problems: Iterable[Problem]) -> bool:
    """Whether one of them is more than an information."""
    return any(problem.severity != INFO for problem in problems)


def rank_list(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-3`, `ranks 0, 2 and 5-7`."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    return ("rank " if len(ordered) == 1 else "ranks ") + listed(parts)


def listed(items: Sequence[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def plain(text: object, most: int = 200) -> str:
    """A text from outside in one printable line."""
    line = " ".join(str(text).split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= most else line[: most - 2] + ".."
