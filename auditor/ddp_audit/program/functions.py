"""Project functions inlined: parameters bound, decorators applied, the body lowered, returned values joined."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program import contexts, decorators, exits, names
from ddp_audit.program.code import every, names_in
from ddp_audit.program.loading import loaders_in
from ddp_audit.program.meaning import says
from ddp_audit.program.model import CallItem, Guard
from ddp_audit.program.nodes import Traffic
from ddp_audit.program.operations import operation
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo, merge_value
from ddp_audit.program.stub_lookup import stub_of
from ddp_audit.program.values import (
    RANK,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    join_deps,
    join_taint,
    leaf,
    named,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_GENERATOR_CONTEXTS = ("contextlib.contextmanager", "contextlib.asynccontextmanager")
_MEMOISED = ("functools.cache", "functools.lru_cache")
_CONSTRUCTORS = ("__init__", "__post_init__")
_MAX_DEPTH = 14  # calls of project functions within one another
_MAX_CALLS_OF_ONE = 40


@dataclass(slots=True)
class QuietCall:
    """What earlier calls of a function showed: one that had no effect and said nothing new need not be followed forever."""

    calls: int = 0
    effects: bool = False
    telling: bool = False  # a result said more than its arguments' taint
    result: Value | None = None
    given: list[tuple[Value, ...]] = field(default_factory=list)  # arguments of a memoised function, where all ranks gave them

    def remembers(self, values: Sequence[Value]) -> bool:
        """Whether a memoised function may have been called with these arguments before, on all ranks: then it does not run."""
        return any(len(before) == len(values) and not any(map(_are_unequal, before, values)) for before in self.given)

    def note(self, result: Value, effects: bool, unknown: Value) -> None:
        """Adds one followed call."""
        self.calls += 1
        self.effects |= effects
        self.telling |= not isinstance(result, (Unknown, Const)) or not result.taint <= unknown.taint
        self.result = result

    def stands_for(self, values: Sequence[Value], receiver: Obj | None) -> bool:
        """Whether one more call need not be followed: three calls had no effect, and it has no arguments or said nothing new."""
        if self.calls < 3 or self.effects:
            return False
        if not values and receiver is None:
            return True
        return not self.telling and not any(isinstance(v, (Obj, Func)) for v in values)


def call_function(
    lw: Lowering,
    info: FunctionInfo,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    node: ast.AST,
    receiver: Obj | None = None,
    unknown_arguments: bool = False,
    itself: Value | None = None,
) -> Value:
    """Inlines a project function. Recursion and too deep a nesting give an unknown value tainted by the arguments.

    `itself` is what a method's `self` is, where that may be more than the receiver: one of two objects by the rank.
    """
    values = [*args, *kwargs.values()]
    unknown = Unknown(taint=join_taint(*values), deps=join_deps(*values), by=Made("?", tuple(values)))
    if info.node is decorators.PROBE:
        if lw.probed is not None:
            lw.probed.append(list(lw.guards))
        return unknown
    if id(info.node) in lw.active:
        return unknown
    known = lw.quiet_calls.setdefault(id(info.node), QuietCall())
    if lw.observer is None and known.stands_for(values, receiver):
        return known.result if known.result is not None and not values else unknown
    lw.call_counts[id(info.node)] = lw.call_counts.get(id(info.node), 0) + 1
    if len(lw.active) >= _MAX_DEPTH or lw.call_counts[id(info.node)] > _MAX_CALLS_OF_ONE:
        deep = f"calls nested deeper than {_MAX_DEPTH}" if len(lw.active) >= _MAX_DEPTH else ""
        sends = id(info.node) in lw.communicating or id(info.node) not in lw.inlined  # or may send
        lw.limit(deep or f"{info.name} was called from too many places", unread=sends)
        # What the calls before this one depended on, it depends on too: a test of the rank stays one.
        return unknown if known.result is None else replace(unknown, taint=unknown.taint | known.result.taint)
    if _is_memoised(lw, info):
        if known.remembers(values):
            return known.result if known.result is not None else unknown
        if not any(guard.taint for guard in lw.guards):
            known.given.append(tuple(values))
    before, first = lw.effects, len(lw.program.nodes)
    lw.steps += 1
    lw.inlined.add(id(info.node))
    lw.frame_count += 1
    frame = Frame(
        id=("call", lw.frame_count), source=info.frame.source,
        name=info.name if info.owner is None else f"{info.owner.name}.{info.name}",
        parent=info.frame, module=info.frame.top, receiver=receiver, owner=info.owner, guard_base=len(lw.guards),
        no_sync_base=len(lw.no_sync), loop_base=len(lw.loops),
    )  # fmt: skip
    bound = bind(lw, info, args, kwargs, receiver if itself is None else itself, unknown_arguments)
    saved = (lw.here, lw.grad, lw.block, lw.loops, lw.constructor_base)
    guard_depth = len(lw.guards)
    call_site = lw.span(node) if not unknown_arguments else None
    _apply_decorators(lw, info, node)
    if info.name == "__init__" and receiver is not None and receiver.kind == "module" and lw.constructor_base is None:
        lw.constructor_base = guard_depth
    constructs = receiver is not None and info.name in _CONSTRUCTORS and receiver.key not in lw.constructing
    if constructs and receiver is not None:
        lw.constructing[receiver.key] = guard_depth
    lw.here, lw.block = frame, []
    lw.state.update(((frame.id, key), value) for key, value in bound.items())
    lw.active.append(id(info.node))
    if call_site is not None:
        lw.calls.append(call_site)
    if isinstance(info.node, ast.Lambda):
        frame.returns.append(((), lw.eval(info.node.body)))
    else:
        with exits.collected(lw, loop=False) as ways:
            lw.run_block(info.node.body)
        exits.rejoin(lw, ways, "return", frame.id)
    if call_site is not None:
        lw.calls.pop()
    lw.active.pop()
    if any(isinstance(made, Traffic) for made in lw.program.nodes[first:]):
        lw.communicating.add(id(info.node))
    body = lw.block
    lw.here, lw.grad, lw.block, lw.loops, lw.constructor_base = saved
    if constructs and receiver is not None:
        del lw.constructing[receiver.key]
    del lw.guards[guard_depth:]
    if not lw.muted and body:
        lw.block.append(CallItem(call_site or lw.span(node), frame.name, body))
    changed = {name: lw.state.get((frame.id, name)) for name in bound if name in frame.grown - frame.rebound}
    _drop(lw, frame)
    if changed and isinstance(node, ast.Call):
        _give_back(lw, _places(info, node, receiver), bound, changed)
    lw.handed = (node, frame.handed)
    generated = _generated(lw, info, frame, saved[1], node) if frame.yields else None
    if frame.yields and generated is None and RANK in unknown.taint and receiver is None and not _evens_out(info):
        generated = Unknown(taint=frozenset({RANK}), text=lw.text(node), by=Made("generator", tuple(values)))
    result = _believed(info, _returned(frame)) if generated is None else generated
    known.note(result, lw.effects != before, unknown)
    return result


def keep_written(lw: Lowering, place: ast.expr, grown: Value) -> None:
    """Gives what was changed in place to the variable that holds it, which may be one of a function around, or of the caller.

    A list that grew, or a tensor that a collective wrote.
    """
    if not isinstance(place, ast.Name):
        lw.assign(place, grown)
        return
    holder: Frame | None = lw.here
    while holder is not None and lw.state.get((holder.id, place.id)) is None:
        holder = holder.parent
    if holder is None or holder is lw.here:
        lw.assign_name(place.id, named(grown, place.id))
        lw.here.grown.add(place.id)
    else:
        lw.effects += 1
        lw.state[holder.id, place.id] = named(grown, place.id)


def _places(info: FunctionInfo, node: ast.Call, receiver: Obj | None) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a function with what a call hands over for each, as it is written."""
    spec = info.node.args
    parameters = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    yield from zip(parameters[receiver is not None and info.owner is not None :], node.args, strict=False)
    yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg is not None)


