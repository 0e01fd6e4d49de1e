"""Where one rank may fail, or go on after a failure, while the others do not know: what DDP204 reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddp_audit.findings import Related, Span
from ddp_audit.rule import guard_relations
from ddp_audit.tree.nodes import (
    Branch,
    CallItem,
    Caught,
    Clip,
    Collective,
    Guard,
    Item,
    Jump,
    LoopItem,
    Node,
    Program,
    ScalerCall,
    ScheduleStep,
    Spawn,
    Step,
    TryItem,
    Unscale,
    ZeroGrad,
)
from ddp_audit.tree.questions import anchor, code_within, every, first_of_each_place, is_kind, nodes_in, says, texts_in
from ddp_audit.tree.values import Const, Ext, Items, Unknown, Value
from ddp_audit_rules.collectives._raised import classes_of, raised_alone
from ddp_audit_rules.collectives._regions import is_together, left_out, what_of

_AFTER_BACKWARD = (Clip, Unscale, Step, ScheduleStep, ScalerCall, ZeroGrad)


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One place of the kind, in two sentences."""

    span: Span
    message: str
    explanation: str
    related: Sequence[Related]
    node: Node | None = None  # whose conditions count
    confidence: str = "likely"


@dataclass(frozen=True, slots=True, eq=False)
class _Try:
    item: TryItem
    loops: int  # loops around the statement
    body: tuple[Node, ...]
    together: Node | None  # the first thing in its body that the ranks do together


def failures(program: Program) -> Iterator[Failure]:
    """Every such place."""
    tries = []
    for item, loops in _tries(program.tree, 0):
        body = tuple(nodes_in(item.body))
        tries.append(_Try(item, loops, body, next((n for n in body if is_together(program, n)), None)))
    for found in tries:
        yield from _swallowed(program, found)
        yield from _in_handlers(program, found)
        yield from _in_finally(program, found)
    yield from _skipped(program, tries)


def _tries(items: Sequence[Item], loops: int) -> Iterator[tuple[TryItem, int]]:
    for item in items:
        match item:
            case TryItem():
                yield item, loops
                for block in (item.body, *item.handlers, item.final):
                    yield from _tries(block, loops)
            case Branch():
                yield from _tries([*item.then, *item.orelse], loops)
            case LoopItem():
                yield from _tries(item.body, loops + 1)
            case CallItem():
                yield from _tries(item.body, loops)


def _swallowed(program: Program, found: _Try) -> Iterator[Failure]:
    """A handler after which this rank goes on, around something that the ranks do together."""
    last = max((n.number for n in found.body), default=-1)
    for caught, block in zip(found.item.caught, found.item.handlers, strict=False):
        if _comes_on_all(caught) or (caught.left in ("raise", "exit") and not _goes_on(caught, block)):
            continue
        region, sure = found.together, True
        if region is None and _is_of_memory(program, caught) and _trains(program, found.item, caught.span):
            inside = {n.number for n in found.body}
            region, sure = next((n for n in program.nodes if n.number not in inside and is_together(program, n)), None), False
        if region is None or any(isinstance(n, Spawn) for n in found.body) or _is_probe(found.body):
            continue
        if isinstance(region, Step) and _fails_alike(program, found, caught.span):
            continue
        handled = {n.number for n in nodes_in(block)}
        after = any(n.number > last and n.number not in handled and is_together(program, n) for n in program.nodes)
        if found.loops - (caught.left == "break") <= 0 and not after:
            continue
        what = what_of(region, caught.span) if sure else "the training step that it is around"
        alone = raised_alone(program, found.item, caught, region) if sure else None
        yield Failure(
            caught.span,
            f"A rank that fails here alone goes on after `{caught.text}`, while the others wait for it in {what}.",
            "An exception that one rank meets (out of memory, a bad sample, a file) leaves the ranks at other collectives: they "
            "wait, or pair others one batch late. One in backward leaves the reducer unfinished, and the next forward raises. It "
            "does no harm where the same exception comes on all ranks.",
            [_others(region), *([] if alone is None else _decided(*alone))],
            region,
            "likely" if sure and (alone is not None or _comes_on_one(caught)) else "possible",
        )


def _is_probe(body: Sequence[Node]) -> bool:
    """Whether a block does nothing but collectives on tensors of constants: it asks what the backend can do, alike on all ranks."""
    sent = [n.target for n in body if isinstance(n, Collective)]
    rest = {n.kind for n in body} - {"collective", "current-device", "device", "wait"}
    return bool(sent) and not rest and all(isinstance(value, Unknown) and _is_fresh(value) for value in sent)


def _fails_alike(program: Program, found: _Try, handler: Span) -> bool:
    """Whether a block does nothing but clip and step on gradients that DDP has averaged, which fails on all ranks or on none."""
    nodes = [n for n in found.body if isinstance(n, _AFTER_BACKWARD)]
    spans = {n.span for n in nodes}
    source = program.files.get(found.item.span.path)
    if len(nodes) < len(found.body) or source is None:
        return False
    code = list(code_within(program, found.item.span.path, found.item.span.line, handler.line - 1))
    known = [call for call in code if isinstance(call, ast.Call) and source.span(call) in spans]
    inside = {id(part) for call in known for part in ast.walk(call)}
    return bool(known) and all(id(call) in inside for call in code if isinstance(call, ast.Call))


def _is_fresh(value: Value) -> bool:
    """Whether a tensor is made of constants: `torch.zeros([4]).cuda()`."""
    if isinstance(value, Const):
        return True
    if isinstance(value, Items):
        return all(map(_is_fresh, value.items))
    if isinstance(value, Unknown) and value.by is not None and not value.taint and not value.deps:
        return all(_is_fresh(arg) for arg in value.by.args if not isinstance(arg, Ext))
    return False


