"""The places that a finding rests on, in the order of the flow, and what each is."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.findings import Related

# What is there before the flow of control begins; the other roles follow the way to the place, in its order.
_SETUP = (
    "launch", "value", "option", "init", "group", "spawn", "prepare", "model", "buffer", "wrap", "optimizer", "sampler", "loader",
    "seed",
)  # fmt: skip
_WAY = ("guard", "call", "loop")


def in_order_of_flow(related: Sequence[Related]) -> list[Related]:
    """Return the places of a finding: what is set up, then the conditions and calls that lead there, then the rest.

    >>> [step.role for step in in_order_of_flow([Related("a.py", 1, role, "") for role in ("forward", "guard", "wrap")])]
    ['wrap', 'guard', 'forward']
    """

    def rank(step: Related) -> tuple[int, int]:
        if step.role in _SETUP:
            return 0, _SETUP.index(step.role)
        return (1, 0) if step.role in _WAY else (2, 0)

    return sorted(related, key=rank)


def what_of(step: Related, source: str) -> str:
    """Return what a step is, without the condition or the command that its line of source shows.

    >>> what_of(Related("a.py", 1, "guard", "rank == 0: only rank 0 enters"), "if rank == 0:")
    'only rank 0 enters'
    """
    if not step.text or (source and (step.text in source or source.rstrip("\\") in step.text)):
        return step.role
    head, _, tail = step.text.rpartition(": ")
    said = tail if head and head in source else step.text
    return said.replace(f" ({step.place})", "").replace(f" ({step.place}, ", " (")
