"""What calls of Python's own library mean: builtins, itertools, functools, contextlib, os.environ, copy."""

from __future__ import annotations

import ast
import string
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge import functions
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program import class_questions, contexts, imports, iteration, lists, lookup, names, order
from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.functions import call_function, keep_written
from ddp_audit.program.nodes import EnvironmentSet, FloorDivision, IteratorMade
from ddp_audit.program.operations import bounded, operation
from ddp_audit.program.shown import show
from ddp_audit.program.state import ClassInfo, FunctionInfo, merge_value
from ddp_audit.program.truths import asked
from ddp_audit.program.uses import note_use
from ddp_audit.program.values import (
    RANK,
    SIGNAL,
    UNIFORM,
    Alt,
    Bound,
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
    the_object,
)
from ddp_audit.source.project_hints import has_name

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()


def _unary(op: str) -> Contract:
    def convert(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        quotient = args[0] if args else None
        if op == "int" and isinstance(quotient, Expr) and quotient.op == "/":  # rounds down as `//` does
            lw.emit(node, FloorDivision(left=quotient.args[0], right=quotient.args[1], name=""))
        if op == "str":
            show(lw, node, args)
        if not args:
            return Const(value=None)
        return operation(op, asked(lw, args[0], node) if op == "bool" else args[0], text=lw.text(node))

    return convert


for _name in ("int", "bool", "float", "str", "abs"):
    CONTRACTS.names[f"builtins.{_name}"] = _unary(_name)


def _of_all(op: str) -> Contract:
    """`any(..)` and `all(..)` of a display: its elements with `or` and `and`."""

    def convert(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = args[0] if len(args) == 1 else None
        text = lw.text(node)
        if not isinstance(found, Items) or found.keys is not None or found.many:
            return generic(args, kwargs, text, name=f"builtins.{'any' if op == 'or' else 'all'}")
        if not found.items:
            return Const(value=op == "and", text=text)
        return operation("bool", found.items[0], text=text) if len(found.items) == 1 else operation(op, *found.items, text=text)

    return convert


CONTRACTS.names["builtins.any"], CONTRACTS.names["builtins.all"] = _of_all("or"), _of_all("and")


@CONTRACTS.of("builtins.divmod")
def _divmod(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`divmod(a, b)`: `a // b` and `a % b`."""
    if len(args) != 2:
        return generic(args, kwargs, lw.text(node))
    lw.emit(node, FloorDivision(left=args[0], right=args[1], name=""))
    return Items(items=(operation("//", *args), operation("%", *args)), kind="tuple", taint=join_taint(*args))


def _is_integer(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`quotient.is_integer()`."""
    number = bound.receiver
    return operation("==", operation("int", number), number, text=lw.text(node)) if isinstance(number, (Const, Expr)) else None


CONTRACTS.methods["is_integer"] = _is_integer


@CONTRACTS.of("builtins.repr", "builtins.format")
def _text(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    show(lw, node, args[:1])
    return generic(args, kwargs, lw.text(node))


@CONTRACTS.of("builtins.globals")
def _globals(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`globals()`: what the running module holds, by name."""
    return imports.module_object(lw.here.top)


@CONTRACTS.of("importlib.import_module", "builtins.__import__")
def _import_module(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`importlib.import_module("package.module")`: a file of the project, or a library by its full name."""
    name = args[0].value if args and isinstance(args[0], Const) else None
    if not isinstance(name, str) or name.startswith("."):
        return generic(args, kwargs, lw.text(node))
    return imports.module_named(lw, name)


@CONTRACTS.of("builtins.len")
def _len(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0] if args else Unknown()
    if isinstance(value, Alt) and value.choice is not None:
        return merge_value(value.choice, *(_len(lw, node, [option], {}) for option in value.options))
    if isinstance(value, Items) and not value.many and not value.filled:
        return Const(value=len(value.items))
    if isinstance(value, Items) and value.filled and isinstance(value.count, Const):
        return value.count
    own = _own_length(lw, node, value)
    taint = lists.taint_of_length(value) | (UNIFORM if own is None else own.taint)
    return Unknown(text=lw.text(node), taint=taint, by=Made("builtins.len", (value,)))


def _own_length(lw: Lowering, node: ast.Call, value: Value) -> Value | None:
    """What the `__len__` of a plain object of the project gives; None where it has none."""
    target = the_object(value, "instance")
    found = target.cls.find("__len__") if target is not None and isinstance(target.cls, ClassInfo) else None
    if found is None:
        return None
    holder, method = found
    return call_function(lw, FunctionInfo("__len__", method, holder.frame, holder), [], {}, node, receiver=target)


@CONTRACTS.of("builtins.min", "builtins.max")
def _extreme(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = lw.calling.rpartition(".")[2]
    return operation(name, *args, text=lw.text(node)) if len(args) == 2 else generic(args, kwargs, lw.text(node))


@CONTRACTS.of("builtins.range", "tqdm.trange", "tqdm.auto.trange")
def _range(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    bounds = [Const(value=0), *args] if len(args) == 1 else args
    missing = (Unknown(text=lw.text(node)), Unknown(text=lw.text(node)), Const(value=1))
    start, stop, step = (*bounds, *missing[len(bounds) :])[:3]
    count: Value = Unknown(text=lw.text(node), taint=join_taint(*args), by=Made("builtins.range", tuple(args)))
    if isinstance(step, Const) and step.value == 1:
        count = stop if isinstance(start, Const) and start.value == 0 else operation("-", stop, start, text=lw.text(node))
    key, taint = ("range", lw.span(node)), join_taint(*args)
    return Obj(key=key, kind="range", cls=(start, step), info=count, taint=taint, text=lw.text(node))


@CONTRACTS.of("builtins.enumerate")
def _enumerate(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    inner = args[0] if args else Unknown()
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(value=0))
    key, taint = ("enumerate", lw.span(node)), inner.taint | start.taint
    return bounded(Obj(key=key, kind="enumerate", cls=start, info=inner, taint=taint, text=lw.text(node)))


@CONTRACTS.of("builtins.zip", "itertools.zip_longest")
def _zip(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return bounded(Obj(key=("zip", lw.span(node)), kind="zip", info=list(args), taint=join_taint(*args), text=lw.text(node)))


@CONTRACTS.of("builtins.reversed")
def _reversed(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    known = bool(args) and isinstance(args[0], Items) and lists.is_whole(args[0])
    return replace(args[0], items=args[0].items[::-1]) if known and isinstance(args[0], Items) else _same(lw, node, args, kwargs)


@CONTRACTS.of("builtins.list", "builtins.tuple", "itertools.cycle", "itertools.islice")
def _same(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return Items(kind="list", within=lists.innermost_loop(lw))
    if isinstance(args[0], Const):  # the letters of a text are another value than the text
        return generic(args, kwargs, lw.text(node))
    return args[0]


@CONTRACTS.of("builtins.iter")
def _iter(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    loader = the_object(args[0], "loader") if len(args) == 1 else None
    if loader is not None:
        lw.emit(node, IteratorMade(target=loader))
    return _same(lw, node, args, kwargs)


@CONTRACTS.of("builtins.sorted")
def _sorted(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return lists.in_any_order(order.in_order(args[0])) if args else Unknown()


@CONTRACTS.of("builtins.dict")
def _dict(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        pairs = lists.pairs_of(args[0])
        if pairs is None:
            whole = isinstance(args[0], Items) and args[0].keys is not None and not kwargs
            return args[0] if whole else generic(args, kwargs, lw.text(node), name="builtins.dict")
        kwargs = {key: value for key, value in pairs if isinstance(key, str)} | kwargs
    values = tuple(kwargs.values())
    keys = tuple(Const(value=k) for k in kwargs)
    return Items(items=values, keys=keys, kind="dict", taint=join_taint(*values), deps=join_deps(*values))


@CONTRACTS.of("builtins.set", "builtins.frozenset")
def _set(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return Items(kind="set", within=lists.innermost_loop(lw))
    inner = args[0]
    return Items(items=inner.items if isinstance(inner, Items) else (inner,), kind="set", taint=inner.taint, many=True)


@CONTRACTS.of("builtins.next")
def _next(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    held = args[0] if args else Unknown()
    made_here = bool(node.args) and isinstance(node.args[0], ast.Call)  # so that nothing was taken of it before
    if made_here and isinstance(held, Items) and lists.is_whole(held) and (held.items or len(args) > 1):
        return held.items[0] if held.items else args[1]
    element, _, _ = iteration.iterate(lw, node, held) if args else (Unknown(), None, UNIFORM)
    may_be_empty = (held.many and not held.filled) if isinstance(held, Items) else the_object(held, "range") is not None
    if len(args) < 2 or not may_be_empty:
        return element
    return merge_value(Unknown(taint=held.taint, deps=held.deps, text=lw.text(node)), element, args[1])


@CONTRACTS.of("builtins.getattr")
def _getattr(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) >= 2 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        target = the_object(args[0])
        if target is not None and target.kind == "ddp" and len(args) > 2:
            return Unknown(text=lw.text(node))
        asking, lw.asking = lw.asking, lw.asking or len(args) > 2
        found = lookup.attribute(lw, args[0], args[1].value, node)
        lw.asking = asking
        return found
    if lw.looking is not None and args:
        note_use(lw, node, args[0], whole=True)
    return generic(args, kwargs, lw.text(node))


@CONTRACTS.of("builtins.setattr")
def _setattr(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 3 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        fake = ast.copy_location(ast.Attribute(value=node.args[0], attr=args[1].value, ctx=ast.Store()), node)
        lookup.assign_attribute(lw, fake, args[0], args[1].value, args[2])
    return Const(value=None)


@CONTRACTS.of("builtins.map")
def _map(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`map(function, values)`: the function is followed once, for what stands for all values."""
    from ddp_audit.program.calls import dispatch

    if len(args) < 2 or not isinstance(args[0], (Func, Ext)) or any(order.unordered(value) for value in args[1:]):
        return generic(args, kwargs, lw.text(node), name="builtins.map")
    elements = [iteration.iterate(lw, part, value)[0] for part, value in zip(node.args[1:], args[1:], strict=False)]
    result = dispatch(lw, node, args[0], elements, {})
    return Items(items=(result,), kind="list", many=True, taint=result.taint, deps=result.deps)


@CONTRACTS.of("builtins.hasattr", "builtins.isinstance", "builtins.callable", "builtins.issubclass")
def _question(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    question = lw.calling.rpartition(".")[2]
    answer = _answered(question, *args[:2]) if len(args) == 2 else None
    if answer is not None:
        return Const(value=answer, text=lw.text(node))
    if len(args) == 2 and isinstance(args[0], Ext) and isinstance(args[1], Const) and question == "hasattr":
        name = f"{args[0].name}.{args[1].value}"
        has = has_name(lw.hints, name)
        return Expr(op="hasattr", args=(Const(value=name),), text=lw.text(node)) if has is None else Const(value=has)
    # What kind of thing a value is, is no matter of the numbers in it.
    taint = UNIFORM if args and isinstance(args[0], (Ext, Obj)) else join_taint(*args[:1]) & {RANK}
    return Unknown(text=lw.text(node), taint=taint, by=Made(f"builtins.{question}", ()))


def _answered(question: str, subject: Value, about: Value) -> bool | None:
    """hasattr and isinstance of a wrapper or of a module of the project; None where there is more than one answer."""
    if not isinstance(subject, Obj) or subject.kind not in ("ddp", "module"):
        return None
    if question == "hasattr":
        known = isinstance(about, Const) and isinstance(about.value, str) and is_kind(about.value, "of-wrapper", "of-module")
        return True if subject.kind == "ddp" and known else None
    return class_questions.is_instance(subject, about) if question == "isinstance" else None


@CONTRACTS.of("builtins.vars", "builtins.super", "builtins.type", "builtins.id", "builtins.input")
def _plain(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = lw.calling.rpartition(".")[2]
    if name == "vars" and args:
        return args[0]
    if name == "super":
        return _super(lw)
    if name == "type" and len(args) == 1:
        asked = lookup.class_of(lw, args[0], lw.text(node))
        if asked is not None:
            return asked
    return generic(args, kwargs, lw.text(node))


def _super(lw: Lowering) -> Value:
    """`super()`: the receiver seen through its bases in the project; a library's base has nothing to follow."""
    frame = lw.here
    owner, receiver = frame.owner, frame.receiver
    if owner is None or receiver is None:
        return Unknown(text="super()")
    for base in owner.bases:
        if isinstance(base, Obj) and isinstance(base.cls, ClassInfo):
            return Obj(key=receiver.key, kind=receiver.kind, cls=base.cls, made=receiver.made, text="super()")
    return Bound(receiver=receiver, name="super", text="super()")


@CONTRACTS.of("functools.partial")
def _partial(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return Unknown()
    return Obj(key=("partial", lw.span(node)), kind="partial", info=(args[0], args[1:], kwargs), text=lw.text(node))


@CONTRACTS.of("signal.signal")
def _signal_handler(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A handler runs when its own process gets the signal: from now on what it changes may be another thing on each rank."""
    from ddp_audit.program.calls import dispatch

    handler = args[1] if len(args) > 1 else kwargs.get("handler")
    if isinstance(handler, Func):
        before = lw.state
        lw.state = before.fork()
        lw.muted += 1
        dispatch(lw, node, handler, [Unknown(), Unknown()], {})
        lw.muted -= 1
        after, lw.state = lw.state, before
        for key in list(after.changed()):
            old, new = before.get(key), after.get(key)
            if new is not None:
                lw.state[key] = Unknown(taint=join_taint(new, *([] if old is None else [old])) | {SIGNAL}, text=key[1])
    return Unknown(text=lw.text(node))


@CONTRACTS.of("os.environ.update")
def _set_environment(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(kwargs)
    if args and isinstance(args[0], Items) and args[0].keys is not None:
        given |= {str(k.value): v for k, v in zip(args[0].keys, args[0].items, strict=True) if isinstance(k, Const)}
    for name, value in given.items():
        lw.emit(node, EnvironmentSet(value=value, name=name))
    return Const(value=None)


@CONTRACTS.of("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop")
def _environment(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], Const):
        if len(args) > 1 and lw.calling.endswith(".setdefault"):
            lw.emit(node, EnvironmentSet(value=args[1], name=str(args[0].value)))
        return iteration.environment(str(args[0].value), args[1] if len(args) > 1 else None)
    return Unknown(text=lw.text(node))


@CONTRACTS.of("contextlib.ExitStack")
def _exit_stack(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = Obj(key=("exit-stack", lw.span(node)), kind="context", info="", text=lw.text(node))
    lw.exit_stacks[made.key] = len(lw.guards)
    return made


def _enter_context(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`stack.enter_context(model.no_sync())`, under a condition or not: it holds until the block of the stack ends."""
    from ddp_audit.program.flow import enter

    target = the_object(bound.receiver, "context")
    depth = None if target is None else lw.exit_stacks.get(target.key)
    if depth is None or not args:
        return None
    condition = lw.guards[-1] if len(lw.guards) > depth else None
    enter(lw, args[0], node.args[0], condition)
    return contexts.entered(args[0])


@CONTRACTS.of("contextlib.nullcontext", "contextlib.suppress")
def _nullcontext(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Obj(key=("nullcontext",), kind="context", info="", text=lw.text(node))


@CONTRACTS.of("copy.copy")
def _shallow_copy(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0] if args else Unknown()  # a module's holds the same parameters


@CONTRACTS.of("copy.deepcopy")
def _copy(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _copied(lw, node, args[0]) if args else Unknown()


def _copied(lw: Lowering, node: ast.Call, value: Value) -> Value:
    """A deep copy: of a module another module, with parameters of its own; of one of several, a copy of whichever it is."""
    match value:
        case Obj(kind="module" | "ddp"):
            key = ("copy", lw.span(node), value.key)
            made = Obj(key=key, kind="module", cls=value.cls, text="copy")
            lw.children.setdefault(made.key, set()).add(value.key)
            lw.program.modules.objects[made.key] = made
            return made
        case Alt(options=several):
            return replace(value, options=tuple(_copied(lw, node, one) for one in several))
        case Expr(op="ifexp", args=(chooser, then, orelse)):
            return replace(value, args=(chooser, _copied(lw, node, then), _copied(lw, node, orelse)))
    return value


def _items_method(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`d.get(..)`, `d.items()`, `d.values()`, `d.keys()` on a dict display."""
    owner = bound.receiver
    if not isinstance(owner, Items) or owner.keys is None:
        if bound.name == "get" and args and isinstance(args[0], Const) and isinstance(args[0].value, str):
            return names.by_name(args[0].value)
        return None
    if bound.name == "get" and args and isinstance(args[0], Const):
        for key, value in zip(owner.keys, owner.items, strict=True):
            if isinstance(key, Const) and key.value == args[0].value:
                return value
        return args[1] if len(args) > 1 else Const(value=None)
    if bound.name == "items":
        pairs = tuple(Items(items=(k, v), kind="tuple") for k, v in zip(owner.keys, owner.items, strict=True))
        return bounded(Items(items=pairs, kind="list", taint=owner.taint))
    if bound.name == "values":
        return Items(items=owner.items, kind="list", taint=owner.taint)
    return Items(items=owner.keys, kind="list", taint=owner.taint)


def _sort(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`names.sort()`: the variable holds the same elements in a known order."""
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.Name, ast.Attribute)) and not args:
        if not isinstance(bound.receiver, Obj):
            lw.assign(node.func.value, order.in_order(bound.receiver))
        return Const(value=None)
    return None


def _format(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`'cuda:{}'.format(rank)`; a template with anything but plain fields is left unknown."""
    show(lw, node, args)
    template = bound.receiver.value if isinstance(bound.receiver, Const) else None
    if not isinstance(template, str):
        return None
    pieces: list[Value] = []
    try:
        for position, (text, field, form, conversion) in enumerate(string.Formatter().parse(template)):
            if text:
                pieces.append(Const(value=text))
            if field is None:
                continue
            at: Value | None = kwargs.get(field)
            if field == "" or field.isdigit():
                at = args[int(field or position)]
            if at is None or form not in ("", "d") or conversion:  # an index has the same digits with :d
                return None
            pieces.append(at)
    except (ValueError, IndexError):
        return None
    return bounded(Expr(op="format", args=tuple(pieces), taint=join_taint(*pieces), text=lw.text(node)))


CONTRACTS.methods.update(
    get=_items_method, items=_items_method, values=_items_method, keys=_items_method, format=_format, sort=_sort
)


CONTRACTS.methods["enter_context"] = _enter_context


def _reorders(name: str) -> Contract:
    """`heapq.heappush(heap, item)`: the list that it is given holds its elements in another order, and perhaps more or fewer."""

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        held = functions.given(name, args, kwargs).get(functions.named("reorders")[name])
        place = node.args[0] if node.args else None
        if held is None or not isinstance(place, (ast.Name, ast.Attribute)):
            return generic(args, kwargs, lw.text(node), name=name)
        element = Unknown(taint=join_taint(*args, *kwargs.values()), deps=join_deps(*args, *kwargs.values()))
        now = lists.reordered(lw, held, element, functions.named("adds-elements").get(name, 0))
        keep_written(lw, place, generic(args, kwargs, lw.text(node), name=name) if now is None else now)
        return replace(element, text=lw.text(node))

    return call


CONTRACTS.names.update((name, _reorders(name)) for name in functions.named("reorders"))
