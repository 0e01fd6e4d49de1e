"""Calls that may take minutes: data that are prepared, downloads, sleeps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import named
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.code import names_in
from ddp_audit.program.meaning import says
from ddp_audit.program.names import called
from ddp_audit.program.nodes import LongWork
from ddp_audit.program.state import FunctionInfo
from ddp_audit.program.values import RANK, Ext, Func, Value, World, evaluate, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

# Kinds of methods; what functions of libraries do stands in the knowledge.
_METHODS = {"unpacks-archive": "unpacks an archive", "prepares-data": "prepares a data set", "downloads": "downloads a repository"}


def note(lw: Lowering, node: ast.Call, function: Value, args: list[Value]) -> None:
    """Notes a call that may take long, where not all ranks make it."""
    if not lw.main_first and not any(RANK in guard.test.taint for guard in lw.guards):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    library = next((o.name for o in options(function) if isinstance(o, Ext)), "")
    if library == "time.sleep":
        seconds = evaluate(args[0], World(0, 2, 2)) if args else None
        if isinstance(seconds, (int, float)):
            lw.emit(node, LongWork(what=f"sleeps for {seconds:g} seconds", seconds=float(seconds), first=lw.main_first > 0))
        return
    what = named("long-work").get(library) or next((what for kind, what in _METHODS.items() if is_kind(name, kind)), "")
    maps = name == "map" and isinstance(node.func, ast.Attribute) and args
    if not what and maps and any(isinstance(o, Func) for o in options(args[0])):
        what = "maps a function over a data set"
    if (
        not what
        and says(name, "long-work")
        and not library.startswith(("torch.", "torchvision.", "builtins.", "os."))
        and not _looks_first(function)
    ):
        what = f"runs {name}()"
    if what:
        lw.emit(node, LongWork(what=what, seconds=None, first=lw.main_first > 0))


def _looks_first(function: Value) -> bool:
    """Whether a function of the project looks whether its work is done already."""
    found = [option.definition for option in options(function) if isinstance(option, Func)]
    return any(says(name, "only-if-missing") for info in found if isinstance(info, FunctionInfo) for name in names_in(info.node))


def lets_main_first(context: ast.expr) -> bool:
    """Whether a context is called as one that lets a process through before the others, which wait at a barrier."""
    return isinstance(context, ast.Call) and says(called(context).rpartition(".")[2], "main-goes-first")
