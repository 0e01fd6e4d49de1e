"""Where configuration values come from: argparse and module globals that an exec overrides; what a job sets them to."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddp_audit.program import names
from ddp_audit.program.contracts import Contracts
from ddp_audit.program.meaning import says
from ddp_audit.program.model import ConfigValue
from ddp_audit.program.nodes import LocalRankOption, ParseArguments
from ddp_audit.program.state import Frame
from ddp_audit.program.values import (
    UNIFORM,
    Bound,
    Const,
    Default,
    Expr,
    Ext,
    Items,
    Obj,
    Unknown,
    Value,
    leaf,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()


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
    said = lw.deciding.get(name)
    if said is not None and not said.op and isinstance(value, bool) and not lw.defaults_hold:
        return Const(value=said.wanted, default=Default(name, span, "distributed"), text=name)
    return Const(value=value, default=Default(name, span), text=name)


def loaded(lw: Lowering, key: str, node: ast.expr) -> Value | None:
    """A value of a configuration that the program loads itself, by its key, where a file of the job at hand has it."""
    override = lw.overrides.get(key)
    if override is None or not override.path or str(override.path).endswith(".py"):
        return None
    return option(lw, key, None, lw.here, node)


@CONTRACTS.of("builtins.exec")
def _exec(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`exec(open('configurator.py').read())`: the module's plain constants become defaults that the job may override."""
    frame = lw.here.top
    for name, value in lw.state.of(frame.id).items():
        if isinstance(value, Const) and value.default is None and not name.startswith("_"):
            where = lw.defined.get((frame.id, name))
            if where is not None and isinstance(value.value, (int, float, str, bool)):
                lw.state[(frame.id, name)] = option(lw, name, value.value, frame, where)
    return Unknown()


@CONTRACTS.of("argparse.ArgumentParser", "configargparse.ArgumentParser", "configargparse.ArgParser")
def _parser(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = ("parser", lw.span(node), lw.way())
    lw.parsers.setdefault(key, {})
    parents = kwargs.get("parents")
    for parent in parents.items if isinstance(parents, Items) else ():
        if isinstance(parent, Obj):
            lw.parsers[key].update(lw.parsers.get(parent.key, {}))
            lw.flags.setdefault(key, []).extend(lw.flags.get(parent.key, ()))
    return Obj(key=key, kind="parser", text="parser")


def _add_argument(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "parser")
    flags = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, str)]
    if target is None or not flags:
        return None
    dest = kwargs.get("dest")
    long = next((f for f in flags if f.startswith("--")), flags[0])
    name = str(dest.value) if isinstance(dest, Const) else long.lstrip("-").replace("-", "_")
    for other in {flag.lstrip("-").replace("-", "_") for flag in flags} - {name}:  # `-b 8` and `--total 8` with another dest
        lw.program.aliases.setdefault(other, name)
        if other in lw.overrides and name not in lw.overrides:
            lw.overrides = {**lw.overrides, name: lw.overrides[other]}
    of_launcher = next(
        (flag for flag in flags if flag.startswith("--") and flag.strip("-").replace("-", "_") == "local_rank"), None
    )
    if of_launcher is not None:  # under whatever name the script reads it: torch.distributed.launch and deepspeed pass it
        value: Value = leaf("local_rank")
    elif _is_required(flags, kwargs) and name not in lw.overrides and names.by_name(name) is None:
        value = Unknown(text=name)  # each run gives it one, equal on all ranks
    else:
        value = _argument_value(lw, node, name, kwargs)
    lw.parsers.setdefault(target.key, {})[name] = value
    lw.flags.setdefault(target.key, []).extend(flags)
    if of_launcher is not None:
        lw.emit(node, LocalRankOption(default=kwargs.get("default", Const(value=None)), name=of_launcher, flags=flags))
    return Const(value=None)


def _is_required(flags: list[str], kwargs: Mapping[str, Value]) -> bool:
    """Whether the command line has to name a value: an option that says so, or a positional argument that may not be left out."""
    if not all(flag.startswith("-") for flag in flags):
        return "nargs" not in kwargs and "default" not in kwargs
    required = kwargs.get("required")
    return isinstance(required, Const) and required.value is True and "default" not in kwargs


def _argument_value(lw: Lowering, node: ast.Call, name: str, kwargs: dict[str, Value]) -> Value:
    told = kwargs.get("help")
    helped = told.value if isinstance(told, Const) and isinstance(told.value, str) else ""
    action = kwargs.get("action")
    default = kwargs.get("default")
    guess = names.by_name(name)
    if name in ("rank", "world_size") and says(helped, "node") and not says(helped, "process"):
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
    given = args[0] if args else kwargs.get("args")
    if given is None or (isinstance(given, Const) and given.value is None):
        strict = not bound.name.endswith("known_args")
        lw.emit(node, ParseArguments(strict=strict, flags=tuple(lw.flags.get(target.key, ()))))
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


CONTRACTS.methods.update(
    add_argument=_add_argument, parse_args=_parse_args, parse_known_args=_parse_args, set_defaults=_set_defaults,
    add_argument_group=_same_parser, add_mutually_exclusive_group=_same_parser,
)  # fmt: skip
