"""Between the making of a process group and its end: the calls and lines that a finding and its fix name."""

from __future__ import annotations

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Destroy, Forward, Init, Node, Program, Spawn, Step, Wrap
from ddp_audit.tree.questions import always_runs, calls_of, common_start


def written_destroys(program: Program) -> list[Span]:
    """Each line of the files read that calls destroy_process_group, whether it was reached or not."""
    return [call.whole_line for call in calls_of(program, "destroy_process_group")]


def end_beside_init(init: Node, destroy: Node) -> Span:
    """The destroy call, or the call of the helper that holds it, in the function that the process group was made in or above it."""
    return next((call for call in destroy.calls if call not in init.calls), destroy.span)


def init_in_entry(program: Program, init: Node) -> Span:
    """The call itself, or the call in the entry script that leads to it: that script is what lacks the other end."""
    if init.span.path == program.entry:
        return init.span
    return next((call for call in reversed(init.calls) if call.path == program.entry), init.span)


def init_line_in(init: Node, path: str) -> int:
    """The line in a file where the process group is made, or where the call that makes it stands."""
    if init.span.path == path:
        return init.span.line
    return next((call.line for call in reversed(init.calls) if call.path == path), init.span.line)


def init_beside_end(inits: list[Init], destroys: list[Destroy]) -> Span | None:
    """Where the group is made, in the function in which it is destroyed: the call itself or one that leads to it."""
    init, destroy = inits[0], destroys[0]
    if len({n.span for n in inits}) != 1 or len({n.span for n in destroys}) != 1:
        return None
    shared = common_start(init.calls, destroy.calls)
    return init.calls[shared] if shared < len(init.calls) else init.span


def added_end(program: Program, init: Node, path: str) -> str:
    """What a fix has to know that puts the work into `try:`: whether the group is always made, the lines of work and its call.

    Empty where the work does not begin in the file of the given path.
    """
    start = _start_of_work(program, init)
    if start is None or start.path != path:
        return ""
    how = "added" if always_runs(program, init) else "added-if-made"
    above = _caller_of_work(program, init, start)
    return f"{how} {start.line} {above.line if above is not None else 0}"


def _start_of_work(program: Program, init: Node) -> Span | None:
    """The call that makes the group or leads to it, in the innermost function that goes on to train; None without training."""
    work = [n for n in program.of(Wrap, Forward, Backward, Step) if n.number > init.number]
    if not work or sum(1 for n in program.of(Init)) != 1:
        return None
    shared = min(common_start(init.calls, node.calls) for node in work)
    return init.calls[shared] if shared < len(init.calls) else init.span


def _caller_of_work(program: Program, init: Node, start: Span) -> Span | None:
    """The call of the function in which the work begins, where this process makes it itself and it stands in the same file."""
    spawns = {node.span for node in program.of(Spawn)}
    level = init.calls.index(start) if start in init.calls else len(init.calls)
    above = init.calls[level - 1] if level else None
    return above if above is not None and above.path == start.path and above not in spawns else None
