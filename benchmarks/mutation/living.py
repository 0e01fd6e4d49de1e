"""Mutants in a process that has imported and collected everything: a fork of it gets the changed functions and runs the tests.

Most mutants change what is inside a function. Their functions' code is exchanged in the fork, wherever the functions are held, so
that a mutant costs the tests that notice it and nothing else. What runs at import cannot be exchanged: `exchange` says so.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest

TOO_LONG = -1
_MOST_MEMORY = 6 << 30
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True)
class Change:
    """A module's other text, and what it makes of the code of functions."""

    module: str
    text: str
    codes: dict[CodeType, CodeType]


class Living:
    """A plugin of pytest: `work` gets it once the tests are collected, instead of their being run."""

    def __init__(self, tree: Path, work: Callable[[Living], None]) -> None:
        self._tree = tree
        self._work = work
        self._failing_without: set[str] = set()
        self._passing_without: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        inside = str(self._tree / "auditor")
        self._functions: dict[tuple[str, CodeType], list[FunctionType]] = {}
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(inside):
                self._functions.setdefault((found.__code__.co_filename, found.__code__), []).append(found)
        gc.freeze()
        self._work(self)
        return True

    def knows(self, test: str) -> bool:
        return test in self._items

    def is_traced(self, test: str) -> bool:
        """Whether a test starts real ranks."""
        item = self._items[test]
        return item.get_closest_marker("traced") is not None or "forked" in getattr(item, "fixturenames", ())

    def noticed_by(self, change: Change, tests: Sequence[tuple[str, float]]) -> str | int | None:
        """The test that fails with a change, None where none does; TOO_LONG where they took many times their time.

        A test that fails without the change too is left out.
        """
        rest = [(test, seconds) for test, seconds in tests if test not in self._failing_without]
        while rest:
            with changed_file(self._tree / change.module, change.text):
                failed = self._forked(change, rest)
            if not isinstance(failed, str) or failed in self._passing_without:
                return failed
            if self._forked(None, [(failed, dict(rest).get(failed, 0.0))]) is None:
                self._passing_without.add(failed)
                return failed
            self._failing_without.add(failed)
            print(f"fails without a mutant too, and is left out: {failed}", flush=True)
            rest = [(test, seconds) for test, seconds in rest if test != failed]
        return None

    def _forked(self, change: Change | None, tests: Sequence[tuple[str, float]]) -> str | int | None:
        seconds = sum(took for _, took in tests)
        told = self._tree / "running.txt"
        told.write_text("before any test", encoding="utf-8")
        child = os.fork()
        if not child:
            self._be_tests(change, [self._items[test] for test, _ in tests], told, seconds)
        code = waited_for(child, seconds)
        return None if code == 0 else TOO_LONG if code in (None, -signal.SIGXCPU) else told.read_text(encoding="utf-8")

    def _be_tests(self, change: Change | None, items: Sequence[pytest.Item], told: Path, seconds: float) -> None:
        code = 3
        try:
            limit_and_redirect(self._tree, seconds)
            if change is not None:
                for old, new in change.codes.items():
                    for function in self._functions.get((str(self._tree / change.module), old), ()):
                        function.__code__ = new
            for item, following in zip(items, [*items[1:], None], strict=True):
                told.write_text(item.nodeid, encoding="utf-8")
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._session.testsfailed:
                    os._exit(1)
            code = 0
        finally:
            os._exit(code)


@contextmanager
def changed_file(file: Path, text: str) -> Iterator[None]:
    """Another text in a file for a while, which Python also compiles."""
    before = file.read_text(encoding="utf-8")
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    try:
        file.write_text(text, encoding="utf-8")
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def limit_and_redirect(tree: Path, seconds: float) -> None:
    """In a forked process: its own group, limits for CPU seconds and memory, and its output in a file."""
    os.setsid()
    os.chdir(tree)
    cpu = int(sum(os.times()[:2]) + 30 + 6 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    with (tree / "output.txt").open("wb", buffering=0) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)


def waited_for(child: int, seconds: float) -> int | None:
    """The exit code of a forked process, which is ended with its group; None where it took too long."""
    until = time.monotonic() + 120 + 20 * seconds  # other work may hold the machine; the limit that counts is that of CPU seconds
    code: int | None = None
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def exchange(path: Path, before: str, after: str) -> dict[CodeType, CodeType] | None:
    """The code of the functions that a change of a module changes; None where something else than a function changes."""
    found: dict[CodeType, CodeType] = {}
    old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (before, after))
    return found if _compared(old, new, found) else None


def _compared(old: CodeType, new: CodeType, found: dict[CodeType, CodeType]) -> bool:
    if old == new:
        return True
    is_function = bool(old.co_flags & 0x2)  # CO_NEWLOCALS: neither a module nor the body of a class
    inner_old, inner_new = ([const for const in code.co_consts if isinstance(const, CodeType)] for code in (old, new))
    if is_function:
        if old.co_freevars != new.co_freevars:
            return False
        found[old] = new
        if len(inner_old) == len(inner_new):
            return all(_compared(a, b, found) for a, b in zip(inner_old, inner_new, strict=True))
        return True
    if len(inner_old) != len(inner_new) or _own(old) != _own(new):
        return False
    if any(a != b and a.co_name in _COMPREHENSIONS for a, b in zip(inner_old, inner_new, strict=True)):
        return False  # it ran at import and nothing holds it
    return all(_compared(a, b, found) for a, b in zip(inner_old, inner_new, strict=True))


def _own(code: CodeType) -> tuple[object, ...]:
    consts = [(type(const), repr(const)) for const in code.co_consts if not isinstance(const, CodeType)]
    return (code.co_code, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars, consts)
