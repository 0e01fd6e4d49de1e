"""Kinds of what libraries have, by the last part of their names: `kinds.toml`, with the functions of `tensors.toml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ddp_audit.knowledge.reading import HERE, parse


@functools.cache
def kinds() -> Mapping[str, frozenset[str]]:
    """Return the names of each kind."""
    tables = [parse((HERE / f"{file}.toml").read_text(encoding="utf-8")) for file in ("tensors", "kinds")]
    return {kind: frozenset(names) for table in tables for kind, names in table.items() if isinstance(names, list)}


@functools.lru_cache(maxsize=16_384)
def is_kind(name: str, *wanted: str) -> bool:
    """Return whether what has a name, a full one or the last part of it, is of one of some kinds."""
    parts = name.split(".")
    ends = [".".join(parts[-count:]) for count in (1, 2, 3)]
    return any(end in kinds()[kind] for kind in wanted for end in ends)


__all__ = ["is_kind", "kinds"]
