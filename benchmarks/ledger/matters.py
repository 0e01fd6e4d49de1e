"""Which statements of a project decide something: what is communicated, stepped, wrapped, raised, or whether the code is left.

A function matters where it does one of these or calls, by name, one that does: names are enough to count with.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

_ACTS = frozenset({
    "all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "barrier",
    "broadcast", "broadcast_object_list", "gather", "gather_object", "isend", "irecv", "monitored_barrier", "recv",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "init_process_group",
    "destroy_process_group", "new_group", "DistributedDataParallel", "DDP", "DistributedSampler", "convert_sync_batchnorm",
    "no_sync", "join", "backward", "step", "spawn", "launch", "exit", "_exit", "quit", "abort",
})  # fmt: skip
_LEAVES = (ast.Return, ast.Break, ast.Continue)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Reach:
    """The functions of some files that matter, by name, and the statements that a condition of theirs decides."""

    def __init__(self, trees: Iterable[tuple[str, ast.Module]]) -> None:
        self._trees = dict(trees)

    @cached_property
    def _acting(self) -> frozenset[str]:
        called: dict[str, set[str]] = defaultdict(set)
        for tree in self._trees.values():
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    called[node.name] |= _called_in(node)
        acting = {name for name, inner in called.items() if inner & _ACTS}
        while more := {name for name, inner in called.items() if name not in acting and inner & acting}:
            acting |= more
        return frozenset(acting)

    @cached_property
    def _deciders(self) -> dict[tuple[str, int], list[tuple[ast.AST, bool]]]:
        """By path and line of a condition or of what a loop goes over: what it decides, and whether the code around it matters."""
        found: dict[tuple[str, int], list[tuple[ast.AST, bool]]] = defaultdict(list)
        for path, tree in self._trees.items():
            self._note(path, tree, self.acts(tree), found)
        return found

    def _note(self, path: str, node: ast.AST, around: bool, found: dict[tuple[str, int], list[tuple[ast.AST, bool]]]) -> None:
        for child in ast.iter_child_nodes(node):
            inside = self.acts(child) if isinstance(child, (*_FUNCTIONS, ast.For, ast.AsyncFor, ast.While)) else around
            test = child.iter if isinstance(child, (ast.For, ast.AsyncFor, ast.comprehension)) else getattr(child, "test", None)
            if test is not None:
                found[path, test.lineno].append((child, inside))
            self._note(path, child, inside, found)

    def acts(self, node: ast.AST) -> bool:
        """Whether something in a statement communicates, steps, wraps or ends the process, here or in a function that it calls."""
        names = _called_in(node)
        return bool(names & _ACTS or names & self._acting)

    def decides(self, place: str) -> bool:
        """Whether the condition or loop at a place (`train.py:12`) decides something; True for one that holds neither."""
        path, _, line = place.rpartition(":")
        found = self._deciders.get((path, int(line)))
        return found is None or any(self._decides(node, around) for node, around in found)

    def _decides(self, node: ast.AST, around: bool) -> bool:
        if isinstance(node, ast.Assert):
            return True
        arms = [node] if not isinstance(node, (ast.If, ast.IfExp)) else _arms(node)
        if any(self.acts(arm) for arm in arms):
            return True
        inner = [each for arm in arms for each in ast.walk(arm)]
        if isinstance(node, ast.If) and around and any(isinstance(each, _LEAVES) for each in inner):
            return True
        return any(isinstance(each, ast.Raise) for each in inner)


def _arms(node: ast.If | ast.IfExp) -> list[ast.AST]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]


def _called_in(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            function = inner.func
            names.add(
                function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
            )
    return names
