"""The conditions, loops and no_sync() blocks under which a node of the program is reached."""

from __future__ import annotations

from dataclasses import dataclass

from ddp_audit.findings import Span
from ddp_audit.program.differing import differs
from ddp_audit.program.values import UNIFORM, Obj, Taint, Value, World, holds, truth, worlds


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition on the way to a node: the node is reached where bool(test) is `polarity`.

    `via` is if, while, ifexp, early-exit (an arm before the node left), except, or loop.
    `against_default` says that with the program's own defaults this way is not taken. `depth` and `loops` count the calls and
    loops around the condition.
    """

    test: Value
    polarity: bool
    span: Span
    text: str
    via: str = "if"
    against_default: bool = False
    world_size: int | None = None
    depth: int = 0
    loops: int = 0
    part_of: bool | None = None  # of a part of a condition: the answer of the whole one
    raised: bool = False  # of an early exit: whether the ranks that left raise an exception

    @property
    def whole(self) -> bool:
        """The answer of the whole condition at the place."""
        return self.polarity if self.part_of is None else self.part_of

    @property
    def taint(self) -> Taint:
        """Why ranks can differ in this condition; empty where they cannot."""
        return differs(self.test, worlds(self.world_size))

    def admits(self, world: World) -> bool | None:
        """Whether a rank passes; None where that is not computable."""
        holds = truth(self.test, world)
        return None if holds is None else holds == self.polarity

    def ranks(self) -> str:
        """Who passes, in words: 'only rank 0', 'all ranks but rank 0', 'some ranks'."""
        said = {w.rank: holds(self.test, w) for w in worlds(self.world_size) if w.world_size == (self.world_size or 4)}
        answers = {rank: None if holding is None else holding == self.polarity for rank, holding in said.items()}
        if not answers or None in answers.values():
            return "some ranks"
        inside = [rank for rank, passes in answers.items() if passes]
        if inside == [0]:
            return "only rank 0"
        if inside == [0, 2] and self.world_size is None:  # two nodes of two ranks each
            return "only the first rank of each node"
        if 0 not in inside and len(inside) == len(answers) - 1:
            return "all ranks but rank 0"
        if len(inside) == len(answers):
            return "all ranks"
        numbers = ", ".join(map(str, inside))
        return f"only rank{'s' * (len(inside) > 1)} {numbers} of {len(answers)}" if inside else "no rank"

    def describe(self) -> str:
        """The guard for a report: `master_process: only rank 0 enters`."""
        verb = "goes on" if self.via == "early-exit" else "enters"
        text = self.text if self.polarity else f"not ({self.text})"
        if not self.taint:
            return text
        who = self.ranks()
        if who == "some ranks":
            return f"{text}: depends on {' and '.join(sorted(self.taint))}"
        return f"{text}: {who} {verb}" if "rank 0" in who and "all" not in who else f"{text}: {who}"


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop around a node. `over` is the iterable or the condition, `count` the number of iterations where it is known."""

    span: Span
    kind: str  # for, while, comprehension
    over: Value
    text: str
    count: Value | None = None
    taint: Taint = UNIFORM  # why the number of iterations can differ between ranks
    epochs: bool = False  # looks like a loop over epochs
    leaf: str = ""  # name of the leaf expression that stands for the index of a for loop


@dataclass(frozen=True, slots=True, eq=False)
class NoSync:
    """A no_sync() block. With a `test` it is one only where bool(test) is `polarity` (`no_sync() if .. else nullcontext()`)."""

    wrapper: Obj | None
    span: Span
    test: Value | None = None
    polarity: bool = True
