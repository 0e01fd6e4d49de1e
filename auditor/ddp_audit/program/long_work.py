"""Calls that may take minutes: data that are prepared, downloads, sleeps."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import named
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.program.code import names_in
from ddp_audit.program.nodes import LongWork
from ddp_audit.program.state import FunctionInfo
from ddp_audit.program.values import RANK, Ext, Func, Value, World, evaluate, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

# By the name of a method; functions of libraries stand in the knowledge.
_METHODS = {
    "extractall": "unpacks an archive",
    "download_and_prepare": "prepares a data set",
    "snapshot_download": "downloads a repository",
}
# By the name of a function of the project, or of one that could not be followed.
_NAMED = lazy_compile(
    r"^_?((pre_?process|token(ize|ise)|encode)_?(all|data\w*|corpus|files|shards|and_\w+)|download(_(all|data\w*|corpus|and_\w+))?|prepare_data(set)?|"
    r"(build|create|make)_?(cache|index|vocab(ulary)?|lmdb)|extract_features)$"
)
_DONE = lazy_compile(r"exist|cached|is_?file|is_?dir", re.IGNORECASE)
_FIRST = lazy_compile(r"main_process_first|main_first|rank_zero_first|rank0_first|torch_distributed_zero_first")


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
    what = named("long-work").get(library) or _METHODS.get(name, "")
    maps = name == "map" and isinstance(node.func, ast.Attribute) and args
    if not what and maps and any(isinstance(o, Func) for o in options(args[0])):
        what = "maps a function over a data set"
    if (
        not what
        and _NAMED.match(name)
        and not library.startswith(("torch.", "torchvision.", "builtins.", "os."))
        and not _looks_first(function)
    ):
        what = f"runs {name}()"
    if what:
        lw.emit(node, LongWork(what=what, seconds=None, first=lw.main_first > 0))


def _looks_first(function: Value) -> bool:
    """Whether a function of the project looks whether its work is done already."""
    found = [option.definition for option in options(function) if isinstance(option, Func)]
    return any(_DONE.search(name) for info in found if isinstance(info, FunctionInfo) for name in names_in(info.node))


def lets_main_first(text: str) -> bool:
    """Whether a context lets one process through before the others, which wait at a barrier."""
    return bool(_FIRST.search(text))
