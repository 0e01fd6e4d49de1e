"""The lowering of calls: project functions inlined, project classes constructed, imports bound, libraries by contract."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.program import contracts, expressions, names
from ddp_audit.program.loading import loaders_in
from ddp_audit.program.model import CallItem, Guard, Item
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo, merge_value
from ddp_audit.program.values import (
    RANK,
    UNIFORM,
    Bound,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Obj,
    Unknown,
    Value,
    join_deps,
    join_taint,
    leaf,
    operation,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.source.files import SourceFile

_RANK_ZERO_DECORATORS = (
    "rank_zero_only",
    "main_process",
    "main_process_only",
    "master_only",
    "on_main_process",
    "rank0_only",
    "master_only",
)
_GENERATOR_CONTEXTS = ("contextlib.contextmanager", "contextlib.asynccontextmanager")
_MAX_CALLS_OF_ONE = 40


def call(lw: Lowering, node: ast.Call) -> Value:
    """The value of a call, after its effects."""
    function = lw.eval(node.func)
    args, kwargs = arguments(lw, node)
    return dispatch(lw, node, function, args, kwargs)


def arguments(lw: Lowering, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
    """Positional and keyword arguments; `*display` and `**dict display` are spread."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    for part in node.args:
        if isinstance(part, ast.Starred):
            value = lw.eval(part.value)
            if isinstance(value, Items) and value.keys is None:
                args += value.items
            else:
                args.append(Unknown(taint=value.taint, deps=value.deps, text="*" + value.text))
        else:
            args.append(lw.eval(part))
    for keyword in node.keywords:
        value = lw.eval(keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, Items) and value.keys is not None:
            for key, inner in zip(value.keys, value.items, strict=True):
                if isinstance(key, Const) and isinstance(key.value, str):
                    kwargs[key.value] = inner
        else:
            kwargs["**"] = value
    return args, kwargs


