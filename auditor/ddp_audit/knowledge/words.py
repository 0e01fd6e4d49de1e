"""Words in names that users choose, as `words.toml` lists them by what they mean: the one place where a name counts as evidence."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from ddp_audit.knowledge.reading import HERE, parse, texts

# `numGPUs` is num, GPUs; `SyncBatchNorm2d` is Sync, Batch, Norm, 2, d.
_WORD = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CUT = 2_000  # letters of a text that are read


@functools.cache
def meanings() -> Mapping[str, tuple[str, ...]]:
    """Return the entries of each meaning, each as `spelled` writes the names that have it, with `^` or `$` that begin or end so."""
    table = parse((HERE / "words.toml").read_text(encoding="utf-8"))
    return {meaning: tuple(map(_entry, texts(entries, meaning))) for meaning, entries in table.items()}


def _entry(entry: str) -> str:
    words = spelled(entry.strip("^*$"))
    inner = words[1 if entry.startswith("*") else 0 : -1 if entry.endswith("*") else None]
    return "^" * entry.startswith("^") + inner + "$" * entry.endswith("$")


def spelled(name: str) -> str:
    """Return a name as its words in lower case, with `_` before, between and after them."""
    return f"_{'_'.join(_WORD.findall(name[:_CUT])).lower()}_"


@functools.lru_cache(maxsize=16_384)
def says(name: str, meaning: str) -> bool:
    """Return whether a name, or a text, has a word of a meaning."""
    words = f"^{spelled(name)}$"
    return any(entry in words for entry in meanings()[meaning])


def names_class(name: str) -> bool:
    """Return whether a name is written as those of classes are: `Tokenizer`, `_Cache`."""
    bare = name.lstrip("_")
    return bare[:1].isupper() and any(letter.islower() for letter in bare)


__all__ = ["meanings", "names_class", "says", "spelled"]
