"""Whole reports, kept: where nothing changed, what was printed is printed again.

A report is a file of its own for a command line, a working directory and a tool. It holds what came out, the exit code, and what
stat tells of everything that they rest on (source/freshness.py): what the audit looked at, the settings, and the sources of the
tool and its rules. It is only kept where stat can be trusted for all of that; any other run is the business of `entries`.

A run that ends here takes little more than the start of Python: this module imports nothing that Python has not imported by then,
and is imported before the command line is parsed.
"""

from __future__ import annotations

import gc
import marshal
import os
import stat
import sys

TYPE_CHECKING = False  # as type checkers read it; the import of typing is a tenth of such a run
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddp_audit.source.freshness import Fingerprint, Fingerprints

_SHAPING = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM")  # variables that change how a report looks
_DAMAGE = (OSError, ValueError, TypeError, EOFError)


def cache_path() -> str:
    """Where the cache lies: DDP_AUDIT_CACHE, or `ddp-audit` in the user's cache folder."""
    own = os.environ.get("DDP_AUDIT_CACHE")
    if own:
        return own
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return os.path.join(base or os.path.expanduser("~/.cache"), "ddp-audit")


def again(words: Sequence[str]) -> int | None:
    """Prints the report of the same command once more, and gives its exit code; None if none still holds."""
    if "--no-cache" in words or os.environ.get("DDP_AUDIT_DEBUG"):
        return None
    was_on = gc.isenabled()
    gc.disable()  # it would go through all that is read here
    try:
        key = _key(words)
        path = _path(key)
        with open(path, "rb") as stream:
            data = stream.read()
        if _sum(data[4:]) != data[:4]:
            return None
        known, guards, kinds, text, code = marshal.loads(data[4:])
        if known != key or not _holds(guards, kinds):
            return None
    except _DAMAGE:
        return None
    finally:
        if was_on:
            gc.enable()
    sys.stdout.write(text)
    try:
        os.utime(path)  # what was used last is dropped last
    except OSError:  # a cache that can only be read
        return int(code)
    return int(code)


def keep(
    words: Sequence[str],
    fingerprints: Fingerprints,
    settings: Iterable[str],
    folders: Sequence[str],
    text: str,
    code: int,
    began: int,
) -> None:
    """Keeps what a command printed, where stat can be trusted for all of it.

    `held` is what its audit rests on, `settings` are the files that settings may stand in, `folders` have rules of the project's
    own, and `began` is when the command did, in nanoseconds since the epoch.
    """
    from pathlib import Path

    from ddp_audit.cache import files
    from ddp_audit.source.dependency_log import kind_of
    from ddp_audit.source.freshness import fingerprint_of, is_old

    guards: dict[str, Fingerprint] = {}
    kinds: dict[str, str] = {}
    for sort, rows in fingerprints.items():
        for path, (value, own) in rows.items():
            if sort == "kinds":
                kinds[path] = value
            elif own:
                guards |= own
            elif sort == "documents" and value == "" and (kind := kind_of(path.removesuffix("*"))) != "folder":
                kinds[path.removesuffix("*")] = kind
            else:
                return
    more = {path: fingerprint_of(path) for path in (*tool_paths(), *tool_paths(folders), *installed_paths())}
    for path in settings:
        guard = fingerprint_of(path)
        if guard is None:
            kinds[path] = ""
        else:
            more[path] = guard
    if not all(guard is not None and is_old(guard, began) for guard in more.values()):
        return
    known = [(path, *guard) for path, guard in (guards | more).items() if guard is not None]
    # What is not there, not even as a link, cannot come without a change of its folder.
    implied = {path for path, kind in kinds.items() if not kind and os.path.dirname(path) in guards and not os.path.lexists(path)}
    asked = [(path, kind) for path, kind in kinds.items() if path not in implied]
    key = _key(words)
    payload = marshal.dumps((key, known, asked, text, code))
    files.put(Path(_path(key)), _sum(payload) + payload)


def _holds(guards: list[tuple[str, int, int, int, int]], kinds: list[tuple[str, str]]) -> bool:
    for path, written, changed, size, number in guards:  # an OSError is the caller's
        now = os.stat(path)
        if now.st_mtime_ns != written or now.st_ctime_ns != changed or now.st_size != size or now.st_ino != number:
            return False
    for path, kind in kinds:
        try:
            mode = os.stat(path).st_mode
            now_kind = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
        except (OSError, ValueError):
            now_kind = ""
        if now_kind != kind:
            return False
    return True


def _key(words: Sequence[str]) -> tuple[list[str], list[str], str, str, list[str], list[str]]:
    """All that a report depends on besides the disk. A terminal gets another form than a file."""
    import ddp_audit
    import ddp_audit_rules

    tool = [ddp_audit.__version__, *ddp_audit.__path__, *ddp_audit_rules.__path__]
    shape = [str(sys.stdout.isatty()), *(os.environ.get(name, "") for name in _SHAPING)]
    return (list(words), shape, os.getcwd(), sys.version, tool, list(map(str, sys.path)))


def _path(key: object) -> str:
    return os.path.join(cache_path(), f"report-{_sum(repr(key).encode(errors='surrogateescape')).hex()}")


def _sum(data: bytes) -> bytes:
    import zlib

    return zlib.crc32(data).to_bytes(4, "big")


SOURCES = (".py", ".toml")  # the tool's code, and what it knows of libraries


def tool_paths(folders: Iterable[str] | None = None) -> Iterator[str]:
    """The folders of sources of the tool and the rules, and the files in them that say what the tool does."""
    import ddp_audit
    import ddp_audit_rules

    for folder in (*ddp_audit.__path__, *ddp_audit_rules.__path__) if folders is None else folders:
        yield folder
        try:
            with os.scandir(folder) as entries:
                inner = sorted((entry.path, entry.is_dir()) for entry in entries if entry.name != "__pycache__")
        except OSError:
            continue
        yield from (path for path, is_folder in inner if not is_folder and path.endswith(SOURCES))
        yield from tool_paths(path for path, is_folder in inner if is_folder)


def installed_paths() -> list[str]:
    """Folders of installed distributions, which may bring rules."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
