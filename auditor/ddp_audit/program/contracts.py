"""What calls of libraries mean: dispatch by full name, by method name, and the contracts of Python's own library.

A contract is a function (lowering, call, arguments, keyword arguments) -> value. Those of torch are in `contracts_torch.py`. A
call without a contract gives an unknown value that carries the taint and the forwards of its arguments.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddp_audit.program import expressions, names
from ddp_audit.program.attributes import MODULE_ATTRIBUTES, WRAPPER_ATTRIBUTES
from ddp_audit.program.model import ConfigValue
from ddp_audit.program.state import ClassInfo, Frame
from ddp_audit.program.values import (
    CLOCK,
    DATA,
    FILES,
    RANDOM,
    UNIFORM,
    Bound,
    Const,
    Default,
    Expr,
    Ext,
    Func,
    Items,
    Obj,
    Taint,
    Unknown,
    Value,
    join_deps,
    join_taint,
    operation,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

Contract = Callable[["Lowering", ast.Call, list[Value], dict[str, Value]], Value]
BY_NAME: dict[str, Contract] = {}  # by full name of a library's function or class
BY_METHOD: dict[str, Callable[[Lowering, ast.Call, Bound, list[Value], dict[str, Value]], Value | None]] = {}

_TAINTED: tuple[tuple[str, Taint], ...] = (
    ("time.", frozenset({CLOCK})),
    ("datetime.", frozenset({CLOCK})),
    ("random.", frozenset({RANDOM})),
    ("numpy.random.", frozenset({RANDOM})),
    ("uuid.", frozenset({RANDOM})),
    ("tempfile.", frozenset({RANDOM, FILES})),
    ("os.path.exists", frozenset({FILES})),
    ("os.path.isfile", frozenset({FILES})),
    ("os.path.isdir", frozenset({FILES})),
    ("os.listdir", frozenset({FILES})),
    ("os.scandir", frozenset({FILES})),
    ("os.getpid", frozenset({CLOCK})),
    ("glob.", frozenset({FILES})),
    ("socket.", frozenset({FILES})),
)
_COLLECTIVE_WORDS = ("all_reduce", "all_gather", "broadcast(", "reduce_scatter", "all_to_all", "barrier(")


def contract(*full_names: str) -> Callable[[Contract], Contract]:
    """Registers a contract for library names."""

    def register(function: Contract) -> Contract:
        BY_NAME.update(dict.fromkeys(full_names, function))
        return function

    return register


def generic(args: list[Value], kwargs: dict[str, Value], text: str = "", taint: Taint = UNIFORM) -> Value:
    """An unknown value that carries what its arguments carry."""
    values = [*args, *kwargs.values()]
    return Unknown(taint=join_taint(*values) | taint, deps=join_deps(*values), text=text)


def library_call(lw: Lowering, node: ast.Call, function: Ext, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a library function by its full name."""
    from ddp_audit.program import contracts_data, contracts_torch  # noqa: F401  they register their contracts

    known = BY_NAME.get(function.name)
    if known is not None:
        return known(lw, node, args, kwargs)
    by_prefix = contracts_torch.by_prefix(lw, node, function.name, args, kwargs)
    if by_prefix is not None:
        return by_prefix
    last = function.name.rsplit(".", 1)[-1]
    if not function.name.startswith(("torch.", "builtins.")):
        method = BY_METHOD.get(last)
        if method is not None and last in ("no_sync", "backward"):
            result = method(lw, node, Bound(receiver=Unknown(), name=last), args, kwargs)
            if result is not None:
                return result
    guess = _rank_call(last)
    if guess is not None and not function.name.startswith(("os.", "builtins.")):
        return guess
    for prefix, taint in _TAINTED:
        if function.name.startswith(prefix):
            return generic(args, kwargs, lw.text(node), taint)
    if lw.in_question(function.name):
        lw.emit("call", node, name=function.name)
    return generic(args, kwargs, lw.text(node))


