"""A node of the program: one thing that matters, at the place and under the conditions under which it is reached.

Each kind of thing is a class of its own in the modules next to this one, with what it carries as fields. A kind that stands for a
call has what it was given in `args`, by parameter name; `**` among the names says that more was passed that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ddp_audit.findings import Span
from ddp_audit.program.guards import Guard, Loop, NoSync
from ddp_audit.program.values import Obj, Value, World, the_object


class Placed:
    """Where a node is and how it is reached, which the lowering fills in.

    No dataclass: each kind of node would make these fields again, which an audit's start would notice.
    """

    span: Span
    function: str
    text: str  # its source on one line
    number: int  # its place in the order of execution
    guards: tuple[Guard, ...]
    loops: tuple[Loop, ...]
    calls: tuple[Span, ...]  # places of the calls that led here, outermost first
    grad: bool | None  # gradients on; None where unknown
    no_sync: tuple[NoSync, ...]  # no_sync() blocks around
    tries: tuple[Span, ...]  # `try` blocks around
    in_finally: bool  # it runs after an exception too
    in_join: bool  # under the `Join` context of uneven inputs


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Node(Placed):
    """One thing that matters. `target` is what it acts on."""

    kind: ClassVar[str] = ""  # the word for it in reports
    counts: ClassVar[bool] = True  # whether a function that does it did more than return a value

    target: Value | None = None

    @property
    def object(self) -> Obj | None:
        """The object that the node acts on, where it is one."""
        return the_object(self.target)

    @property
    def place(self) -> str:
        """Where it is, for reports: `train.py:94`."""
        return self.span.place

    @property
    def is_called(self) -> bool:
        """Whether the script comes here; a function that nothing calls has callers that are not known."""
        return self.function == "<module>" or bool(self.calls)

    @property
    def rank_guards(self) -> tuple[Guard, ...]:
        """Guards in which ranks can differ."""
        return tuple(g for g in self.guards if g.taint)

    def reached_by(self, world: World) -> bool | None:
        """Whether a rank gets here, as far as its guards say: False where one of them excludes it, None where one is unknown."""
        answers = [g.admits(world) for g in self.guards if g.taint]
        if False in answers:
            return False
        return None if None in answers else True


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class CallNode(Node):
    """A node that stands for a call, with what the call was given."""

    args: Mapping[str, Value] = field(default_factory=dict)
