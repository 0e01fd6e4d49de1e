"""What the gradient of a parameter is made of: the terms that backward passes added to it, local or reduced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

NOBODY: frozenset[int] = frozenset()
ANY_FORWARD = 0  # a source that says no more than that some forward was it: what many backward passes add stays one term


@dataclass(frozen=True, slots=True)
class Presence:
    """Who takes part in a reduction under `join`: `absent` are ranks of the group whose inputs have run out.

    They bring zeros. The divisor is the world size, or with `divide_by_alive` the number `alive` of the others
    (`join(divide_by_initial_world_size=False)`).
    """

    absent: frozenset[int] = NOBODY
    alive: int = 0
    divide_by_alive: bool = False


ALL_PRESENT = Presence()


@dataclass(frozen=True, slots=True)
class Term:
    """What one backward pass added to one gradient. `source` is the forward's number.

    An `averaged` term is the same on all ranks that computed it: the mean over the ranks that are not `absent`, times
    `factor`, divided `divided` times by the world size. A term that is not is this rank's own, with the same factors. Both
    factors are 1 in an ordinary run; with `gradient_as_bucket_view` a bucket that was never reduced leaves `divided` 1, and
    a communication hook that sums without dividing leaves it -1.

    `edited` counts how often the program's own code has changed it, by a factor that differs between ranks, since it was
    averaged last; `edited_before` is that number at the first average, and `means` are those at later ones.
    """

    source: int
    averaged: bool = False
    divided: int = 0
    factor: Fraction | int = 1
    absent: frozenset[int] = NOBODY
    edited: int = 0
    edited_before: int = 0
    means: tuple[int, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether it is the same on all ranks."""
        return self.averaged and not self.edited


@dataclass(slots=True)
class Gradient:
    """`.grad` of one parameter: None where it is missing, otherwise the terms that it sums.

    `racing` says that an all-reduce which nobody has waited for yet writes into it; `unsettled` that one has been started on
    it for which nobody ever waits. Either way the terms say what it becomes, and not when.
    """

    terms: tuple[Term, ...] | None = None
    racing: bool = False
    unsettled: bool = False

    def add(self, source: int) -> None:
        """Accumulates what a backward of forward `source` computed on this rank."""
        new = Term(source)
        if source != ANY_FORWARD or new not in (self.terms or ()):
            self.terms = (*(self.terms or ()), new)

    def edit(self) -> None:
        """The program changes it by a factor that differs between ranks."""
        if self.terms and self.terms[0].source == ANY_FORWARD:
            self.terms = (Term(ANY_FORWARD),)
        elif self.terms:
            self.terms = tuple(replace(t, edited=t.edited + 1) for t in self.terms)


def divided(terms: tuple[Term, ...] | None, presence: Presence) -> tuple[Term, ...] | None:
    """The terms divided by the divisor of a reduction."""
    if not terms or terms[0].source == ANY_FORWARD:
        return terms
    if presence.divide_by_alive:
        return tuple(replace(t, factor=Fraction(t.factor) / presence.alive) for t in terms)
    return tuple(replace(t, divided=t.divided + 1) for t in terms)


def summed(terms: tuple[Term, ...] | None, presence: Presence) -> tuple[Term, ...]:
    """The sum over the ranks of what each holds; a missing gradient counts as zeros."""
    if terms and terms[0].source == ANY_FORWARD:
        return (Term(ANY_FORWARD, averaged=True),)
    terms = tuple(map(_settled, terms or ()))
    if not presence.absent and not presence.divide_by_alive:
        return tuple(replace(t, averaged=True, divided=t.divided - 1) for t in terms)
    return tuple(
        replace(t, averaged=True, factor=t.factor * presence.alive, absent=t.absent if t.averaged else presence.absent)
        for t in terms
    )


def _settled(term: Term) -> Term:
    """What was edited so far, as a part of the average that is made now."""
    if not term.edited:
        return term
    if term.averaged:
        return replace(term, edited=0, means=(*term.means, term.edited))
    return replace(term, edited=0, edited_before=term.edited)