def _give_back(
    lw: Lowering, places: Iterator[tuple[str, ast.expr]], given: Mapping[str, Value], changed: Mapping[str, Value | None]
) -> None:
    """What a function changed in place, as it was given and as it is, is changed for its caller too."""
    for name, place in places:
        now, held = changed.get(name), _held(lw, place)
        if now is not None and held is not None and (held is given[name] or named(held, given[name].text) == given[name]):
            lw.effects += 1
            keep_written(lw, place, now)


def _held(lw: Lowering, place: ast.expr) -> Value | None:
    """What a variable, or an attribute of what one holds, has in it."""
    match place:
        case ast.Name(id=name):
            frame: Frame | None = lw.here
            while frame is not None and (held := lw.state.get((frame.id, name))) is None:
                frame = frame.parent
            return held
        case ast.Attribute(value=ast.Name() as owner, attr=attr):
            target = the_object(_held(lw, owner))
            return None if target is None else lw.state.get((target.key, attr))
    return None


def _evens_out(info: FunctionInfo) -> bool:
    """Whether a generator over a rank's share shows signs that it evens the ranks out, never ends, or is not about that share."""
    for node in every(info.node):
        match node:
            case ast.While(test=ast.Constant(value=endless)) if endless:
                return True
            case ast.BinOp(op=ast.FloorDiv()):
                return True
            case ast.Name(id="min" | "contextmanager") | ast.Attribute(attr="contextmanager"):
                return True
    return any(says(name, "evens-out", "limits-passes") or is_kind(name, "sums-up") for name in names_in(info.node))


