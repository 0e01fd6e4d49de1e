"""Exceptions that a program raises by a decision of one rank, out of what the ranks do together, and that a handler catches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_audit.tree.nodes import Branch, CallItem, Caught, Guard, Item, Jump, LoopItem, Node, Program, TryItem
from ddp_audit.tree.questions import local_taint, nodes_in
from ddp_audit.tree.values import ClassInfo, Ext, Items, Obj, Unknown, Value, options
from ddp_audit_rules.collectives._regions import is_together, own_taint
from ddp_audit_rules.collectives._skips import Skip


def raised_alone(program: Program, item: TryItem, caught: Caught, region: Node) -> tuple[Jump, Guard] | None:
    """A `raise` that the handler catches, decided by what really differs between ranks, with what they do together left out.

    `region` is the first of what the ranks do together in the body: a condition around that as well parts no ranks here.
    """
    together = [node for node in nodes_in(item.body) if is_together(program, node)]
    around = {(guard.span, guard.polarity) for guard in region.guards}
    for jump in _escaping(item.body):
        if not _catches(caught, jump.raised):
            continue
        guard = next(
            (g for g in reversed(jump.guards) if g.via == "if" and (g.span, g.polarity) not in around and own_taint(g)), None
        )
        if guard is None or Skip(jump, guard, local_taint(guard.test), region).confidence != "likely":
            continue
        outside = _loops_around(item, jump)
        if any(n.number > jump.number or any(loop in n.loops for loop in jump.loops[outside:]) for n in together):
            return jump, guard
    return None


def _loops_around(item: TryItem, jump: Jump) -> int:
    """How many of the loops around a jump stand outside of the try statement too."""
    inside = {id(loop) for loop in _loops(item.body)}
    return next((i for i, loop in enumerate(jump.loops) if id(loop) in inside), len(jump.loops))


def _loops(items: Sequence[Item]) -> Iterator[object]:
    for item in items:
        if isinstance(item, LoopItem):
            yield item.loop
        for block in _blocks(item):
            yield from _loops(block)


def _blocks(item: Item) -> tuple[Sequence[Item], ...]:
    match item:
        case Branch():
            return item.then, item.orelse
        case LoopItem() | CallItem():
            return (item.body,)
        case TryItem():
            return item.body, *item.handlers, item.final
    return ()


def _escaping(items: Sequence[Item]) -> Iterator[Jump]:
    """Each `raise` in a block that no handler inside of it catches."""
    for item in items:
        if isinstance(item, Jump) and item.what == "raise":
            yield item
        elif isinstance(item, TryItem):
            for jump in _escaping(item.body):
                if not any(caught.of is None or _catches(caught, jump.raised) or _is_broad(caught) for caught in item.caught):
                    yield jump
            for later in (*item.handlers, item.final):
                yield from _escaping(later)
        else:
            for block in _blocks(item):
                yield from _escaping(block)


def _is_broad(caught: Caught) -> bool:
    """Whether a handler's classes are those of Python or not known, so that the project's exceptions may descend from them."""
    return not all(isinstance(kind, Obj) for kind in classes_of(caught))


def _catches(caught: Caught, raised: Value | None) -> bool:
    """Whether a handler names the class of an exception, or one that it descends from."""
    if raised is None or caught.of is None:
        return False
    kinds = list(classes_of(caught))
    for exception in options(raised):
        line = exception.cls.lineage() if isinstance(exception, Obj) and isinstance(exception.cls, ClassInfo) else []
        if any(isinstance(kind, Obj) and kind.cls in line for kind in kinds):
            return True
        name = _library_name(exception)
        if name and any(isinstance(kind, Ext) and kind.name == name for kind in kinds):
            return True
    return False


def classes_of(caught: Caught) -> Iterator[Value]:
    """The classes of exceptions that a handler names; none where it is for all of them."""
    for kind in () if caught.of is None else options(caught.of):
        if isinstance(kind, Items):
            for item in kind.items:
                yield from options(item)
        else:
            yield kind


def _library_name(exception: Value) -> str:
    if isinstance(exception, Ext):
        return exception.name
    return exception.by.name if isinstance(exception, Unknown) and exception.by is not None else ""
