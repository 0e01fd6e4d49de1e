"""The config values that a launch sets: the script's own arguments and the config files that they name. Nothing is executed."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddp_audit.launch.model import Launch
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source import dependency_log
from ddp_audit.source.paths import display_path
from ddp_audit.source.reading import read_text

_MAX_BYTES = 1_000_000
_CONFIG_SUFFIXES = (".py", ".json", ".toml", ".yaml", ".yml")
_NAME = lazy_compile(r"[A-Za-z_][\w.-]*$")


class Unknown:
    """The value of a name that a config file sets to something that is not a constant."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Override:
    """A value and where it came from: `config/train.py:12`, or the argument as given. `UNKNOWN` where it is not a constant."""

    value: Any
    where: str
    path: str | None = None
    line: int | None = None


def overrides_of(launch: Launch, cwd: Path | Sequence[Path]) -> dict[str, Override]:
    """What the arguments of a launch's script set, in order, the last one winning.

    Read are `--name=value`, `--name value`, `--flag`, `name=value`, and config files (`.py` with assignments at module level,
    `.json`, `.toml`, `.yaml`) given bare or as the value of an option whose name holds `config` or `cfg`. Dashes in names become
    underscores. Paths are relative to `cwd`, or to the first of several folders that has them. A config file that is not there
    sets nothing; see `missing_config_files`.
    """
    found: dict[str, Override] = {}
    args = launch.script_args
    at = 0
    while at < len(args):
        word = args[at]
        name, equals, text = word.lstrip("-").partition("=")
        if word.startswith("-") and not _is_number(word):
            if not equals and at + 1 < len(args) and not (args[at + 1].startswith("-") and not _is_number(args[at + 1])):
                at += 1
                text, equals = args[at], " "
            _set_option(found, name, text if equals else None, _argument(launch, word + equals + text if equals == " " else word))
            if equals and _names_config(name) and text.endswith(_CONFIG_SUFFIXES):
                found.update(_file_values(text, cwd))
        elif equals and _NAME.match(name):
            _set_option(found, name, text, _argument(launch, word))
        elif word.endswith(_CONFIG_SUFFIXES):
            found.update(_file_values(word, cwd))
        at += 1
    return found


def _file_values(name: str, cwd: Path | Sequence[Path]) -> dict[str, Override]:
    path = _located(name, cwd)
    first = cwd if isinstance(cwd, Path) else cwd[0]
    return config_file_values(path, name if path == first / name else display_path(path))


def missing_config_files(launch: Launch, cwd: Path | Sequence[Path]) -> list[str]:
    """The config files that a launch names and that are not there."""
    named: list[str] = []
    for index, word in enumerate(launch.script_args):
        name, equals, text = word.lstrip("-").partition("=")
        if not word.startswith("-") and not equals and word.endswith(_CONFIG_SUFFIXES):
            previous = launch.script_args[index - 1] if index else ""
            if not previous.startswith("-") or "=" in previous or _names_config(previous):
                named.append(word)
        elif equals and _names_config(name) and text.endswith(_CONFIG_SUFFIXES):
            named.append(text)
    return [name for name in named if not dependency_log.is_file(_located(name, cwd))]


def _located(name: str, folders: Path | Sequence[Path]) -> Path:
    """A file below the first of some folders that has it, else below the first one."""
    candidates = [folder / name for folder in ([folders] if isinstance(folders, Path) else folders)]
    return next((candidate for candidate in candidates if dependency_log.is_file(candidate)), candidates[0])


