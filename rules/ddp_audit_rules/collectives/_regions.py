"""What the ranks do together, and what of it a jump leaves out: shared by the rules on ranks that go their own way."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Collective, Forward, Guard, Jump, Node, Program, Step
from ddp_audit.tree.questions import forwards_behind, function_at, limits_by_rank, local_taint, worlds_by_size
from ddp_audit.tree.values import ERROR, RANK, Alt, Const, Expr, Taint, Value, options


def is_together(program: Program, node: Node) -> bool:
    """Whether all ranks do this together: a collective, a wrapped forward or backward with gradients, a step of it."""
    if isinstance(node, Collective):
        group = node.args.get("group")
        return group is None or (isinstance(group, Const) and group.value is None)
    if isinstance(node, Forward):  # one without a backward, as in an evaluation, is the matter of DDP401
        trained = any(node.number in n.target.deps for n in program.of(Backward) if n.target is not None)
        return trained and node.through == "wrapper" and node.grad is not False
    if isinstance(node, Backward):
        return bool(forwards_behind(program, node))
    return isinstance(node, Step) and any(n.number < node.number and forwards_behind(program, n) for n in program.of(Backward))


def what_of(node: Node, near: Span | None = None) -> str:
    """In words, what the ranks do together at a node; with its file where that is another than the one of `near`."""
    elsewhere = near is not None and near.path != node.span.path
    place = node.place if elsewhere else f"line {node.span.line}"
    if isinstance(node, Collective):
        return f"the {node.op} of {place}"
    return {"forward": "the wrapped forward", "backward": "the backward", "step": "the optimizer step"}[node.kind] + f" of {place}"


def own_taint(guard: Guard) -> Taint:
    """Why ranks answer a condition differently by themselves; empty for handlers of exceptions and tests that all ranks pass."""
    taint = local_taint(guard.test)
    if ERROR in taint:
        return frozenset()
    if taint == {RANK} and guard.ranks() in ("all ranks", "some ranks"):
        parts = _is_set_by_rank(guard.test) or limits_by_rank(guard.test) or _is_of_some_ranks(guard)
        return taint if guard.ranks() == "some ranks" and parts else frozenset()
    return taint


def _is_of_some_ranks(guard: Guard) -> bool:
    """Whether some ranks of a job never pass, and what is not known decides for the others: `rank == 0 and best < 2`."""
    answers = [[guard.admits(world) for world in job] for job in worlds_by_size(guard.world_size)]
    return all(False in job and None in job for job in answers)


def _is_set_by_rank(test: Value) -> bool:
    """Whether a flag is one thing where some rank came by and another elsewhere: `stop = True` under a test of the rank."""
    if isinstance(test, Expr) and test.op == "not":
        return _is_set_by_rank(test.args[0])
    known = {bool(one.value) for one in options(test) if isinstance(one, Const) and one.default is None}
    return isinstance(test, Alt) and len(known) == 2


def left_out(program: Program, jump: Jump) -> Iterator[Node]:
    """What the ranks do together after the jump, and for a jump out of a loop in its other iterations; what is skipped first."""
    what = jump.what
    depth = len(jump.calls)
    if what in ("break", "continue"):
        around = jump.loops[-1:]
    elif what == "return":
        around = tuple(loop for loop in jump.loops if loop.span.path == jump.span.path and _contains(program, jump, loop.span.line))
    else:
        around = jump.loops
    before: list[Node] = []
    for node in program.of(Collective, Forward, Backward, Step):  # the kinds that `is_together` knows
        in_loop = any(loop in node.loops for loop in around)
        in_call = node.calls[:depth] == jump.calls and _in_function(program, node, jump)
        if not is_together(program, node) or _excluded(node, jump):
            continue
        if node.number > jump.number and (what == "exit" or in_loop or (what == "return" and in_call)):
            yield node
        elif node.number < jump.number and in_loop and what != "continue":
            before.append(node)
    # Of the other iterations, what the fewest conditions stand before: it comes in each of them.
    yield from sorted(before, key=lambda node: len(node.guards))


def _in_function(program: Program, node: Node, jump: Node) -> bool:
    """Whether a node, or the call that leads to it, stands in the function that the jump leaves.

    Calls alone do not say so: a function that nothing calls is read on its own, with no call before it, as the script is.
    """
    if len(node.calls) == len(jump.calls):
        return node.function == jump.function
    call = node.calls[len(jump.calls)]
    left = function_at(program, jump.span.path, jump.span.line)
    return call.path == jump.span.path and function_at(program, call.path, call.line) is left


def _contains(program: Program, jump: Node, line: int) -> bool:
    """Whether a loop of the jump's file stands in the jump's own function, by the nearest def above both."""
    own = function_at(program, jump.span.path, jump.span.line)
    return (0 if own is None else own.lineno) < line <= jump.span.line


def _excluded(node: Node, jump: Node) -> bool:
    """Whether a node is not reached by the ranks that do not jump: it stands in the jump's own arm."""
    arms = {(g.span, g.polarity) for g in jump.guards if g.via != "early-exit"}
    return node.number < jump.number and any((g.span, g.polarity) in arms and own_taint(g) for g in node.guards)
