"""Whether what a definition says has the types that the tracer writes: a file of any other writer is damaged, and nothing that
compares needs to ask again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ddp_audit.events import START

_NONE = type(None)
_NUMBER = (int, _NONE)
_TEXT = (str, _NONE)

_NUMBERS = (
    "rank", "world_size", "pid", "ticks", "thread", "restart", "epoch", "share", "steps", "optimizer_steps", "frozen", "forward",
    "step", "joins", "passes", "backward", "seed", "replicas", "loader", "given", "unexpected", "request", "code",
)  # fmt: skip
_TEXTS = (
    "host", "cwd", "run", "torch", "python", "kernel", "model", "module", "optimizer", "scheduler", "library", "action", "name",
    "group", "backend", "type", "text", "hash", "path", "samples", "order", "state", "before", "at", "layout", "desc",
)  # fmt: skip
_FLAGS = ("grad", "training", "sync", "unreduced", "shuffle", "own", "sent", "mean", "hook", "changed", "cut")
_LISTS = ("parameters", "buffers", "devices", "settings", "hashes", "argv", "models", "factors", "ranks")
_KEYS: dict[str, tuple[type, ...]] = {  # of the details of events
    **dict.fromkeys(_NUMBERS, _NUMBER),
    **dict.fromkeys(_TEXTS, _TEXT),
    **dict.fromkeys(_FLAGS, (bool, _NONE)),
    **dict.fromkeys(_LISTS, (list, _NONE)),
    "options": (dict, _NONE),
}
_COLLECTIVE: dict[str, tuple[type, ...]] = {
    "op": (str,), "group": (str,), "origin": (str,), "call": (str,), "numel": _NUMBER, "dtype": _TEXT, "shape": (list, _NONE),
    "root": _NUMBER, "reduce_op": _TEXT, "async": (bool, _NONE), "peer": _NUMBER, "tag": _NUMBER, "library": _TEXT, "stack": (int,),
}  # fmt: skip
_START: dict[str, tuple[type, ...]] = {"rank": (int,), "world_size": (int,), "pid": (int,), "host": (str,), "run": (str,)}
_EVENT: dict[str, tuple[type, ...]] = {"kind": (str,), "group": (str,), "stack": (int,), "detail": (dict,)}


def _is_triple(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], int)


_ITEMS: dict[str, Callable[[Any], bool]] = {
    "parameters": _is_triple,
    "buffers": _is_triple,
    **dict.fromkeys(("devices", "settings", "hashes", "models"), lambda value: isinstance(value, str)),
    "ranks": lambda value: isinstance(value, int),
}


def check(text: Mapping[str, Any]) -> None:
    """Raises ValueError for a definition of a collective or an event that says what the tracer does not."""
    _check(text, _EVENT if "kind" in text else _COLLECTIVE)
    detail = text.get("detail") or {}
    _check(detail, _KEYS)
    if text.get("kind") == START:
        _check(detail, _START)
    for key, fits in _ITEMS.items():
        value = detail.get(key)
        if isinstance(value, list) and not all(map(fits, value)):
            raise ValueError(f"{key} holds something else")


def _check(values: Mapping[str, Any], keys: Mapping[str, tuple[type, ...]]) -> None:
    for key, value in values.items():
        kinds = keys.get(key)
        if kinds is not None and not isinstance(value, kinds):
            raise ValueError(f"{key} is {type(value).__name__}")
