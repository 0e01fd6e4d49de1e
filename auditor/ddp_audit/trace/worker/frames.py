"""The user's frames behind a call, and what in torch made it.

A collective may come from C++ (the Reducer) and still has Python frames below it: a backward pass on CPU runs in the thread
that called it. The frames of torch tell the origin (the buffer broadcast of a forward pass, a gradient bucket, ..), and those
of the user give the site. Walking costs a dictionary look-up a frame: the verdict on a code object is kept, and so is
everything that follows from the same chain of calls.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from ddp_audit import events
from ddp_audit.trace.worker.markers import BLOCKING, CONSTRUCTOR, LIBRARIES, MARKERS, OWN_COLLECTIVES

MOST_FRAMES = 6
_DEEPEST = 400  # frames looked at before giving up

_SKIP, _USER, _MAIN = 0, 1, 2


@dataclass(slots=True, eq=False)
class Stack:
    """A chain of calls: its definition in the file, its user frames, and the origin that its torch frames tell.

    `origin` is one of events.py or `BACKWARD_ENGINE`. `frames` are (path, line, function), innermost first. `blocks`: within
    torch's `send` or `recv`, which wait for what `isend` and `irecv` return. `issuer`: what the user's innermost line called and
    what made the call in its place: an installed package, or a part of torch that communicates by itself. `engine`: what stands
    for it, once it is known, in a thread of the backward pass that was called there.
    """

    definition: int
    origin: str
    frames: list[tuple[str, int, str]]
    blocks: bool = False
    issuer: str = ""
    engine: Stack | None = None


class Frames:
    """Walks stacks. `define` writes a list of frames into the trace and returns its id."""

    def __init__(self, define: Any, torch_folder: str, cwd: str) -> None:
        self._define = define
        self._torch = os.path.join(os.path.realpath(torch_folder), "")
        self._cwd = cwd
        self._own = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
        paths = sysconfig.get_paths()
        self._stdlib = tuple({os.path.join(os.path.realpath(paths[k]), "") for k in ("stdlib", "platstdlib")})
        self._installed_main: str | None = None  # folder of an installed package that is run as the program
        self._verdicts: dict[int, int | str] = {}
        self._codes: list[CodeType] = []  # keeps the ids in _verdicts valid
        self._stacks: dict[tuple[int, ...], Stack] = {}
        self._libraries: dict[str, str] = {}  # by file
        self._paths: dict[str, str] = {}  # by file what is shown of its path
        self.empty = Stack(0, events.USER, [])

    def reset(self) -> None:
        """Forgets the stacks whose definitions were asked for before there was a file."""
        self._stacks.clear()

    def at(self, frame: FrameType | None) -> Stack:
        """The stack that begins at `frame`, innermost first."""
        key: list[int] = []
        add = key.append
        verdicts = self._verdicts
        users = 0
        start = frame
        while frame is not None:
            code = frame.f_code
            verdict = verdicts.get(id(code))
            if verdict is None:
                verdict = self._classify(code)
            if verdict:
                add(id(code))
                add(frame.f_lasti)
                if verdict == 1:
                    users += 1
                    if users == MOST_FRAMES:
                        break
                elif verdict == 2 and frame.f_globals.get("__name__") == "__main__":
                    break
            frame = frame.f_back
        found = self._stacks.get(tuple(key))
        return found if found is not None else self._resolve(tuple(key), start)

    def judge(self, code: CodeType) -> int:
        """How a frame counts in the native kernel's key, which takes the frames that `at` takes: 0 not at all, 1 the user's, 2
        the user's at the level of a module, 3 a function of torch that tells an origin. The code object is kept."""
        verdict = self._verdicts.get(id(code))
        if verdict is None:
            verdict = self._classify(code)
        return 3 if isinstance(verdict, str) else verdict

    def of_thread(self, frame: FrameType | None) -> Stack:
        """Where a thread that runs on stands. Unlike in `at`, the frames' variables are left alone: reading those of a thread that
        runs on keeps what they refer to alive."""
        lines: list[tuple[FrameType, int]] = []
        while frame is not None and len(lines) < _DEEPEST:
            lines.append((frame, frame.f_lineno or 0))
            frame = frame.f_back
        return self.of_lines(lines)

    def of_lines(self, lines: list[tuple[FrameType, int]]) -> Stack:
        """The stack of a traceback: its frames and lines, innermost first."""
        users: list[tuple[str, int, str]] = []
        for frame, line in lines:
            verdict = self._verdicts.get(id(frame.f_code))
            if verdict is None:
                verdict = self._classify(frame.f_code)
            if verdict in (_USER, _MAIN) and len(users) < MOST_FRAMES:
                users.append((self._shown(frame.f_code.co_filename), line, frame.f_code.co_name))
        return Stack(0, events.USER, users)

    def _resolve(self, key: tuple[int, ...], frame: FrameType | None) -> Stack:
        """Builds what is kept for a chain of calls that was not seen before."""
        if not key:
            return self.empty
        frames: list[tuple[str, int, str]] = []
        markers: list[str] = []
        blocks = False
        library = ""
        hook = False  # a frame of the user's that stands inside torch's backward engine and handles a gradient bucket
        deep = 0
        while frame is not None and len(frames) < MOST_FRAMES and deep < _DEEPEST:
            verdict = self._verdicts.get(id(frame.f_code), _SKIP)
            if not frames and (verdict == _SKIP or verdict == events.USER):
                name = frame.f_code.co_filename
                if name not in self._libraries:
                    self._libraries[name] = self._library(name)
                library = self._libraries[name] or library
            if verdict == BLOCKING:
                blocks = blocks or not frames
            elif isinstance(verdict, str):
                # A collective of the user's own code inside a backward pass or a forward is the user's; a communication hook is
                # not.
                if not frames or hook or markers:
                    markers.append(verdict)
            elif verdict:
                if not markers and not hook:
                    hook = any(type(v).__name__ == "GradBucket" for v in frame.f_locals.values())
                frames.append((self._shown(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name))
                if verdict == _MAIN and frame.f_globals.get("__name__") == "__main__":
                    break
            frame = frame.f_back
            deep += 1
        origin = events.USER
        if markers:
            origin = events.DDP_JOIN if events.DDP_JOIN in markers else markers[0]
            if origin == CONSTRUCTOR:
                origin = events.DDP_CONSTRUCTOR
        stack = Stack(self._define(frames) if frames else 0, origin, frames, blocks, library)
        if len(self._stacks) > 1 << 15:
            self._stacks.clear()
        self._stacks[key] = stack
        return stack

    def _classify(self, code: CodeType) -> int | str:
        verdict = self._judge(code)
        self._codes.append(code)
        self._verdicts[id(code)] = verdict
        return verdict

    def _judge(self, code: CodeType) -> int | str:
        name = code.co_filename
        if name.startswith("<"):
            return _SKIP
        path = os.path.realpath(os.path.join(self._cwd, name))
        if path.startswith(self._torch):
            inside = path[len(self._torch) :]
            if inside.startswith(OWN_COLLECTIVES):
                return events.USER
            return MARKERS.get((inside, code.co_name), _SKIP)
        if path.startswith(self._own):
            return _SKIP
        if "/site-packages/" in path or "/dist-packages/" in path:
            if not self._is_installed_main(path):
                return _SKIP
        elif path.startswith(self._stdlib):
            return _SKIP
        return _MAIN if code.co_name == "<module>" else _USER

    def _library(self, name: str) -> str:
        """The installed package of a file, or the part of torch that it belongs to; empty where neither communicates by itself."""
        path = os.path.realpath(os.path.join(self._cwd, name))
        if path.startswith(self._torch):
            inside = path[len(self._torch) :]
            return next((library for folder, library in LIBRARIES if inside.startswith(folder)), "")
        for marker in ("/site-packages/", "/dist-packages/"):
            _, found, inside = path.partition(marker)
            if found and not path.startswith(self._own):
                return inside.split("/")[0].removesuffix(".py")
        return ""

    def _is_installed_main(self, path: str) -> bool:
        """Whether `path` belongs to an installed package that is the program itself (`torchrun -m package.train`)."""
        if self._installed_main is None:
            main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
            folder = os.path.dirname(os.path.realpath(main)) if main else ""
            while folder and os.path.exists(os.path.join(os.path.dirname(folder), "__init__.py")):
                folder = os.path.dirname(folder)
            inside = os.path.exists(os.path.join(folder, "__init__.py")) and not folder.startswith(self._own)
            self._installed_main = os.path.join(folder, "") if folder and inside else ""
        return bool(self._installed_main) and path.startswith(self._installed_main)

    def _shown(self, name: str) -> str:
        known = self._paths.get(name)
        if known is None:
            known = self._paths[name] = self._show(name)
        return known

    def _show(self, name: str) -> str:
        path = os.path.realpath(os.path.join(self._cwd, name))
        inside = os.path.join(os.path.realpath(self._cwd), "")
        return path[len(inside) :] if path.startswith(inside) else path
