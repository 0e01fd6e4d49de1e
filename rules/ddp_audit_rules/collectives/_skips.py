"""Where a rank's own decision skips or leaves what the ranks do together: what DDP203 reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddp_audit.tree.nodes import Backward, Collective, Guard, Jump, Node, Program, Step, Wrap
from ddp_audit.tree.questions import asks_form, forwards_behind, local_taint, seeds_of
from ddp_audit.tree.values import CLOCK, DATA, RANDOM, RANK, SIGNAL, Const, Taint
from ddp_audit_rules.collectives._regions import is_together, left_out, own_taint


@dataclass(frozen=True, slots=True, eq=False)
class Skip:
    """A place where ranks diverge: `node` is a jump, or the first thing of the region that stands under the condition itself."""

    node: Node
    guard: Guard
    taint: Taint
    region: Node  # the first thing that the ranks do together and that this one skips or leaves
    streams_differ: bool = False  # whether the program seeds its random numbers by rank

    @property
    def confidence(self) -> str:
        """Likely where the reason is one that really differs; a shape or a file may well be the same on all ranks.

        Nor where ranks reach the region by a decision of their own besides: all of them may pass it by.
        """
        around = {(guard.span, guard.polarity) for guard in self.node.guards}
        if any(g.via != "early-exit" and (g.span, g.polarity) not in around and own_taint(g) for g in self.region.guards):
            return "possible"
        really = {RANK, DATA, CLOCK, SIGNAL, *([RANDOM] if self.streams_differ else [])}
        return "possible" if asks_form(self.guard.test) or not self.taint & really else "likely"


def skips(program: Program) -> Iterator[Skip]:
    """Every such place, jumps first."""
    seeded = [library for library in ("torch", "numpy", "random") if seeds_of(program, library)]
    by_rank = bool(seeded) and all(any(RANK in seed.seed.taint for seed in seeds_of(program, library)) for library in seeded)
    for skip in (*_jumps(program), *_enclosed(program)):
        yield replace(skip, streams_differ=by_rank)


def _jumps(program: Program) -> Iterator[Skip]:
    """Jumps by a rank's own decision that skip or leave something that the ranks do together."""
    for jump in program.of(Jump):
        what = jump.what
        if what == "raise" or (what == "exit" and not _ends_quietly(jump)):
            continue
        guard = _deciding(jump)
        if guard is None:
            continue
        region = next(iter(left_out(program, jump)), None)
        if region is None:
            continue
        taint = local_taint(guard.test)
        if taint == {RANK} and isinstance(region, Collective):
            continue  # DDP201 reports the collective
        yield Skip(jump, guard, taint, region)


def _enclosed(program: Program) -> Iterator[Skip]:
    """A backward or step under such a condition itself, where its forward is not."""
    for node in program.of(Backward, Step):
        if isinstance(node, Backward) and not is_together(program, node):
            continue
        if isinstance(node, Step) and not any(isinstance(n, Wrap) and n.style == "ddp" for n in program.nodes):
            continue
        outer = {g.span for f in forwards_behind(program, node, None) for g in f.guards} if isinstance(node, Backward) else set()
        for guard in node.guards:
            if guard.via in ("if", "ifexp") and guard.span not in outer:
                taint = own_taint(guard)
                if taint and (isinstance(node, Backward) or taint != {RANK}):
                    yield Skip(node, guard, taint, node)
                    break


def _deciding(jump: Jump) -> Guard | None:
    """The condition, inside what the jump leaves, that ranks answer differently."""
    what = jump.what
    for guard in reversed(jump.guards):
        if guard.via not in ("if", "ifexp", "decorator"):
            continue
        inside = guard.loops == len(jump.loops) if what in ("break", "continue") else guard.depth == len(jump.calls)
        if (inside or what == "exit") and own_taint(guard):
            return guard
    return None


def _ends_quietly(jump: Jump) -> bool:
    """Whether an exit reports success, so that the launcher lets the other ranks wait."""
    code = jump.code
    return code is None or (isinstance(code, Const) and code.value in (0, None))
