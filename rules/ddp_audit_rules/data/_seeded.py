"""Draws in a class that are not random: those of a generator whose seed is a constant or the number of the item."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddp_audit.tree.questions import dotted, every, is_kind, says


def draws_by_chance(tree: ast.ClassDef) -> bool:
    """Whether a class draws random numbers, other than from generators that each process seeds alike."""
    seeded: set[int] = set()
    for function in every(tree):
        if isinstance(function, ast.FunctionDef):
            generators = _seeded_in(function)
            for node in _own(function):
                if isinstance(node, ast.Assign) and _names(node) & generators:
                    seeded.add(id(node.value))
                elif isinstance(node, ast.Call) and _draws_from(node, generators):
                    seeded.add(id(node.func))
                elif isinstance(node, ast.Name) and node.id in generators:
                    seeded.add(id(node))
    return any(map(_draws, every(tree, seeded)))


def _draws(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.FunctionDef(name=name) if says(
            name, "function-that-draws"
        ):
            return True
        case (
            ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name)
        ):
            return says(name, "draws")
    return False


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    return (node for node in ast.walk(function) if node is not function)


def _names(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _seeded_in(function: ast.FunctionDef) -> set[str]:
    """The generators that a function makes, by name, where each is made once and every seed of it is the same on all ranks."""
    numbers = _counters(function)
    made: dict[str, list[ast.expr | None]] = {}
    for node in _own(function):
        if isinstance(node, ast.Assign):
            for name in _names(node):
                made.setdefault(name, []).append(_seed_of(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            name = node.func.value.id
            if is_kind(node.func.attr, "sets-generator") and name in made:
                made[name].append(node.args[0] if node.func.attr == "manual_seed" and node.args else None)
    return {name for name, seeds in made.items() if all(seed is not None and _is_alike(seed, numbers) for seed in seeds)}


def _seed_of(value: ast.expr) -> ast.expr | None:
    """The seed of a generator that an expression makes; None for anything else."""
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Attribute) and value.func.attr == "manual_seed" and isinstance(value.func.value, ast.Call):
        return value.args[0] if is_kind(dotted(value.func.value.func), "generator-seeded-later") and value.args else None
    return value.args[0] if is_kind(dotted(value.func), "generator-of-seed") and value.args else None


def _counters(function: ast.FunctionDef) -> set[str]:
    """Names that nothing but a loop over range or enumerate gives a value: numbers of items."""
    counted: set[str] = set()
    stored = [node.id for node in _own(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    for node in _own(function):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name):
            target = node.target
            if node.iter.func.id == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if node.iter.func.id in ("range", "enumerate") and isinstance(target, ast.Name) and stored.count(target.id) == 1:
                counted.add(target.id)
    return counted


def _is_alike(seed: ast.expr, numbers: set[str]) -> bool:
    parts = (ast.Constant, ast.BinOp, ast.operator, ast.expr_context)
    return all(isinstance(node, parts) or (isinstance(node, ast.Name) and node.id in numbers) for node in ast.walk(seed))


def _draws_from(call: ast.Call, generators: set[str]) -> bool:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "generator"), None)
    if given is not None:
        return isinstance(given, ast.Name) and given.id in generators
    return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in generators