def config_file_values(path: Path, shown: str) -> dict[str, Override]:
    """The constants that a config file sets, by name. `shown` is the path for messages. Empty where it cannot be read."""
    if path.suffix in (".yaml", ".yml", ".json"):
        from ddp_audit.launch.manifests import config_values

        leaves = config_values(path)
        return _with_last_names({name: Override(value, f"{shown}:{line}", shown, line) for name, (value, line) in leaves.items()})
    dependency_log.content(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        text = read_text(path, _MAX_BYTES)
        if path.suffix == ".py":
            return _python_values(ast.parse(text), shown)
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        data = tomllib.loads(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return {}
    return _flat(data, shown) if isinstance(data, dict) else {}


def _argument(launch: Launch, text: str) -> str:
    place = f"the launch at {launch.where()}" if launch.path is not None else launch.where()
    return f"{text} of {place}"


def _set_option(found: dict[str, Override], name: str, text: str | None, where: str) -> None:
    key = name.replace("-", "_")
    if text is None:
        found[key] = Override(True, where)
        if key.startswith("no_"):
            found[key[3:]] = Override(False, where)
        return
    found[key] = Override(literal(text), where)


def literal(text: str) -> Any:
    """The value of an argument's text: a Python constant, `true` and `false` in any case, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.search(r"[$`{]", text):
        return UNKNOWN if re.match(r"[$`{]", text) else text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?|-?\.\d+", text))


def _names_config(name: str) -> bool:
    return "config" in name.lower() or "cfg" in name.lower()


def _python_values(tree: ast.Module, shown: str) -> dict[str, Override]:
    """Assignments of a module, followed in order. A name that a branch, loop or call may set is unknown."""
    values: dict[str, Override] = {}
    for statement in tree.body:
        where = f"{shown}:{statement.lineno}"
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            _assign(statement, values, shown, where)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    values[node.id] = Override(UNKNOWN, where, shown, statement.lineno)
    return values


def _assign(statement: ast.Assign | ast.AnnAssign | ast.AugAssign, values: dict[str, Override], shown: str, where: str) -> None:
    if statement.value is None:
        return
    known = {name: override.value for name, override in values.items()}
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = fold(statement.value, known)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        value = _binary(statement.op, known.get(statement.target.id, UNKNOWN), value)
    for target in targets:
        if isinstance(target, ast.Name):
            values[target.id] = Override(value, where, shown, statement.lineno)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value if isinstance(value, tuple | list) and len(value) == len(target.elts) else [UNKNOWN] * len(target.elts)
            for element, part in zip(target.elts, parts, strict=True):
                if isinstance(element, ast.Name):
                    values[element.id] = Override(part, where, shown, statement.lineno)


def fold(node: ast.expr, known: dict[str, Any]) -> Any:
    """The value of an expression of constants, known names, arithmetic, tuples and lists; `UNKNOWN` for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.UnaryOp):
        operand = fold(node.operand, known)
        if isinstance(node.op, ast.USub | ast.UAdd) and isinstance(operand, int | float):
            return -operand if isinstance(node.op, ast.USub) else operand
        return not operand if isinstance(node.op, ast.Not) and operand is not UNKNOWN else UNKNOWN
    if isinstance(node, ast.BinOp):
        return _binary(node.op, fold(node.left, known), fold(node.right, known))
    if isinstance(node, ast.Tuple | ast.List):
        parts = [fold(element, known) for element in node.elts]
        if any(part is UNKNOWN for part in parts):
            return UNKNOWN
        return tuple(parts) if isinstance(node, ast.Tuple) else parts
    return UNKNOWN


def _binary(operator: ast.operator, left: Any, right: Any) -> Any:
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        return UNKNOWN
    try:
        if isinstance(operator, ast.Add):
            return left + right
        if isinstance(operator, ast.Sub):
            return left - right
        if isinstance(operator, ast.Mult):
            return left * right
        if isinstance(operator, ast.Div):
            return left / right
        if isinstance(operator, ast.FloorDiv):
            return left // right
        if isinstance(operator, ast.Mod):
            return left % right
        if isinstance(operator, ast.Pow) and abs(right) <= 64 and abs(left) <= 1_000_000:
            return left**right
    except (ArithmeticError, ValueError):
        pass
    return UNKNOWN


def _flat(data: dict[str, Any], shown: str, prefix: str = "") -> dict[str, Override]:
    """Leaves of nested tables under their dotted names, and under their last name where no other leaf has it."""
    leaves: dict[str, Override] = {}

    def walk(table: dict[str, Any], start: str) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                walk(value, f"{start}{key}.")
            else:
                leaves[start + key] = Override(value, shown, shown)

    walk(data, prefix)
    return _with_last_names(leaves)


def _with_last_names(leaves: dict[str, Override]) -> dict[str, Override]:
    """Dotted names, and each last part of one that no other shares."""
    last_names = [name.rpartition(".")[2] for name in leaves]
    short = {n.rpartition(".")[2]: o for n, o in leaves.items() if last_names.count(n.rpartition(".")[2]) == 1}
    return {**short, **leaves}