def _others(region: Node) -> Related:
    return Related(region.span.path, region.span.line, region.kind, f"what the other ranks do: {region.text}")


def _decided(jump: Jump, guard: Guard) -> list[Related]:
    return [
        Related(jump.span.path, jump.span.line, "raise", f"raised by each rank's own decision: {jump.text}"),
        Related(guard.span.path, guard.span.line, "guard", guard.describe()),
    ]


def _goes_on(caught: Caught, block: Sequence[Item]) -> bool:
    """Whether some way through a handler that otherwise raises leaves by another jump."""
    for node in nodes_in(block):
        if isinstance(node, Jump) and node.what in ("continue", "break", "return"):
            guard = next((g for g in node.guards if g.via == "except" and g.span == caught.span), None)
            if guard is not None and guard.depth == len(node.calls):
                return True
    return False


def _is_of_memory(program: Program, caught: Caught) -> bool:
    said = texts_in(code_within(program, caught.span.path, caught.span.line, caught.span.end_line))
    return any(says(text, "out-of-memory") for text in (caught.text, *said))


def _comes_on_all(caught: Caught) -> bool:
    """Whether a handler is for what the program's shape raises, on all ranks alike, and not for what one rank meets."""
    return all(is_kind(kind, "on-all-ranks") for kind in classes_of(caught)) if caught.of is not None else False


def _comes_on_one(caught: Caught) -> bool:
    """Whether a handler is for what may well come on one rank alone; of a class of a library or the project that is not known."""
    return caught.of is None or any(is_kind(kind, "on-one-rank") for kind in classes_of(caught))


def _trains(program: Program, item: TryItem, handler: Span) -> bool:
    code = code_within(program, item.span.path, item.span.line, handler.line - 1)
    return any(
        isinstance(node, ast.Call) and any(says(text, "training-step") for text in texts_in(every(node.func))) for node in code
    )


def _in_handlers(program: Program, found: _Try) -> Iterator[Failure]:
    """A collective in a handler: the rank that fails alone is alone in it."""
    tried = {n.op for n in found.body if isinstance(n, Collective)}
    for caught, block in zip(found.item.caught, found.item.handlers, strict=False):
        for node in nodes_in(block):
            guard = next((g for g in node.guards if g.span == caught.span and g.via == "except"), None)
            if not isinstance(node, Collective) or guard is None or _comes_on_all(caught) or tried:
                continue
            yield Failure(
                anchor(node, guard),
                f"A rank that fails alone runs the {node.op} of its handler (`{caught.text}`) without the others.",
                "The ranks that did not fail are at the next collective of the normal way. The failing rank waits for them here: "
                "its exception is not seen until the timeout, or the two calls pair. It does no harm where all ranks fail alike.",
                [Related(caught.span.path, caught.span.line, "handler", caught.text), *guard_relations(node)],
                node,
            )
            break


def _in_finally(program: Program, found: _Try) -> Iterator[Failure]:
    """A collective in finally: a rank that fails in the body comes to it while the others are still in the body."""
    if found.together is None or _begins_together(program, found.body):
        return
    outer = {g.span for g in found.together.guards}
    for node in nodes_in(found.item.final):
        own = [g for g in node.guards if g.span not in outer and g.taint]
        if (
            isinstance(node, Collective)
            and is_together(program, node)
            and not own
            and len(node.guards) <= len(found.together.guards)
        ):
            elsewhere = node.span.path != found.item.span.path and node.calls
            yield Failure(
                node.calls[-1] if elsewhere else node.span,
                f"A rank that raises in the try block enters this {node.op} while the others are in "
                f"{what_of(found.together, found.item.span)}.",
                "The failing rank waits here for ranks that wait for it, so that neither its exception is seen nor its "
                "process ends before the timeout; without the collective the launcher would end the others at once. It does no "
                "harm where no rank fails alone.",
                [_others(found.together)],
                node,
            )
            return


def _begins_together(program: Program, body: Sequence[Node]) -> bool:
    """Whether all that the ranks do together in a block stands at its beginning, where no rank can have failed yet.

    A rank that fails after it comes to the finally together with the others.
    """
    last = max(i for i, n in enumerate(body) if is_together(program, n))
    return all(isinstance(n, Collective) and not n.rank_guards for n in body[: last + 1])


def _skipped(program: Program, tries: Sequence[_Try]) -> Iterator[Failure]:
    """A jump out of a handler, over what the ranks do together, where the body itself is this rank's own work."""
    alone = [found for found in tries if found.together is None]
    own = {c.span: c for found in alone for c in found.item.caught if not _fails_alike(program, found, c.span)}
    for jump in first_of_each_place(program.of(Jump)):
        if jump.what not in ("continue", "break", "return"):
            continue
        guard = next((g for g in reversed(jump.guards) if g.via == "except" and g.span in own), None)
        if guard is None or _comes_on_all(own[guard.span]):
            continue
        inside = guard.loops == len(jump.loops) and guard.depth == len(jump.calls)
        region = next((n for n in left_out(program, jump) if n.number > jump.number), None) if inside else None
        if region is None or (jump.what == "return" and not jump.calls):
            continue
        yield Failure(
            jump.span,
            f"A rank whose own work fails takes this {jump.what} (`{guard.text}`) and skips "
            f"{what_of(region, jump.span)}, where the others wait for it.",
            "What fails on one rank (a bad sample, a file that is not there yet) need not fail on the others, and then their "
            "collectives pair one batch late, or wait. It does no harm where all ranks do the same work on the same data.",
            [
                Related(guard.span.path, guard.span.line, "handler", guard.text),
                _others(region),
            ],
            jump,
        )