def _rank_call(name: str) -> Value | None:
    """A rank helper of some library, by the name of the function: `comm.get_rank()`, `is_main_process()`."""
    return names.by_name(name.removeprefix("get_")) if name.startswith(("get_", "is_")) else None


def method_call(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a method by its name, on an object of a library or on something unknown."""
    from ddp_audit.program import contracts_data, contracts_torch  # noqa: F401  they register their methods

    known = BY_METHOD.get(bound.name)
    if known is not None:
        result = known(lw, node, bound, args, kwargs)
        if result is not None:
            return result
    guess = _rank_call(bound.name)
    if guess is not None and not args:
        return guess
    target = the_object(bound.receiver)
    if target is not None and target.kind in ("module", "ddp", "optimizer", "sampler", "loader"):
        return Unknown(taint=join_taint(*args), deps=join_deps(bound, *args), text=lw.text(node))
    if any(isinstance(o, Func) for o in args):
        return generic(args, kwargs, lw.text(node))
    values = generic(args, kwargs)
    return Unknown(
        taint=values.taint | bound.receiver.taint, deps=values.deps | bound.receiver.deps | bound.deps, text=lw.text(node)
    )


def unknown_call(lw: Lowering, node: ast.Call, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of something that is not known at all."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    guess = _rank_call(name) if not args else None
    if guess is not None:
        return guess
    result = generic(args, kwargs, lw.text(node))
    return Unknown(taint=result.taint | function.taint, deps=result.deps | function.deps, text=result.text)


def mentions_collectives(info: ClassInfo) -> bool:
    """Whether the file that defines a class speaks of collectives at all."""
    return any(word in info.frame.source.text for word in _COLLECTIVE_WORDS)


def wrap(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value], style: str) -> Value:
    """A DDP constructor, of torch or one that looks like it."""
    module = args[0] if args else kwargs.get("module", kwargs.get("model", Unknown()))
    span = lw.span(node)
    kind = "ddp" if style == "ddp" else "other-wrapper"
    wrapper = Obj(key=("wrap", span, tuple(lw.calls[-4:])), kind=kind, made=span, info=module, text=lw.text(node))
    given = {"module": module, **kwargs}
    for position, name in enumerate(("device_ids", "output_device", "dim", "broadcast_buffers"), start=1):
        if position < len(args):
            given[name] = args[position]
    if style == "ddp":
        for option in options(module):
            if isinstance(option, Obj):
                lw.wrapped[option.key] = wrapper
    lw.emit("wrap", node, target=wrapper, args=given, style=style)
    devices = given.get("device_ids")
    if isinstance(devices, Items) and len(devices.items) == 1:
        where = next((k.value for k in node.keywords if k.arg == "device_ids"), node)
        lw.emit("device", where, args={"index": devices.items[0]}, via="device_ids")
    return wrapper


# ---- configuration


def option(lw: Lowering, name: str, value: Any, frame: Frame, node: ast.expr | ast.stmt) -> Value:
    """A configuration value: what the job at hand sets it to, else its default, which stays open."""
    span = frame.source.span(node)
    override = lw.overrides.get(name)
    if override is not None and type(override.value).__name__ != "Unknown":
        where = str(override.where)
        origin = "set" if where.startswith("--set") else "config-file" if override.path else "launch"
        path, line = override.path or span.path, override.line or span.line
        lw.program.config[name] = ConfigValue(override.value, path, line, origin)
        return Const(value=override.value, default=Default(name, span, origin), text=name)
    lw.program.config.setdefault(name, ConfigValue(value, span.path, span.line, "default"))
    return Const(value=value, default=Default(name, span), text=name)


@contract("builtins.exec")
def _exec(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`exec(open('configurator.py').read())`: the module's plain constants become defaults that the job may override."""
    frame = lw.here.top
    for name, value in lw.state.of(frame.id).items():
        if isinstance(value, Const) and value.default is None and not name.startswith("_"):
            where = lw.defined.get((frame.id, name))
            if where is not None and isinstance(value.value, (int, float, str, bool)):
                lw.state[(frame.id, name)] = option(lw, name, value.value, frame, where)
    return Unknown()


@contract("argparse.ArgumentParser", "configargparse.ArgumentParser", "configargparse.ArgParser")
def _parser(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = ("parser", lw.span(node), tuple(lw.calls[-4:]))
    lw.parsers.setdefault(key, {})
    parents = kwargs.get("parents")
    for parent in parents.items if isinstance(parents, Items) else ():
        if isinstance(parent, Obj):
            lw.parsers[key].update(lw.parsers.get(parent.key, {}))
    return Obj(key=key, kind="parser", text="parser")


def _add_argument(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "parser")
    flags = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, str)]
    if target is None or not flags:
        return None
    dest = kwargs.get("dest")
    long = next((f for f in flags if f.startswith("--")), flags[0])
    name = str(dest.value) if isinstance(dest, Const) else long.lstrip("-").replace("-", "_")
    lw.parsers.setdefault(target.key, {})[name] = _argument_value(lw, node, name, kwargs)
    if name == "local_rank":
        lw.emit("local-rank-argument", node, name=long)
    return Const(value=None)