def _believed(info: FunctionInfo, result: Value) -> Value:
    """The local rank where a helper with its name was followed to the global one.

    Such helpers ask a group of the node's processes, and give the global rank only where that group was never made.
    """
    said = names.by_name(info.name.removeprefix("get_"))
    wrong = isinstance(said, Expr) and said.op == "local_rank" and isinstance(result, Expr) and result.op == "rank"
    return said if wrong and said is not None else result


def _generated(lw: Lowering, info: FunctionInfo, frame: Frame, grad: bool | None, node: ast.AST) -> Value | None:
    """What a call of a generator function gives, where that is more than its yielded value.

    Under `contextlib.contextmanager` it is a context: no_sync() or a gradient mode. A generator that yields inside a loop over
    a loader is that loader under another name.
    """
    if not any(isinstance(d, Ext) and d.name in _GENERATOR_CONTEXTS for d in info.decorators):
        for made in frame.yields:
            loaders = loaders_in(made.loop.over) if made.loop is not None else []
            if loaders:
                return Obj(key=("generator", lw.span(node)), kind="generator", info=(loaders[0], made.value), text=info.name)
        return None
    blocks = [(made, block) for made in frame.yields for block in made.no_sync]
    if blocks:
        made, block = blocks[0]
        test, polarity = block.test, block.polarity
        if len(frame.yields) > 1 and made.guards:
            test, polarity = made.guards[-1].test, made.guards[-1].polarity
        return Obj(key=("no-sync", block.span), kind="no-sync", made=block.span, info=(block.wrapper, test, polarity))
    modes = {made.grad for made in frame.yields}
    if len(modes) == 1 and modes != {grad}:
        effect = "no_grad" if modes == {False} else "enable_grad"
        return Obj(key=("grad", effect), kind="context", info=effect)
    return None


def _decorators_of(lw: Lowering, info: FunctionInfo) -> Sequence[Value]:
    if info.owner is not None and not info.decorators and not isinstance(info.node, ast.Lambda):
        return tuple(run_decorators(lw, info.node, info.frame))
    return info.decorators


def _is_memoised(lw: Lowering, info: FunctionInfo) -> bool:
    """Whether a function keeps what it returned and does not run again for equal arguments."""
    if isinstance(info.node, ast.Lambda) or not info.node.decorator_list:
        return False
    made = (
        d.name if isinstance(d, Ext) else d.by.name if isinstance(d, Unknown) and d.by else "" for d in _decorators_of(lw, info)
    )
    return any(name in _MEMOISED for name in made)


def _are_unequal(one: Value, other: Value) -> bool:
    """Whether two values are surely not equal."""
    if isinstance(one, Const) and isinstance(other, Const):
        return bool(one.value != other.value)
    if isinstance(one, Items) and isinstance(other, Items) and not (one.many or other.many or one.keys or other.keys):
        return len(one.items) != len(other.items) or any(map(_are_unequal, one.items, other.items))
    return False


def _apply_decorators(lw: Lowering, info: FunctionInfo, node: ast.AST) -> None:
    for decorator in _decorators_of(lw, info):
        effect = contexts.context_effect(decorator)
        if effect in ("no_grad", "enable_grad"):
            lw.grad = effect == "enable_grad"
        text = decorator.text or (decorator.name if isinstance(decorator, Ext) else "")
        name = text.split(".")[-1]
        stub = stub_of(lw, decorator) if lw.hints.stubs else None
        is_main = "main-process" in (lw.hints.names.get(name), lw.hints.names.get(text)) or (stub is not None and stub.main_process)
        if is_main or says(name, "runs-on-main"):
            test = operation("==", leaf("rank"), Const(value=0), text=text)
            name, size = f"@{text.split('.')[-1]}", lw.program.world_size
            lw.guards.append(Guard(test, True, lw.span(node), name, "decorator", False, size, len(lw.calls), len(lw.loops)))
        else:
            lw.guards.extend(decorators.guards_of(lw, decorator, node))


