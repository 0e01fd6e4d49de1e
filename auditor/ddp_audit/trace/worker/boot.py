"""Decides whether this process is a rank to trace, and installs the tracer right after `import torch`.

A process is traced when the launcher's variables are set and it is not a child of a traced rank (a DataLoader worker, a helper).
Its rank is that of RANK and WORLD_SIZE, which torchrun, accelerate and most others set; without them the file is opened when
init_process_group has made the rank known, so that srun, mpirun and torch.multiprocessing.spawn work too.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ddp_audit.trace.worker import layout, locked

# Programs that start ranks and are none themselves.
_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
_state: dict[str, Any] = {}


def start() -> None:
    """Called when the interpreter starts. Costs a look at the environment in processes that are not traced."""
    directory = os.environ.get(layout.ENV_DIRECTORY)
    if not directory or "finder" in _state or _is_launcher() or not _may_trace():
        return
    locked.guard()
    finder = _Finder()
    _state["finder"] = finder
    if "torch" in sys.modules:
        install()
    else:
        sys.meta_path.insert(0, finder)


def _may_trace() -> bool:
    owner = os.environ.get(layout.ENV_OWNER)
    return owner is None or owner == str(os.getpid())


def _is_launcher() -> bool:
    """Whether this process is torchrun or the like. Its arguments name it before those of the script that it starts."""
    words = sys.orig_argv[1:]
    for at, word in enumerate(words):
        if word == "-m":
            return at + 1 < len(words) and words[at + 1] in _LAUNCHERS
        if not word.startswith("-"):
            return os.path.basename(word) in _LAUNCHERS
    return False


def install() -> None:
    """Installs the tracer in this process. An error ends tracing with one line, and not the program."""
    if "tracer" in _state:
        return
    try:
        import torch

        if not torch.distributed.is_available():
            return
        from ddp_audit.trace.worker import native
        from ddp_audit.trace.worker.hook import Hook
        from ddp_audit.trace.worker.patches import Patches
        from ddp_audit.trace.worker.tracer import Tracer
        from ddp_audit.trace.worker.watch import Watch

        tracer = Tracer(os.path.abspath(os.environ[layout.ENV_DIRECTORY]))
        tracer.when_open = _opened
        _state["tracer"] = tracer
    except Exception as error:
        _cannot_start(error)
        return
    try:
        module = native.load_for_rank(os.environ.get(layout.ENV_NATIVE, native.AUTO))
        tracer.kernel = "python" if module is None else "native"
        rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if rank.isdigit() and world_size.isdigit() and not tracer.open(int(rank), int(world_size)):
            return  # another process of this rank is traced
        _state["patches"] = Patches(tracer)
        _state["hook"] = Hook(tracer, module)
        _state["watch"] = Watch(tracer)
        os.register_at_fork(after_in_child=_forked)
        atexit.register(_leave)
    except Exception as error:
        tracer.fail(error)


def _cannot_start(error: Exception) -> None:
    """Says that this process is not traced, and where it is a rank also in a file: nobody must take it for one that is missing."""
    try:
        from ddp_audit.trace.worker.tracer import Tracer

        rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        tracer = Tracer(os.path.abspath(os.environ[layout.ENV_DIRECTORY]))
        if rank.isdigit() and world_size.isdigit() and tracer.open(int(rank), int(world_size)):
            _state["tracer"] = tracer
            with suppress(Exception):
                from ddp_audit.trace.worker.watch import Watch

                _state["watch"] = Watch(tracer)  # goes on to show where the process stands
                os.register_at_fork(after_in_child=_forked)
                atexit.register(_leave)
            tracer.fail(error)
            return
    except Exception:  # then a line is all that can be left
        pass
    sys.stderr.write(f"ddp-audit: this process is not traced: {type(error).__name__}: {' '.join(str(error).split())[:300]}\n")


def parts() -> dict[str, tuple[Any, str]]:
    """The tracer's parts in this process: what each does, and the owner and name of its function.

    A seam for tests: they put a function that raises into a part's place and see that the training goes on.
    """
    from ddp_audit.trace.worker import fingerprint, patches

    tracer, hook, looks = _state["tracer"], _state["hook"], _state["patches"]
    return {
        "record a collective": (tracer.ring, "write") if tracer.native is None else (hook, "_signature"),
        "meet a group": (tracer, "_meet"),
        "write an event": (tracer, "_write"),
        "define": (tracer.ring, "define"),
        "walk a stack": (tracer.frames, "at"),
        "take up a wrapper": (looks.wrappers, "add"),
        "find an optimizer's wrappers": (looks.wrappers, "held_by"),
        "look at gradients": (looks, "_look_before"),
        "weigh labels": (patches, "label_weight"),
        "read the random stream": (looks._draws, "after_batch"),
        "fingerprint a batch": (looks, "_fingerprint"),
        "hash parameters": (fingerprint, "of_parameters"),
        "look for completion": (_state["watch"], "poll"),
        "leave": (looks, "leave"),
    }


def _forked() -> None:
    """In a forked child: a traced rank's file is its parent's; a process that has none yet may become a rank."""
    tracer = _state["tracer"]
    tracer.forget()
    if not tracer.failed and "watch" in _state:
        _state["watch"] = type(_state["watch"])(tracer)


def _opened() -> None:
    """The rank has its file: from now on its end is of interest."""
    if "watch" in _state:  # else it is just being made
        _state["watch"].begin()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize  # such a process ends without atexit

        Finalize(None, _leave, exitpriority=-100)


def _leave() -> None:
    tracer = _state["tracer"]
    if "watch" in _state and os.getpid() == tracer.pid:
        _state["watch"].stop()
    if tracer.failed or "left" in _state or os.getpid() != tracer.pid:
        return
    _state["left"] = True
    try:
        solo = os.environ.get(layout.ENV_SOLO)
        if tracer.ring is None and solo == str(os.getppid()) and not _has_ranks(tracer.directory):
            tracer.open(0, 1)  # plain python that made no process group
        if "watch" in _state:
            _state["watch"].poll(time.time())
        _state["patches"].leave()
    except Exception as error:
        tracer.fail(error)


def _has_ranks(directory: str) -> bool:
    return os.path.isdir(directory) and any(name.endswith(".ddptrace") for name in os.listdir(directory))


class _Finder:
    """A finder that leaves the work to the others and installs the tracer when the module torch has been executed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if _may_trace():
                    install()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
