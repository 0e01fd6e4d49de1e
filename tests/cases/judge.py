"""What the ranks of a program showed, in the words of README.md."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from case import Outcome
from observer import LEFT_ALONE

OVERLAP = 0.5  # of an epoch's samples: more than what padding to equal lengths repeats


@dataclass(slots=True)
class Shown:
    """The facts of every rank of one run, in the order of the ranks, and what each printed."""

    ranks: list[dict[str, Any]]
    output: list[str]
    factor: float | None = None  # first gradient against the reference; nan where they are not proportional

    def ended(self, word: str) -> set[int]:
        """The ranks that ended so: hang, abort or error."""
        return {rank for rank, facts in enumerate(self.ranks) if _ending(facts) == word}

    def facts(self, name: str) -> list[Any]:
        """One fact of each rank that wrote it down."""
        return [facts[name] for facts in self.ranks if name in facts]

    @property
    def gradients_equal(self) -> bool:
        """Whether every optimizer step had the same gradients on all ranks, as far as all of them went."""
        steps = [[tuple(step) for step in ranks_steps] for ranks_steps in self.facts("steps")]
        return all(len(set(together)) == 1 for together in zip(*steps, strict=False))

    def differ(self, name: str) -> bool:
        """Whether a fact differs between ranks."""
        return len(set(self.facts(name))) > 1

    @property
    def same_samples(self) -> bool:
        """Whether two ranks drew equal batches in an epoch or at a step."""
        inputs = self.facts("inputs")
        if any(len(set(together)) < len(together) for together in zip(*inputs, strict=False) if len(together) > 1):
            return True
        per_rank = self.facts("loaders")
        return any(_overlap(epochs) for epochs in _epochs_side_by_side(per_rank))

    @property
    def same_order(self) -> bool:
        """Whether some rank's batches came in one order in every epoch."""
        loaders = [epochs for facts in self.facts("loaders") for epochs in facts if len(epochs) > 1 and any(epochs)]
        return any(all(epoch == epochs[0] for epoch in epochs) for epochs in loaders)

    def summary(self) -> str:
        """Everything that was seen, for a report of a difference."""
        words = [
            f"{word} {','.join(map(str, sorted(ranks)))}" for word in ("hang", "abort", "error") if (ranks := self.ended(word))
        ]
        words += [] if self.gradients_equal else ["gradients-local"]
        words += [f"{name}-differ" for name in ("parameters", "buffers") if self.differ(name)]
        words += ["same-samples"] * self.same_samples + ["same-order"] * self.same_order
        words += [f"chose devices {self.facts('chosen')}"] if any(self.facts("chosen")) else []
        words += [f"reductions {self.facts('reductions')}"] if any(self.facts("reductions")) else []
        words += (
            [f"wrong-factor {self.factor:.4g}"]
            if self.factor is not None and not math.isclose(self.factor, 1, rel_tol=1e-3)
            else []
        )
        errors = [f"rank {rank}: {facts['error'].splitlines()[-1]}" for rank, facts in enumerate(self.ranks) if facts["error"]]
        return "; ".join(words + errors) or "clean"


def load_shown(folder: Path, name: str, world_size: int) -> Shown:
    """What a run left in its folder."""
    ranks = [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(world_size)]
    return Shown(ranks, [(folder / f"{name}.{rank}.out").read_text(errors="replace") for rank in range(world_size)])


def holds(outcome: Outcome, shown: Shown) -> bool:
    """Whether a run showed an outcome."""
    everyone = frozenset(range(len(shown.ranks)))
    match outcome.word:
        case "clean":
            failed = any(facts["code"] for facts in shown.ranks)
            return not failed and shown.gradients_equal and not shown.differ("parameters")
        case "hang" | "abort" | "error":
            ranks = outcome.ranks or everyone
            said = all(outcome.text in shown.ranks[rank]["error"] for rank in ranks if rank in everyone)
            return shown.ended(outcome.word) == ranks and said
        case "gradients-local":
            return not shown.gradients_equal
        case "parameters-differ" | "buffers-differ":
            return shown.differ(outcome.word.removesuffix("-differ"))
        case "same-samples":
            return shown.same_samples
        case "same-order":
            return shown.same_order
        case "wrong-factor":
            return shown.factor is not None and math.isclose(shown.factor, float(outcome.text), rel_tol=1e-3)
        case "reductions":
            return shown.facts("reductions") == [int(outcome.text)] * len(shown.ranks)
        case "device":
            return any(int(outcome.text) in chosen for chosen in shown.facts("chosen"))
        case "all-on-device":
            return all(set(chosen or [0]) == {int(outcome.text)} for chosen in shown.facts("chosen"))
        case "shows":
            return any(outcome.text in text for text in shown.output)
    return False


def _ending(facts: dict[str, Any]) -> str:
    """How a rank ended. One that was left alone by its peers gets an error of the transport or is stopped from outside."""
    if facts.get("stopped") or (facts["error"] and LEFT_ALONE.search(facts["error"])):
        return "hang"
    if facts["code"] < 0:
        return "abort"
    return "error" if facts["code"] else "clean"


def _epochs_side_by_side(per_rank: list[list[list[list[list[str]]]]]) -> list[list[set[str]]]:
    """The samples of each rank in the same epoch of the same loader."""
    together = []
    for loaders in zip(*per_rank, strict=False):
        for epochs in zip(*loaders, strict=False):
            together.append([{row for batch in batches for row in batch} for batches in epochs])
    return together


def _overlap(ranks: list[set[str]]) -> bool:
    pairs = [(a, b) for i, a in enumerate(ranks) for b in ranks[i + 1 :] if a and b]
    return any(len(a & b) > OVERLAP * min(len(a), len(b)) for a, b in pairs)
