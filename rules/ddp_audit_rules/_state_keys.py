"""Whose keys a saved state has, those of a wrapper or of the module inside, and whether they fit what it is loaded into."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.program.made import behind, path_key
from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import Const, Items, Made, Obj, Unknown, Value, options
from ddp_audit_rules._loaded_states import load_number
from ddp_audit_rules._writers import path_of


def mismatch(program: Program, node: Node) -> tuple[Node, bool, bool] | None:
    """The save whose keys differ from those of what is loaded, whether it is the wrapper's, and whether the paths are one."""
    into = _kind(node.target)
    read = _read(node.args.get("state"))
    if into is None or read is None:
        return None
    key, number = read
    load = program.node(number)
    path = path_of(load)
    at = None if path is None else path_key(path)
    found: list[tuple[Node, str, bool]] = []
    for save in program.of("save"):
        kind = _saved_kind(save, key)
        place = path_of(save)
        if kind is not None:
            found.append((save, kind, at is not None and place is not None and path_key(place) == at))
    same = [entry for entry in found if entry[2]] or found
    if not same or any(kind == into for _, kind, _ in same):
        return None
    save, kind, equal = same[0]
    return save, kind == "ddp", equal


def _kind(value: Value | None) -> str | None:
    """Whether a value is a wrapper or a module without one; None where it may be both or neither."""
    kinds = {option.kind if isinstance(option, Obj) else "" for option in options(value)} if value is not None else set()
    return kinds.pop() if kinds in ({"ddp"}, {"module"}) else None


def _read(state: Value | None) -> tuple[str | None, int] | None:
    """The key under which a state stands in a file that was loaded, and the number of the load; None where it was changed since."""
    key: str | None = None
    while isinstance(state, Unknown) and state.by is not None:
        by: Made = state.by
        if by.name == "torch.load":
            number = load_number(by)
            return None if number is None else (key, number)
        if by.name not in ("[]", "get") or key is not None or len(by.args) < 2:
            return None
        index = by.args[1]
        if not isinstance(index, Const) or not isinstance(index.value, str):
            return None
        key, state = index.value, by.args[0]
    return None


def _saved_kind(save: Node, key: str | None) -> str | None:
    """Of what a save holds the state under a key."""
    content = save.args.get("obj")
    if isinstance(content, Items) and content.keys is not None:
        pairs = zip(content.keys, content.items, strict=True)
        content = next((v for k, v in pairs if isinstance(k, Const) and k.value == key), None) if key is not None else None
    elif key is not None:
        return None
    return next(_states(content), None) if content is not None else None


def _states(value: Value) -> Iterator[str]:
    for inner in behind(value):
        if isinstance(inner, Unknown) and inner.by is not None and inner.by.name == "state_dict":
            kind = _kind(inner.by.args[0])
            if kind is not None:
                yield kind
