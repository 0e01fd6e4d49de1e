"""Which files git ignores: .gitignore files of a folder, of those above it up to the repository's root, and .git/info/exclude.

The patterns are those of gitignore(5), matched as git does, on bytes. `Ignored` is the entrance. A pattern may come from anybody,
so matching takes time in proportion to the pattern and the path: no regular expression is made of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ddp_audit.source import dependency_log
from ddp_audit.source.reading import read_regular

NAME = ".gitignore"
_MOST_BYTES = 500_000
_MOST_PATTERNS = 5_000  # of one file; those after them are left out
_SLASH = ord("/")
_ANY = frozenset(range(256))
_NO_SLASH = _ANY - {_SLASH}
_CLASSES: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda c: chr(c).isalnum(), b"alpha": lambda c: chr(c).isalpha(), b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127, b"digit": lambda c: 48 <= c <= 57, b"graph": lambda c: 33 <= c <= 126,
    b"lower": lambda c: 97 <= c <= 122, b"print": lambda c: 32 <= c <= 126, b"punct": lambda c: chr(c).isprintable()
    and not chr(c).isalnum() and c != 32, b"space": lambda c: c in b" \t\n\r\v\f", b"upper": lambda c: 65 <= c <= 90,
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a pattern: a set of bytes, of which it takes one, or with `many` any number.

    `**/` is two: `folders` takes nothing, and leads to the next or past it; the next, with `ends_folder`, takes any bytes up to
    and with a slash.
    """

    bytes: frozenset[int] = frozenset()
    many: bool = False
    folders: bool = False
    ends_folder: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a .gitignore. `steps` are empty where `literal` says all."""

    negated: bool
    only_folders: bool
    by_name: bool  # without a slash: any name below the file's folder
    literal: bytes | None
    steps: tuple[Step, ...]

    def fits(self, text: bytes) -> bool:
        """Whether a name, or a path from the file's folder, is what the pattern means."""
        return text == self.literal if self.literal is not None else _fits(self.steps, text)


class Ignored:
    """The rules for what lies in one folder, the nearest file of patterns last."""

    def __init__(self, files: Sequence[tuple[str, list[Pattern]]] = ()) -> None:
        self._files = list(files)

    @classmethod
    def of(cls, folder: str) -> Ignored:
        """Return the rules for a folder given by its absolute path, with those of the folders above it in its repository."""
        above, current = [folder], folder
        while not dependency_log.exists(os.path.join(current, ".git")):
            if os.path.dirname(current) == current:
                above = [folder]  # not in a repository
                break
            current = os.path.dirname(current)
            above.append(current)
        else:
            exclude = _read(os.path.join(current, ".git", "info", "exclude"))
            return cls._joined([(current, exclude)] if exclude else [], above[::-1])
        return cls._joined([], above)

    @classmethod
    def _joined(cls, files: list[tuple[str, list[Pattern]]], folders: Iterable[str]) -> Ignored:
        for folder in folders:
            patterns = _read(os.path.join(folder, NAME))
            files += [(folder, patterns)] if patterns else []
        return cls(files)

    def inside(self, folder: str) -> Ignored:
        """Return the rules for a folder right below."""
        patterns = _read(os.path.join(folder, NAME))
        return Ignored([*self._files, (folder, patterns)]) if patterns else self

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether git ignores a file or folder, given that it does not ignore the folder that it lies in."""
        for folder, patterns in reversed(self._files):
            below = os.fsencode(path[len(folder) :].lstrip(os.sep).replace(os.sep, "/"))
            name = below.rsplit(b"/", 1)[-1]
            for pattern in reversed(patterns):
                if (is_folder or not pattern.only_folders) and pattern.fits(name if pattern.by_name else below):
                    return not pattern.negated
        return False


def _read(path: str) -> list[Pattern]:
    if not dependency_log.is_file(path):
        return []
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError:
        return []
    dependency_log.content(path, data)
    return parse(data)


def parse(data: bytes) -> list[Pattern]:
    """Return the patterns of a file, in order."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = [_pattern(line.removesuffix(b"\r")) for line in lines[: 4 * _MOST_PATTERNS]]
    return [pattern for pattern in found if pattern is not None][:_MOST_PATTERNS]