def _argument_value(lw: Lowering, node: ast.Call, name: str, kwargs: dict[str, Value]) -> Value:
    words = " ".join(str(v.value) for v in (kwargs.get("help"),) if isinstance(v, Const)).lower()
    action = kwargs.get("action")
    default = kwargs.get("default")
    guess = names.by_name(name)
    if name in ("rank", "world_size") and "node" in words and "process" not in words:
        guess = Expr(
            op="nnodes" if name == "world_size" else "node_rank",
            text=name,
            taint=frozenset({"rank"}) if name == "rank" else UNIFORM,
        )
    if guess is not None:
        return guess
    if isinstance(action, Const) and action.value == "store_true" and default is None:
        default = Const(value=False)
    elif isinstance(action, Const) and action.value == "store_false" and default is None:
        default = Const(value=True)
    if default is None:
        default = Const(value=None)
    if isinstance(default, Const):
        value = default.value
        kind = kwargs.get("type")
        if isinstance(value, str) and isinstance(kind, Ext) and kind.name in ("builtins.int", "builtins.float"):
            value = _converted(kind.name, value)
        return option(lw, name, value, lw.here, node)
    override = lw.overrides.get(name)
    return option(lw, name, None, lw.here, node) if override is not None else default


def _converted(kind: str, text: str) -> Any:
    try:
        return int(text) if kind == "builtins.int" else float(text)
    except ValueError:
        return text


def _parse_args(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "parser")
    if target is None:
        return None
    namespace = Obj(key=("namespace", target.key), kind="namespace", text="args")
    for name, value in lw.parsers.get(target.key, {}).items():
        lw.state[(namespace.key, name)] = value
    if bound.name.endswith("known_args"):
        return Items(items=(namespace, Unknown(text="rest")), kind="tuple")
    return namespace