def dispatch(lw: Lowering, node: ast.Call, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls a value."""
    for option in options(function):
        match option:
            case Func(definition=FunctionInfo() as info, receiver=receiver):
                return _call_method(lw, node, info, receiver, args, kwargs)
            case Obj(kind="class"):
                return instantiate(lw, node, option, args, kwargs)
    target = the_object(function, "ddp") or the_object(function)
    if target is not None:
        return call_object(lw, node, target, args, kwargs)
    for option in options(function):
        match option:
            case Ext():
                return contracts.library_call(lw, node, option, args, kwargs)
            case Bound():
                return contracts.method_call(lw, node, option, args, kwargs)
    return contracts.unknown_call(lw, node, function, args, kwargs)


def _call_method(
    lw: Lowering, node: ast.Call, info: FunctionInfo, receiver: Value | None, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    target = the_object(receiver)
    wrapper = lw.wrapped.get(target.key) if target is not None else None
    if wrapper is None or info.name.startswith("__") or target is None:
        return call_function(lw, info, args, kwargs, node, receiver=target)
    number = lw.emit("forward", node, target=wrapper, args=numbered(args, kwargs), through="module", method=info.name)
    result = call_function(lw, info, args, kwargs, node, receiver=target)
    if isinstance(result, (Const, Obj)):
        return result
    own = {number} if number is not None and lw.grad is not False else set()
    return Unknown(taint=result.taint | {"local data"}, deps=result.deps | own, text=result.text)


def numbered(args: Sequence[Value], kwargs: Mapping[str, Value]) -> dict[str, Value]:
    """Arguments by position and name, as a node holds them."""
    return {**{str(i): a for i, a in enumerate(args)}, **kwargs}


def call_object(lw: Lowering, node: ast.Call, target: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls an object: a wrapper or a module (a forward), an instance with __call__, a bound context."""
    values = [*args, *kwargs.values()]
    if target.kind == "ddp":
        return _forward(lw, node, target, "wrapper", args, kwargs)
    if target.kind == "module":
        wrapper = lw.wrapped.get(target.key)
        if wrapper is not None:
            return _forward(lw, node, wrapper, "module", args, kwargs)
        if isinstance(target.cls, ClassInfo) and (join_deps(*values) or holds_wrapper(lw, target)):
            found = target.cls.find("forward")
            if found is not None:
                info = FunctionInfo("forward", found[1], found[0].frame, found[0])
                result = call_function(lw, info, args, kwargs, node, receiver=target)
                return Unknown(taint=result.taint | join_taint(*values), deps=result.deps | join_deps(*values))
    elif isinstance(target.cls, ClassInfo):
        found = target.cls.find("__call__")
        if found is not None:
            info = FunctionInfo("__call__", found[1], found[0].frame, found[0])
            return call_function(lw, info, args, kwargs, node, receiver=target)
    elif target.kind == "no-sync-method":
        return Obj(key=target.key, kind="no-sync", made=lw.span(node), info=target.info)
    elif target.kind == "partial":
        bound, given, named_given = target.info
        return dispatch(lw, node, bound, [*given, *args], {**named_given, **kwargs})
    return Unknown(taint=join_taint(*values), deps=join_deps(*values))


def _forward(lw: Lowering, node: ast.Call, wrapper: Obj, through: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    number = lw.emit("forward", node, target=wrapper, args=numbered(args, kwargs), through=through, method="")
    module = the_object(wrapper.info)
    if module is not None and isinstance(module.cls, ClassInfo) and contracts.mentions_collectives(module.cls):
        found = module.cls.find("forward")
        if found is not None:
            info = FunctionInfo("forward", found[1], found[0].frame, found[0])
            call_function(lw, info, args, kwargs, node, receiver=module)
    deps = frozenset({number}) if number is not None and lw.grad is not False else frozenset()
    return Unknown(taint=frozenset({"local data"}), deps=deps | join_deps(*args, *kwargs.values()), text="output")


def holds_wrapper(lw: Lowering, target: Obj) -> bool:
    """Whether an attribute of an object is a DDP wrapper."""
    return target.key in lw.holders


# ---- project functions


def call_function(
    lw: Lowering,
    info: FunctionInfo,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    node: ast.AST,
    receiver: Obj | None = None,
    unknown_arguments: bool = False,
) -> Value:
    """Inlines a project function. Recursion and too deep a nesting give an unknown value tainted by the arguments."""
    from ddp_audit.program.lowering import MAX_DEPTH

    values = [*args, *kwargs.values()]
    unknown = Unknown(taint=join_taint(*values), deps=join_deps(*values))
    if id(info.node) in lw.active:
        return unknown
    lw.call_counts[id(info.node)] = lw.call_counts.get(id(info.node), 0) + 1
    if len(lw.active) >= MAX_DEPTH or lw.call_counts[id(info.node)] > _MAX_CALLS_OF_ONE:
        lw.limit(
            f"calls nested deeper than {MAX_DEPTH}"
            if len(lw.active) >= MAX_DEPTH
            else f"{info.name} was called from too many places"
        )
        return unknown
    lw.steps += 1
    lw.inlined.add(id(info.node))
    lw.frame_count += 1
    frame = Frame(
        id=("call", lw.frame_count), source=info.frame.source,
        name=info.name if info.owner is None else f"{info.owner.name}.{info.name}",
        parent=info.frame, module=info.frame.top, receiver=receiver, owner=info.owner, guard_base=len(lw.guards),
        no_sync_base=len(lw.no_sync), loop_base=len(lw.loops),
    )  # fmt: skip
    bound = bind(lw, info, args, kwargs, receiver, unknown_arguments)
    saved = (lw.frame, lw.grad, lw.block, lw.loops, lw.constructor_base)
    guard_depth = len(lw.guards)
    call_site = lw.span(node) if not unknown_arguments else None
    _apply_decorators(lw, info, node)
    if info.name == "__init__" and receiver is not None and receiver.kind == "module" and lw.constructor_base is None:
        lw.constructor_base = guard_depth
    lw.frame, lw.block = frame, []
    lw.state.update(((frame.id, key), value) for key, value in bound.items())
    lw.active.append(id(info.node))
    if call_site is not None:
        lw.calls.append(call_site)
    if isinstance(info.node, ast.Lambda):
        frame.returns.append(((), lw.eval(info.node.body)))
    else:
        lw.run_block(info.node.body)
    if call_site is not None:
        lw.calls.pop()
    lw.active.pop()
    body = lw.block
    lw.frame, lw.grad, lw.block, lw.loops, lw.constructor_base = saved
    del lw.guards[guard_depth:]
    if not lw.muted and body:
        lw.block.append(CallItem(call_site or lw.span(node), frame.name, body))
    _drop(lw, frame)
    generated = _generated(lw, info, frame, saved[1], node) if frame.yields else None
    return _returned(frame) if generated is None else generated


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


def _apply_decorators(lw: Lowering, info: FunctionInfo, node: ast.AST) -> None:
    decorators = info.decorators
    if info.owner is not None and not decorators and not isinstance(info.node, ast.Lambda):
        decorators = tuple(run_decorators(lw, info.node, info.frame))
    for decorator in decorators:
        effect = expressions.context_effect(decorator)
        if effect in ("no_grad", "enable_grad"):
            lw.grad = effect == "enable_grad"
        text = decorator.text or (decorator.name if isinstance(decorator, Ext) else "")
        if text.split(".")[-1] in _RANK_ZERO_DECORATORS:
            test = operation("==", leaf("rank"), Const(value=0), text=text)
            name, size = f"@{text.split('.')[-1]}", lw.program.world_size
            lw.guards.append(Guard(test, True, lw.span(node), name, "decorator", False, size, len(lw.calls), len(lw.loops)))


def run_decorators(lw: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame | None = None) -> Iterator[Value]:
    """The decorators of a definition as values."""
    saved = lw.frame
    if frame is not None:
        lw.frame = frame
    for decorator in node.decorator_list:
        value = lw.eval(decorator)
        yield value if isinstance(value, Obj) else replace(value, text=ast.unparse(decorator).split("(")[0])
    lw.frame = saved


def bind(
    lw: Lowering,
    info: FunctionInfo,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    receiver: Obj | None,
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
            bound[parameter] = names.by_name(parameter) or Unknown(text=parameter)
        elif "**" in kwargs:
            bound[parameter] = _from_mapping(lw, kwargs["**"], parameter)
        elif parameter in defaults:
            saved, lw.frame = lw.frame, info.frame
            bound[parameter] = lw.eval(defaults[parameter])
            lw.frame = saved
        else:
            bound[parameter] = names.by_name(parameter) or Unknown(text=parameter)
    known = {*positional, *(a.arg for a in spec.kwonlyargs)}
    if spec.vararg is not None:
        bound[spec.vararg.arg] = Items(
            items=tuple(given[len(positional) :]), kind="tuple", taint=join_taint(*given[len(positional) :])
        )
    if spec.kwarg is not None:
        rest = {k: v for k, v in kwargs.items() if k not in known and k != "**"}
        keys = tuple(Const(value=k) for k in rest)
        bound[spec.kwarg.arg] = Items(items=tuple(rest.values()), keys=keys, kind="dict", taint=join_taint(*rest.values()))
    return bound


def _from_mapping(lw: Lowering, mapping: Value, key: str) -> Value:
    """The value of one key of `**vars(namespace)` or the like."""
    target = the_object(mapping)
    if target is not None:
        value = lw.state.get((target.key, key))
        if value is not None:
            return value
    return names.by_name(key) or Unknown(taint=mapping.taint, text=key)


def _drop(lw: Lowering, frame: Frame) -> None:
    """Forgets the variables of a call that has returned, unless a function or class made in it may still look at them."""
    mine = [key for key in lw.state.own if key[0] == frame.id]
    for key in mine:
        value = lw.state.get(key)
        if isinstance(value, Func) and value.definition.frame is frame:
            return
        if isinstance(value, Obj) and isinstance(value.cls, ClassInfo) and value.cls.frame is frame:
            return
    if any(isinstance(v, Func) and v.definition.frame is frame for _, v in frame.returns):
        return
    for key in mine:
        del lw.state[key]


def _returned(frame: Frame) -> Value:
    """The value of a call: the last returned one, with earlier ones under their conditions."""
    if not frame.returns:
        return Const(value=None)
    result = frame.returns[-1][1]
    for guards, value in reversed(frame.returns[:-1]):
        if value == result:
            continue
        test: Value = Unknown()
        if guards:
            last = guards[-1]
            test = last.test if last.polarity else operation("not", last.test)
        result = merge_value(test, value, result)
    return result


# ---- classes


def make_class(lw: Lowering, node: ast.ClassDef) -> Obj:
    """A class statement: its methods, its class variables, its bases."""
    info = ClassInfo(node.name, node, lw.here, [lw.eval(base) for base in node.bases])
    info.is_dataclass = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    key = ("class", lw.here.source.path, node.name)
    frame = Frame(id=key, source=lw.here.source, name=node.name, parent=lw.here, module=lw.here.top)
    saved, lw.frame = lw.frame, frame
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            info.methods.setdefault(statement.name, statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            lw.statement(statement)
    lw.frame = saved
    return Obj(key=key, kind="class", cls=info, text=node.name)


def instantiate(lw: Lowering, node: ast.Call, made: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Constructs an object of a project class: its own kind, with __init__ inlined and dataclass fields bound."""
    info: ClassInfo = made.cls
    kind = names.kind_of_class(info)
    span = lw.span(node)
    target = Obj(key=(span, tuple(lw.calls[-4:])), kind=kind, cls=info, made=span, text=info.name)
    if kind in ("dataset", "iterable-dataset"):
        target = replace(target, info=[*args, *kwargs.values()], taint=join_taint(*args, *kwargs.values()) & {RANK})
    if kind == "ddp-subclass":
        wrapper = contracts.wrap(lw, node, args, kwargs, "ddp")
        if isinstance(wrapper, Obj):
            lw.state[(wrapper.key, "__class__")] = made
        return wrapper
    if kind == "sampler":
        lw.emit("sampler", node, target=target, args=numbered(args, kwargs), cls=info.name, custom=True)
    found = info.find("__init__")
    if found is not None:
        holder, method = found
        call_function(lw, FunctionInfo("__init__", method, holder.frame, holder), args, kwargs, node, receiver=target)
    elif info.is_dataclass:
        _dataclass_fields(lw, info, target, args, kwargs)
    for value in (*args, *kwargs.values()):
        if kind == "module":
            expressions.adopt(lw, target, value)
    return target


def _dataclass_fields(lw: Lowering, info: ClassInfo, target: Obj, args: list[Value], kwargs: dict[str, Value]) -> None:
    fields = [s for s in info.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    for index, statement in enumerate(fields):
        assert isinstance(statement.target, ast.Name)
        name = statement.target.id
        if index < len(args):
            value = args[index]
        elif name in kwargs:
            value = kwargs[name]
        elif "**" in kwargs:
            value = _from_mapping(lw, kwargs["**"], name)
        else:
            value = _default_field(lw, info, name, statement)
        lw.state[(target.key, name)] = value


def _default_field(lw: Lowering, info: ClassInfo, name: str, statement: ast.AnnAssign) -> Value:
    value = expressions.class_attribute(lw, info, name)
    if isinstance(value, Const) and isinstance(statement.value, ast.Constant):
        return contracts.option(lw, name, value.value, info.frame, statement.value)
    return names.by_name(name) or value or Unknown(text=name)


# ---- imports


def bind_name(lw: Lowering, node: ast.Import | ast.ImportFrom) -> None:
    """An import statement. Project files are lowered when a name of theirs is first used; the rest is a library by its full name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            lw.note_library(alias.name)
            if lw.project.finds(alias.name, lw.here.source) and (alias.asname or "." not in alias.name):
                lw.assign_name(alias.asname or alias.name, _lazy(lw, alias.name, 0, None))
            else:
                root = alias.name if alias.asname else alias.name.split(".")[0]
                lw.assign_name(alias.asname or root, Ext(name=expressions.canonical(root), text=alias.asname or root))
        return
    base = node.module or ""
    for alias in node.names:
        inner = f"{base}.{alias.name}" if base else alias.name
        if not node.level:
            lw.note_library(inner)
        if alias.name == "*":
            _import_star(lw, base, node.level)
        elif node.level or lw.project.finds(base, lw.here.source) or lw.project.finds(inner, lw.here.source):
            lw.assign_name(alias.asname or alias.name, _lazy(lw, base, node.level, alias.name))
        else:
            lw.assign_name(alias.asname or alias.name, Ext(name=expressions.canonical(inner), text=alias.name))


def _lazy(lw: Lowering, module: str, level: int, name: str | None) -> Obj:
    return Obj(key=("lazy", lw.here.source.path, module, level, name), kind="lazy", info=lw.here.source, text=name or module)


def force(lw: Lowering, value: Value) -> Value:
    """The value itself, or what an import that was put off stands for."""
    if not (isinstance(value, Obj) and value.kind == "lazy"):
        return value
    if value.key not in lw.forced:
        _, _, module, level, name = value.key
        lw.forced[value.key] = Unknown(text=value.text)  # a circular import finds nothing
        lw.forced[value.key] = _imported(lw, value.info, module, level, name)
    return lw.forced[value.key]


def _imported(lw: Lowering, importer: SourceFile, base: str, level: int, name: str | None) -> Value:
    source = lw.project.resolve_import(base, level, importer) if base or level else None
    if name is None:
        return Unknown(text=base) if source is None else _module_object(lw, source)
    if source is not None:
        value = lw.state.get((_module_object(lw, source).info.id, name))
        if value is not None:
            return force(lw, value)
    submodule = lw.project.resolve_import(f"{base}.{name}" if base else name, level, importer)
    if submodule is not None and submodule is not source:
        return _module_object(lw, submodule)
    return names.by_name(name) or Unknown(text=name)


def _import_star(lw: Lowering, base: str, level: int) -> None:
    source = lw.project.resolve_import(base, level, lw.here.source)
    if source is None:
        return
    frame = _module_object(lw, source).info
    for (owner, name), value in list(lw.state.items()):
        if owner == frame.id and not name.startswith("_"):
            lw.assign_name(name, value)


def _module_object(lw: Lowering, source: Any) -> Obj:
    frame = lw.run_module(source, main=False)
    return Obj(key=("python-module", source.path), kind="python-module", info=frame, text=source.module)


def module_attribute(lw: Lowering, target: Obj, attr: str) -> Value:
    """`module.attr` of a project module: its global, or a submodule."""
    frame: Frame = target.info
    value = lw.state.get((frame.id, attr))
    if value is not None:
        return force(lw, value)
    source = lw.project.resolve_import(f"{frame.source.module}.{attr}", 0, frame.source)
    if source is not None:
        return _module_object(lw, source)
    return names.by_name(attr) or Unknown(text=attr)


__all__ = ["UNIFORM", "Expr", "Item", "bind_name", "call", "call_function", "dispatch", "instantiate", "make_class"]
