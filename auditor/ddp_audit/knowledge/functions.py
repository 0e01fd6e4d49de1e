"""Functions and classes of libraries, by full name: their parameters, and what a table can say of a call of them.

The files next to this one hold a table for each module (`["torch.distributed"]`), in it a table for each name. Both engines read
them; the keys are described at their heads.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ddp_audit.knowledge.reading import HERE, parse

AnyValue = TypeVar("AnyValue")
FILES = ("torch", "distributed", "data", "files", "random", "calls")


@functools.cache
def described() -> Mapping[str, Mapping[str, Any]]:
    """Return what the files say of each name of a library."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in FILES:
        for module, names in parse((HERE / f"{file}.toml").read_text(encoding="utf-8")).items():
            for name, table in names.items():
                full = f"{module}.{name}"
                found[full] = {**found.get(full, {}), **table}
    return found


@functools.cache
def named(key: str) -> Mapping[str, Any]:
    """Return the names of which the files say something under a key, each with what they say."""
    return {name: table[key] for name, table in described().items() if key in table}


@functools.lru_cache(maxsize=4096)
def reasons(name: str) -> frozenset[str]:
    """Return why what a function gives can differ between ranks, where that does not come from its arguments."""
    known = named("adds")
    found = known.get(name)
    while found is None and "." in name:
        name = name.rpartition(".")[0]
        found = known.get(f"{name}.*")
    return frozenset(found or ())


_CONSTANTS = {"true": True, "none": None}


def returned(name: str, args: Sequence[AnyValue], kwargs: Mapping[str, AnyValue]) -> tuple[AnyValue | None, Any] | None:
    """Return what a call gives, an argument or a constant; None where no description says so, or the argument is not given."""
    gives = named("gives").get(name)
    if gives is None or "file" in described()[name]:
        return None
    if gives in _CONSTANTS:
        return None, _CONSTANTS[gives]
    found = given(name, args, kwargs).get(gives)
    return None if found is None else (found, None)


@functools.cache
def defaults(name: str) -> Mapping[str, Any]:
    """Return the parameters of a function or class with their defaults; None without one, or no plain one."""
    takes = described().get(name, {}).get("takes", "")
    spec = ast.parse(f"def f({takes}): pass").body[0]
    assert isinstance(spec, ast.FunctionDef)
    given = [None] * (len(spec.args.args) - len(spec.args.defaults)) + [_plain(value) for value in spec.args.defaults]
    return {parameter.arg: value for parameter, value in zip(spec.args.args, given, strict=True)}


def _plain(node: ast.expr) -> Any:
    return None if isinstance(node, ast.Name) else ast.literal_eval(node)


@functools.cache
def parameters(name: str) -> tuple[str, ...]:
    """Return the names of the parameters of a function or class, in order; none where nothing is known of it."""
    return tuple(defaults(name))


def given(name: str, args: Sequence[AnyValue], kwargs: Mapping[str, AnyValue]) -> dict[str, AnyValue]:
    """Return the arguments of a call of a function or class by the names of its parameters. Further ones are left out."""
    return {**dict(zip(parameters(name), args, strict=False)), **kwargs}


__all__ = ["FILES", "defaults", "described", "given", "named", "parameters", "reasons", "returned"]