def _pattern(line: bytes) -> Pattern | None:
    if line.startswith(b"#"):
        return None
    line = _without_trailing_spaces(line)
    negated = line.startswith(b"!")
    line = line[negated:]
    only_folders = line.endswith(b"/")
    line = line[: len(line) - only_folders]
    if not line:
        return None
    by_name = b"/" not in line
    line = line.removeprefix(b"/")
    if not any(special in line for special in b"*?[\\"):
        return Pattern(negated, only_folders, by_name, line, ())
    steps = _steps(line, by_name)
    return None if steps is None else Pattern(negated, only_folders, by_name, None, tuple(steps))


def _without_trailing_spaces(line: bytes) -> bytes:
    end, at = 0, 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 2
            end = min(at, len(line))
            continue
        at += 1
        if line[at - 1 : at] != b" ":
            end = at
    return line[:end]


def _steps(line: bytes, by_name: bool) -> list[Step] | None:
    """The steps of a pattern; None for one that fits nothing."""
    anything = _ANY if by_name else _NO_SLASH
    steps: list[Step] = []
    at = 0
    while at < len(line):
        byte = line[at]
        if byte == ord("*"):
            start = at
            while at < len(line) and line[at] == byte:
                at += 1
            bounded = (start == 0 or line[start - 1] == _SLASH) and (at == len(line) or line[at] == _SLASH)
            if at - start > 1 and bounded and not by_name:
                if at < len(line):
                    steps += [Step(folders=True), Step(_ANY, many=True, ends_folder=True)]
                    at += 1
                else:
                    steps.append(Step(_ANY, many=True))
            else:
                steps.append(Step(anything, many=True))
            continue
        if byte == ord("?"):
            steps.append(Step(anything))
        elif byte == ord("["):
            bracket = _bracket(line, at)
            if bracket is None:
                return None
            steps.append(Step(bracket[0] & anything))
            at = bracket[1]
            continue
        elif byte == ord("\\"):
            at += 1
            if at == len(line):
                return None
            steps.append(Step(frozenset({line[at]})))
        else:
            steps.append(Step(frozenset({byte})))
        at += 1
    return steps


def _bracket(line: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """The bytes of `[..]` and where it ends; None where it does not end, so that the pattern fits nothing."""
    at += 1
    negated = line[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    first, before = True, None  # `before` is what a range can begin with
    while first or line[at : at + 1] != b"]":
        first = False
        if at >= len(line):
            return None
        byte = line[at]
        if byte == ord("-") and before is not None and at + 1 < len(line) and line[at + 1 : at + 2] != b"]":
            at += 1
            if line[at] == ord("\\"):
                at += 1
                if at >= len(line):
                    return None
            found.update(range(before, line[at] + 1))
            before = None
        elif byte == ord("[") and line[at + 1 : at + 2] == b":":
            end = line.find(b"]", at + 2)
            if end < 0:
                return None
            if line[end - 1 : end] == b":" and end - 1 >= at + 2:
                named = _CLASSES.get(line[at + 2 : end - 1])
                if named is None:
                    return None
                found.update(c for c in range(128) if named(c))
                at, before = end, None
            else:
                found.add(byte)
                before = byte
        else:
            if byte == ord("\\"):
                at += 1
                if at >= len(line):
                    return None
                byte = line[at]
            found.add(byte)
            before = byte
        at += 1
    return (_ANY - found if negated else frozenset(found)), at + 1


def _fits(steps: tuple[Step, ...], text: bytes) -> bool:
    """Whether a text is what steps say: all places in the pattern that the bytes so far can lead to, byte by byte."""
    places = _without_bytes(steps, [0])
    for byte in text:
        following: list[int] = []
        for place in places:
            if place == len(steps) or byte not in steps[place].bytes:
                continue
            step = steps[place]
            if step.many:
                following.append(place)
            if not step.many or (step.ends_folder and byte == _SLASH):
                following.append(place + 1)
        places = _without_bytes(steps, following)
        if not places:
            return False
    return len(steps) in places


def _without_bytes(steps: tuple[Step, ...], places: list[int]) -> set[int]:
    """Places, and those that follow where a step takes nothing."""
    found, queue = set(places), list(places)
    for place in queue:
        if place == len(steps):
            continue
        step = steps[place]
        after = [place + 1] if step.many and not step.ends_folder else [place + 1, place + 2] if step.folders else []
        queue += [one for one in after if one not in found]
        found.update(after)
    return found