def run_decorators(lw: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame | None = None) -> Iterator[Value]:
    """The decorators of a definition as values."""
    saved = lw.here
    if frame is not None:
        lw.here = frame
    for decorator in node.decorator_list:
        value = lw.eval(decorator)
        yield value if isinstance(value, Obj) else replace(value, text=names.written(decorator).split("(")[0])
    lw.here = saved


def bind(
    lw: Lowering,
    info: FunctionInfo,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    receiver: Value | None,
    unknown_arguments: bool,
) -> dict[str, Value]:
    """Parameters by name. One that is not given is its default, or what its name says, or unknown."""
    spec = info.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    bound: dict[str, Value] = {}
    given = list(args)
    if receiver is not None and info.owner is not None and positional:
        given.insert(0, receiver)
    for parameter, value in zip(positional, given, strict=False):
        bound[parameter] = value
    defaults = dict(zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    for parameter in (*positional, *(a.arg for a in spec.kwonlyargs)):
        if parameter in bound:
            continue
        if parameter in kwargs:
            bound[parameter] = kwargs[parameter]
        elif unknown_arguments:
            said = leaf(f"parameter {parameter}") if decorators.supplies(info, parameter) else names.by_name(parameter)
            bound[parameter] = said or Unknown(text=parameter)
        elif "**" in kwargs:
            bound[parameter] = from_mapping(lw, kwargs["**"], parameter)
        elif parameter in defaults:
            saved, lw.here = lw.here, info.frame
            bound[parameter] = lw.eval(defaults[parameter])
            lw.here = saved
        else:
            bound[parameter] = names.by_name(parameter) or Unknown(text=parameter)
    known = {*positional, *(a.arg for a in spec.kwonlyargs)}
    if spec.vararg is not None:
        more = tuple(given[len(positional) :])
        spread = any(isinstance(one, Unknown) and one.by is not None and one.by.name == "*" for one in more)
        alone = spread and len(more) == 1
        bound[spec.vararg.arg] = Items(items=more, kind="tuple", taint=join_taint(*more), many=alone, filled=spread and not alone)
    if spec.kwarg is not None:
        rest = {k: v for k, v in kwargs.items() if k not in known and k != "**"}
        keys = tuple(Const(value=k) for k in rest)
        bound[spec.kwarg.arg] = Items(items=tuple(rest.values()), keys=keys, kind="dict", taint=join_taint(*rest.values()))
    return bound


def from_mapping(lw: Lowering, mapping: Value, key: str) -> Value:
    """The value of one key of `**vars(namespace)` or the like."""
    target = the_object(mapping)
    if target is not None:
        value = lw.state.get((target.key, key))
        if value is not None:
            return value
    return names.by_name(key) or Unknown(taint=mapping.taint, text=key)


def _drop(lw: Lowering, frame: Frame) -> None:
    """Forgets the variables of a call that has returned, unless a function or class made in it may still look at them."""
    for value in lw.state.of(frame.id).values():
        if isinstance(value, Func) and value.definition.frame is frame:
            return
        if isinstance(value, Obj) and isinstance(value.cls, ClassInfo) and value.cls.frame is frame:
            return
    if any(isinstance(v, Func) and v.definition.frame is frame for _, v in frame.returns):
        return
    lw.state.forget(frame.id)


def _returned(frame: Frame) -> Value:
    """The value of a call: the last returned one, with earlier ones under their conditions.

    What is only returned where an option is not its default is left out, as after an arm of an `if` that only such an option takes.
    """
    if not frame.returns:
        return Const(value=None)
    by_default = [way for way in frame.returns if not any(guard.against_default for guard in way[0])]
    returns = by_default or frame.returns
    result = returns[-1][1]
    for guards, value in reversed(returns[:-1]):
        if value == result:
            continue
        test: Value = Unknown()
        if guards:
            last = guards[-1]
            test = last.test if last.polarity else operation("not", last.test)
        result = merge_value(test, value, result)
    return result
