"""What the gate learns of contents, kept from one audit to the next: that they parse, what they import, which are scripts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddp_audit.source import dependency_log

if TYPE_CHECKING:
    from ddp_audit.source.files import SourceFile


@dataclass(slots=True)
class Facts:
    """Facts by the hash of a content. Each is [imports, is a script]; None where nothing asked for it yet.

    With `keeps` unset nothing is hashed and nothing learned, as in an audit without a cache.
    """

    keeps: bool = False
    known: dict[str, list[Any]] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)  # in this run
    _of_path: dict[str, str] = field(default_factory=dict)

    def parses(self, path: str, data: bytes) -> bool:
        """Whether it is known that a content parses."""
        return self.keeps and self._key(path, data) in self.known

    def learn(self, path: str, data: bytes) -> None:
        """Takes up that a content parses."""
        if self.keeps:
            self.known.setdefault(self._key(path, data), [None, None])

    def imports(self, file: SourceFile, find: Callable[[ast.Module], Iterable[tuple[str, int]]]) -> Iterable[tuple[str, int]]:
        """Each (module, level) that a file's import statements may load, by `find` where it is not known."""
        fact = self._fact(file)
        if fact is None:
            return find(file.tree)
        if not isinstance(fact[0], list):
            fact[0] = list(dict.fromkeys(find(file.tree)))
        return [(module, level) for module, level in fact[0]]

    def is_main(self, file: SourceFile, find: Callable[[ast.Module], bool]) -> bool:
        """Whether a file has a part that runs only as a script, by `find` where that is not known."""
        fact = self._fact(file)
        if fact is None:
            return find(file.tree)
        if not isinstance(fact[1], bool):
            fact[1] = find(file.tree)
        return bool(fact[1])

    def _fact(self, file: SourceFile) -> list[Any] | None:
        return self.known.get(self._of_path.get(file.abspath, ""))

    def _key(self, path: str, data: bytes) -> str:
        key = dependency_log.digest(data) + ("n" if path.endswith(".ipynb") else "")
        self._of_path[path] = key
        self.used[key] = None
        return key
