"""Forwards through a wrapper that some ranks make and others do not, and the same call through the module inside."""

from __future__ import annotations

import ast

from ddp_audit.findings import Fix
from ddp_audit.tree.nodes import Forward, Guard, Node, Program, Wrap
from ddp_audit.tree.questions import always_runs, code_at, dotted, group_of, is_default, members, runs_with, worlds_by_size
from ddp_audit.tree.values import RANK, Const, worlds


def only_some_ranks(node: Node) -> bool:
    """Whether the guards that depend on the rank let some ranks pass and keep others out, on every job that is looked at."""
    by_rank = [g for g in node.guards if RANK in g.taint]
    if not by_rank or any(g.taint - {RANK} for g in by_rank):
        return False
    sides: dict[tuple[int, int], set[bool]] = {}
    for world in worlds(by_rank[0].world_size):
        sides.setdefault((world.world_size, world.local_world_size), set()).add(all(g.admits(world) is not False for g in by_rank))
    return all(passed == {True, False} for passed in sides.values())


def all_replicas_call(node: Forward, wrap: Wrap) -> bool:
    """Whether every member of the wrapper's own group makes the forward, on every job that has all of them."""
    by_rank = [g for g in node.guards if RANK in g.taint]
    group = group_of(wrap)
    if group is None or is_default(group):
        return False
    found = False
    for job in worlds_by_size(by_rank[0].world_size if by_rank else None):
        calling = {world.rank for world in job if all(g.admits(world) is not False for g in by_rank)}
        inside = [members(group, world) for world in job if world.rank in calling]
        known = [ranks for ranks in inside if ranks is not None]
        if len(known) < len(inside):
            return False
        replicas = frozenset[int]().union(*known)
        if replicas and replicas <= {world.rank for world in job}:
            found = True
            if not replicas <= calling:
                return False
    return found


def never_sends(wrap: Wrap) -> bool:
    """Whether the wrapper's option keeps its buffers from being sent."""
    flag = wrap.args.get("broadcast_buffers", wrap.args.get("forward_sync_buffers"))
    return isinstance(flag, Const) and flag.value is False


def others_forward_too(program: Program, node: Node) -> bool:
    """Whether the ranks that stay out make a forward of the same wrapper in the other arm of the same condition."""
    guard = next(g for g in node.guards if g.taint)
    own = _asked_at(node, guard)
    return guard.via not in ("early-exit", "while") and any(
        other.object == node.object and (theirs := _asked_at(other, guard)) and not any(part in own for part in theirs)
        for other in program.of(Forward)
    )


def _asked_at(node: Node, guard: Guard) -> list[tuple[str, bool]]:
    """The parts of the condition at a guard's place that lead to a node, each with its answer."""
    return [(g.text, g.polarity) for g in node.guards if g.span == guard.span]


def through_module(program: Program, node: Node, wrap: Node) -> Fix | None:
    """The call through the inner module, where the callee is a name and every call from this place is one of some ranks alone."""
    call = code_at(program, node.span, ast.Call)
    name = "" if call is None else dotted(call.func).removesuffix(".forward")
    if not name or not all(only_some_ranks(other) for other in program.of(Forward) if other.span == node.span):
        return None
    sure = runs_with(program, wrap, node) or always_runs(program, wrap)
    inner = f"{name}.module" if sure else f'getattr({name}, "module", {name})'
    text = f"evaluate through `{inner}` on rank 0, or let every rank evaluate its share and all-reduce the sums"
    return Fix("unsafe", text, "" if sure else "getattr", f"evaluate through `{inner}`")
