"""What a program tells its user, or decides by: prints, loggers, metric writers, schedulers that follow a metric."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import named
from ddp_audit.program.code import names_in
from ddp_audit.program.contracts import Contract, Contracts, generic, numbered
from ddp_audit.program.contracts_files import printed
from ddp_audit.program.meaning import says
from ddp_audit.program.nodes import ReportedValue
from ddp_audit.program.shown import show
from ddp_audit.program.values import DATA, Bound, Const, Expr, Value, join_taint, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_METHODS = ("info", "print", "log_metrics", "add_scalar", "add_scalars")


def note_report(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value], what: str) -> None:
    """Notes that values which can differ with the data are reported or decide something."""
    if DATA in join_taint(*args, *kwargs.values()):
        lw.emit(node, ReportedValue(args=numbered(args, kwargs), what=what))


def note_choice(lw: Lowering, test: ast.expr, value: Value) -> None:
    """Notes a comparison of something that differs with the data with the best so far: `if accuracy > best:`."""
    if not isinstance(value, Expr) or value.op not in ("<", ">", "<=", ">=") or DATA not in value.taint:
        return
    if any(says(name, "best-so-far") for name in names_in(test)):
        lw.emit(test, ReportedValue(args={"0": value}, what="choice"))


def _function(name: str) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        note_report(lw, node, args, kwargs, name)
        show(lw, node, args)
        return generic(args, kwargs, lw.text(node))

    return call


def _print(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note_report(lw, node, args, kwargs, "print")
    show(lw, node, args)
    printed(lw, node, args, kwargs)
    return Const(value=None)


def method(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`logger.info(..)`, `writer.add_scalar(..)`; `x.log()` of a tensor has nothing to tell."""
    if the_object(bound.receiver, "module", "ddp") is None:
        note_report(lw, node, args, kwargs, bound.name)
        show(lw, node, args)
    return None


CONTRACTS.names.update({name: _function(name) for name in named("reports")} | {"builtins.print": _print})
CONTRACTS.methods.update(dict.fromkeys(_METHODS, method))
