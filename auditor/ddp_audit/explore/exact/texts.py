"""Texts that hold values, in an interpreted run: JSON and YAML that the program itself has, and what it writes as such."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, model
from ddp_audit.explore.exact.values import PLAIN
from ddp_audit.folding import MOST_TEXT, TooLarge, weigh

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_DEEPEST = 32  # brackets of a text within one another


def _is_flat(text: str) -> bool:
    """Whether a text is short, and so shallow that no reader of it goes deep into itself."""
    if len(text) > MOST_TEXT:
        return False
    depth = most = 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        most = max(most, depth)
    return most <= _DEEPEST


@model("json.loads")
def _json(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    text = args[0] if args else None
    if not isinstance(text, str) or kwargs or not _is_flat(text):
        return unknown(text, why="what a text holds")
    it.makes(len(text))
    try:
        return json.loads(text)
    except ValueError:
        return unknown(text, why="what a text holds")


@model("yaml.safe_load", "yaml.load", "yaml.full_load")
def _yaml(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What a YAML text of the program's own holds; one with anchors or tags is not read."""
    text = args[0] if args else kwargs.get("stream")
    if not isinstance(text, str) or not _is_flat(text) or any(mark in text for mark in "&*!"):
        return unknown(text, why="what a text holds")
    it.makes(len(text))
    import yaml  # as much to load as half an audit of a script, and seldom needed

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return unknown(text, why="what a text holds")


@model("json.dumps")
def _json_text(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value = args[0] if args else None
    given = set(kwargs) - {"indent", "sort_keys"}
    if given or is_unknown((args, kwargs)) or not _is_plain(value, 0):
        return unknown(value, why="a text")
    try:
        text = json.dumps(value, **kwargs)
    except (TypeError, ValueError):
        return unknown(value, why="a text")
    it.makes(len(text))
    return text if len(text) <= MOST_TEXT else unknown(value, why="a text")


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, PLAIN):
        return True
    if depth > _DEEPEST or not isinstance(value, (list, tuple, dict)):
        return False
    try:
        weigh(value)
    except TooLarge:
        return False
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(part, depth + 1) for part in parts)


__all__ = ["CALLS"]