def _same_parser(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return the_object(bound.receiver, "parser")


def _set_defaults(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "parser")
    if target is None:
        return None
    for name, value in kwargs.items():
        if isinstance(value, Const):
            lw.parsers.setdefault(target.key, {})[name] = option(lw, name, value.value, lw.here, node)
    return Const(value=None)


BY_METHOD.update(
    add_argument=_add_argument, parse_args=_parse_args, parse_known_args=_parse_args, set_defaults=_set_defaults,
    add_argument_group=_same_parser, add_mutually_exclusive_group=_same_parser,
)  # fmt: skip


# ---- Python's own


def _unary(op: str) -> Contract:
    def convert(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return operation(op, args[0], text=lw.text(node)) if args else Const(value=None)

    return convert


for _name in ("int", "bool", "float", "str", "abs"):
    BY_NAME[f"builtins.{_name}"] = _unary(_name)


@contract("builtins.len")
def _len(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0] if args else Unknown()
    if isinstance(value, Items) and not value.many:
        return Const(value=len(value.items))
    return Unknown(text=lw.text(node), taint=value.taint)


@contract("builtins.min", "builtins.max")
def _extreme(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = ast.unparse(node.func)
    return operation(name, *args, text=lw.text(node)) if len(args) == 2 else generic(args, kwargs, lw.text(node))


@contract("builtins.range", "tqdm.trange", "tqdm.auto.trange")
def _range(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    bounds = [Const(value=0), *args] if len(args) == 1 else args
    missing = (Unknown(text=lw.text(node)), Unknown(text=lw.text(node)), Const(value=1))
    start, stop, step = (*bounds, *missing[len(bounds) :])[:3]
    count: Value = Unknown(text=lw.text(node), taint=join_taint(*args))
    if isinstance(step, Const) and step.value == 1:
        count = stop if isinstance(start, Const) and start.value == 0 else operation("-", stop, start, text=lw.text(node))
    key, taint = ("range", lw.span(node)), join_taint(*args)
    return Obj(key=key, kind="range", cls=(start, step), info=count, taint=taint, text=lw.text(node))


@contract("builtins.enumerate")
def _enumerate(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    inner = args[0] if args else Unknown()
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(value=0))
    key, taint = ("enumerate", lw.span(node)), inner.taint | start.taint
    return Obj(key=key, kind="enumerate", cls=start, info=inner, taint=taint, text=lw.text(node))


@contract("builtins.zip", "itertools.zip_longest")
def _zip(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Obj(key=("zip", lw.span(node)), kind="zip", info=list(args), text=lw.text(node))


@contract("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "builtins.iter", "builtins.reversed",
          "itertools.cycle", "itertools.islice",
          "rich.progress.track", "builtins.list", "builtins.tuple", "itertools.chain")  # fmt: skip
def _same(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return kwargs.get("iterable", Items(kind="list"))
    return args[0]


@contract("builtins.sorted")
def _sorted(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0] if args else Unknown()


@contract("builtins.dict")
def _dict(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        return args[0] if isinstance(args[0], Items) else generic(args, kwargs)
    values = tuple(kwargs.values())
    keys = tuple(Const(value=k) for k in kwargs)
    return Items(items=values, keys=keys, kind="dict", taint=join_taint(*values), deps=join_deps(*values))


@contract("builtins.set", "builtins.frozenset")
def _set(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    inner = args[0] if args else Items()
    return Items(items=inner.items if isinstance(inner, Items) else (inner,), kind="set", taint=inner.taint, many=True)


@contract("builtins.next")
def _next(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    element, _, _ = expressions.iterate(lw, node, args[0]) if args else (Unknown(), None, UNIFORM)
    return element


@contract("random.Random", "numpy.random.default_rng", "numpy.random.RandomState")
def _own_generator(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A generator of its own: with a seed it draws what the seed says, the same on all ranks if that is."""
    seeds = [*args, *kwargs.values()]
    return Unknown(taint=join_taint(*seeds) if seeds else frozenset({RANDOM}), text=lw.text(node))


@contract("builtins.open")
def _open(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Unknown(taint=frozenset({FILES}) | join_taint(*args), text=lw.text(node))


@contract("builtins.getattr")
def _getattr(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) >= 2 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        target = the_object(args[0])
        if target is not None and target.kind == "ddp" and len(args) > 2:
            return Unknown(text=lw.text(node))
        return expressions.attribute(lw, args[0], args[1].value, node)
    return generic(args, kwargs, lw.text(node))


@contract("builtins.setattr")
def _setattr(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 3 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        fake = ast.copy_location(ast.Attribute(value=node.args[0], attr=args[1].value, ctx=ast.Store()), node)
        expressions.assign_attribute(lw, fake, args[0], args[1].value, args[2])
    return Const(value=None)


@contract("builtins.hasattr", "builtins.isinstance", "builtins.callable", "builtins.issubclass")
def _question(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    answer = _answered(ast.unparse(node.func), *args[:2]) if len(args) == 2 else None
    if answer is not None:
        return Const(value=answer, text=lw.text(node))
    if len(args) == 2 and isinstance(args[0], Ext) and isinstance(args[1], Const) and ast.unparse(node.func) == "hasattr":
        return Expr(op="hasattr", args=(Const(value=f"{args[0].name}.{args[1].value}"),), text=lw.text(node))
    return Unknown(text=lw.text(node), taint=UNIFORM if args and isinstance(args[0], (Ext, Obj)) else join_taint(*args[:1]))


def _answered(question: str, subject: Value, about: Value) -> bool | None:
    """hasattr and isinstance of a wrapper or of a module of the project; None where there is more than one answer."""
    if not isinstance(subject, Obj) or subject.kind not in ("ddp", "module"):
        return None
    if question == "hasattr":
        known = isinstance(about, Const) and (about.value in WRAPPER_ATTRIBUTES or about.value in MODULE_ATTRIBUTES)
        return True if subject.kind == "ddp" and known else None
    classes = about.items if isinstance(about, Items) else (about,)
    if question != "isinstance" or not all(isinstance(c, Ext) for c in classes):
        return None
    named = {c.name for c in classes if isinstance(c, Ext)}
    if subject.kind == "ddp":
        return bool(named & {"torch.nn.parallel.DistributedDataParallel", "torch.nn.Module"}) or None
    parallel = all(name.endswith(("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")) for name in named)
    return False if parallel and isinstance(subject.cls, ClassInfo) else None


@contract("builtins.vars", "builtins.super", "builtins.print", "builtins.type", "builtins.id", "builtins.input")
def _plain(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = ast.unparse(node.func)
    if name == "vars" and args:
        return args[0]
    if name == "super":
        return _super(lw)
    return generic(args, kwargs, lw.text(node)) if name != "print" else Const(value=None)


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


@contract("functools.partial")
def _partial(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return Unknown()
    return Obj(key=("partial", lw.span(node)), kind="partial", info=(args[0], args[1:], kwargs), text=lw.text(node))


@contract("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop")
def _environment(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], Const):
        return expressions.environment(str(args[0].value), args[1] if len(args) > 1 else None)
    return Unknown(text=lw.text(node))


@contract("contextlib.ExitStack")
def _exit_stack(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = Obj(key=("exit-stack", lw.span(node)), kind="context", info="", text=lw.text(node))
    lw.exit_stacks[made.key] = len(lw.guards)
    return made


def _enter_context(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`stack.enter_context(model.no_sync())`, under a condition or not: it holds until the block of the stack ends."""
    target = the_object(bound.receiver, "context")
    depth = None if target is None else lw.exit_stacks.get(target.key)
    if depth is None or not args:
        return None
    condition = lw.guards[-1] if len(lw.guards) > depth else None
    lw.enter(args[0], node.args[0], condition)
    return expressions.entered(args[0])


BY_METHOD["enter_context"] = _enter_context


@contract("contextlib.nullcontext", "contextlib.suppress")
def _nullcontext(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Obj(key=("nullcontext",), kind="context", info="", text=lw.text(node))


@contract("copy.deepcopy", "copy.copy")
def _copy(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], Obj) and args[0].kind in ("module", "ddp"):
        inner = args[0]
        made = Obj(key=("copy", lw.span(node)), kind="module" if inner.kind == "ddp" else inner.kind, cls=inner.cls, text="copy")
        lw.children.setdefault(made.key, set()).add(inner.key)
        return made
    return args[0] if args else Unknown()


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
        return Items(items=pairs, kind="list", taint=owner.taint)
    if bound.name == "values":
        return Items(items=owner.items, kind="list", taint=owner.taint)
    return Items(items=owner.keys, kind="list", taint=owner.taint)


def _format(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`'cuda:{}'.format(rank)`; a template with anything but plain fields is left unknown."""
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
            if at is None or form or conversion:
                return None
            pieces.append(at)
    except (ValueError, IndexError):
        return None
    return Expr(op="format", args=tuple(pieces), taint=join_taint(*pieces), text=lw.text(node))


BY_METHOD.update(get=_items_method, items=_items_method, values=_items_method, keys=_items_method, format=_format)

__all__ = ["DATA", "contract", "generic", "library_call", "method_call", "option", "unknown_call", "wrap"]
