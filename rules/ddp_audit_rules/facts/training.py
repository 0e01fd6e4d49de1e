"""Who trains what: the optimizers that work on a wrapper, passes after a change, gradients that the program reduces itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ddp_audit.compare.faults import GRADIENTS_NOT_REDUCED, PARAMETERS_DIFFER
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, EXCEPTION, STEP
from ddp_audit.findings import Related
from ddp_audit.tree.nodes import Backward, Collective, Node, OptimizerMade, Program, Step, UnfollowedCall, Wrap, ZeroGrad
from ddp_audit.tree.questions import forwards_behind, module_of, owners_of, says, unwrapped
from ddp_audit.tree.values import Const, Key, Obj, Value, options
from ddp_audit_rules.facts.evidence import has_fault

N = TypeVar("N", bound=Node)


def wrapped_keys(program: Program, wrapper: Obj) -> set[Key]:
    """The modules inside a wrapper, with the wrapper itself."""
    module = unwrapped(wrapper)
    return {wrapper.key} | (program.modules.inside(module.key) if module is not None else set())


def works_on(program: Program, optimizer: Obj | None, wrapper: Obj) -> bool | None:
    """Whether an optimizer has parameters of a wrapper; None where that is not known."""
    if optimizer is None or optimizer.kind not in ("optimizer", "scaler"):
        return None
    inside = [one for one in _held(optimizer) if isinstance(one, Obj) and one.kind == "optimizer" and one != optimizer]
    if inside:  # an optimizer around another, or around one of several
        answers = [works_on(program, one, wrapper) for one in inside]
        return True if True in answers else None if None in answers else False
    owners, complete = owners_of(optimizer.info)
    keys = wrapped_keys(program, wrapper)
    if any(owner.module.key in keys or wrapper.key in program.modules.inside(owner.module.key) for owner in owners):
        return True
    if complete and owners:
        return False
    return True if len({n.object.key for n in program.of(OptimizerMade) if n.object is not None}) == 1 else None


def _held(optimizer: Obj) -> Sequence[Value]:
    return list(options(optimizer.info)) if isinstance(optimizer.info, Value) else []


def after(program: Program, node: Node, *kinds: type[N]) -> Iterator[N]:
    """The nodes of some kinds that run after a node, in order: those behind it, then those before it in a loop around it."""
    yield from (n for n in program.of(*kinds) if n.number > node.number)
    yield from (n for n in program.of(*kinds) if n.number < node.number and shares_loop(n, node))


def shares_loop(one: Node, other: Node) -> bool:
    """Whether two nodes stand in one loop, so that each comes after the other."""
    return bool(one.loops and other.loops and one.loops[0] is other.loops[0])


def excludes(one: Node, other: Node) -> bool:
    """Whether two nodes stand in different arms of one condition."""
    mine = {(g.span, g.text, g.polarity) for g in one.guards}  # the parts of one condition stand at one place
    return any((g.span, g.text, not g.polarity) in mine for g in other.guards)


def reaches_step(program: Program, backward: Node, wrapper: Obj) -> bool | None:
    """Whether an optimizer of the wrapper steps with what a backward left, before it is zeroed; None where that is not known."""
    unsure = False
    # Zeroed under conditions that the backward does not stand under; of optimizers that are not known, for steps of such.
    zeroed: list[tuple[ZeroGrad, bool | None]] = []
    for node in after(program, backward, Step, ZeroGrad):
        if excludes(node, backward):
            continue
        mine = works_on(program, node.object, wrapper)
        if node.object is not None and node.object.kind in ("ddp", "module"):
            mine = node.object.key in (wrapper.key, getattr(wrapper.info, "key", None))
        if any(mine == of_zero and _comes_before(zero, node) for zero, of_zero in zeroed):
            continue
        if mine and isinstance(node, Step):
            return True
        if mine and isinstance(node, ZeroGrad) and all(any(g is own for own in backward.guards) for g in node.guards):
            return None if unsure else False
        if mine is not False and isinstance(node, ZeroGrad):
            zeroed.append((node, mine))
        unsure = unsure or (mine is None and isinstance(node, Step))
    return None if unsure or not program.has(Step) else False


def is_only_looked_at(program: Program, backward: Node, wrapper: Obj) -> bool:
    """Whether the optimizer of a wrapper never steps with what a backward left, though it steps elsewhere."""
    known = any(works_on(program, step.object, wrapper) is not False for step in program.of(Step))
    return known and reaches_step(program, backward, wrapper) is False


def _comes_before(zero: Node, node: Node) -> bool:
    """Whether a node is only reached where something before it was: under its conditions, in its loops."""
    return all(any(g is own for own in node.guards) for g in zero.guards) and node.loops[: len(zero.loops)] == zero.loops


def trained_after(program: Program, wrapper: Obj, node: Node) -> Backward | None:
    """The first backward through a wrapper that runs after a node."""
    for backward in after(program, node, Backward):
        if any(f.object is not None and f.object.key == wrapper.key for f in forwards_behind(program, backward, None)):
            return backward
    return None


def reduced_by_hand(program: Program, since: Node | None = None) -> bool:
    """Whether the program itself reduces gradients, after a node where one is given."""
    return any(
        says(node.called, "reduces") and (says(node, "gradient") or says(node.function, "gradient"))
        for node in program.of(Collective, UnfollowedCall)
        if since is None or node.number > since.number or shares_loop(node, since)
    )


def shared_again(program: Program, since: Node) -> bool:
    """Whether parameters are sent to all ranks after a node: by a collective on them, or by another wrap of the module."""
    return any(
        says(node.called, "shares-parameters")
        and any(says(text, "parameter") for text in (node.text, *(loop.text for loop in node.loops)))
        for node in program.of(Collective, UnfollowedCall)
        if node.number > since.number
    )


def wrap_place(wrapper: Obj) -> list[Related]:
    """The wrap as a related place."""
    return [] if wrapper.made is None else [Related(wrapper.made.path, wrapper.made.line, "wrap", "the DDP wrapper")]


def is_set(wrap: Wrap | None, option: str) -> bool | None:
    """Whether an option of a DDP constructor is on; None where that is not known."""
    if wrap is None or ("**" in wrap.args and option not in wrap.args):
        return None
    value = wrap.args.get(option)
    if value is None:
        return False
    return bool(value.value) if isinstance(value, Const) and (value.default is None or not value.default.open) else None


def wrap_of(program: Program, wrapper: Obj) -> Wrap | None:
    """The constructor call of a wrapper."""
    return program.wraps().get(wrapper.key)


def wrap_behind(program: Program, node: Node) -> Wrap | None:
    """The constructor call of the wrapper that a node acts on."""
    return None if node.object is None else wrap_of(program, node.object)


def wrapped_by_then(program: Program, node: Node) -> tuple[Obj, Wrap] | None:
    """The wrapper around what a node acts on, with its constructor call; None where it is not wrapped before the node."""
    module = module_of(node.target)
    wrapper = None if module is None else module if module.kind == "ddp" else program.modules.wrapper_around(module.key)
    wrap = None if wrapper is None else wrap_of(program, wrapper)
    if wrapper is None or wrap is None or wrap.number > node.number or wrap.style != "ddp":
        return None
    return wrapper, wrap


# ---- what a recorded run shows


def replicas_drift(run: RecordedRun, places: Iterable[Related] = ()) -> str:
    """confirmed where ranks' parameters differ, a step used local gradients, or the reducer gave up; else not-observed.

    not-covered where the run came to none of the places (to no optimizer step, where none is named).
    """
    seen = [e for place in places for _, e in run.events_at(place.path, place.line)]
    steps = [e for _, e in run.all_events() if e.kind == STEP]
    if not (seen or steps):
        return "not-exercised"
    return "confirmed" if reducer_gave_up(run) or has_fault(run, GRADIENTS_NOT_REDUCED, PARAMETERS_DIFFER) else "not-observed"


def reducer_gave_up(run: RecordedRun) -> bool:
    """Whether a rank ended with the reducer's error about parameters that got no gradient."""
    texts = [str(e.detail.get("text", "")) for _, e in run.all_events() if e.kind == EXCEPTION]
    return any("finished reduction" in text or "ready only once" in text or "marked as ready twice" in text for text in texts)


def passes_at(run: RecordedRun, places: Iterable[Related]) -> list[int]:
    """The numbers of buckets that backward passes at some places reduced."""
    found = [e for place in places for _, e in run.events_at(place.path, place.line) if e.kind == BACKWARD]
    return [int(e.detail.get("buckets") or 0) for e in found]
