"""Records what sets the course of a training: where optimizers are made, how often schedulers step, which generator states are
restored.

Each patch calls the original with the same arguments and returns what it returned. Inside of torch.compile nothing is recorded.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint
from ddp_audit.trace.worker.patching import put_around
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.warned import point_past

_MOST_RESTORED = 64  # restored generator states that are recorded
_MOST_READ = 64  # states that are known again
_MOST_MADE = 64  # optimizers
_EVERY = 500  # steps of a scheduler from one record to the next, after those at 1, 2, 4, ..
_SCHEDULERS = ("LRScheduler", "SequentialLR", "ChainedScheduler", "ReduceLROnPlateau", "CosineAnnealingWarmRestarts")


class _Steps:
    """The steps of a scheduler, and those of its optimizer since the first of them came."""

    __slots__ = ("_before", "count", "names", "of_optimizer", "stack", "written")

    def __init__(self, scheduler: Any, optimizer_steps: int) -> None:
        self.names = {"scheduler": type(scheduler).__name__, "optimizer": type(scheduler.optimizer).__name__}
        self._before = max(0, optimizer_steps - 1)
        self.count = self.of_optimizer = self.written = 0
        self.stack: Any = None

    def add(self, optimizer_steps: int) -> bool:
        """Counts a step; whether it is to be written."""
        self.count += 1
        self.of_optimizer = optimizer_steps - self._before
        return self.count % _EVERY == 0 or (self.count < _EVERY and self.count & (self.count - 1) == 0)


class Settings:
    """Installs the patches. `record` writes an event at the user's line, `safely` calls a part of the tracer whose error must not
    reach the program."""

    def __init__(self, tracer: Tracer, record: Callable[..., Any], safely: Callable[..., Any]) -> None:
        self._tracer = tracer
        self._record = record
        self._safely = safely
        point_past(lr_scheduler)
        self._optimizers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # their steps
        self._schedulers: weakref.WeakKeyDictionary[Any, _Steps] = weakref.WeakKeyDictionary()
        self._all: list[_Steps] = []
        self._within = 0  # steps of schedulers: those of a scheduler's constructor and of its parts do not count
        self._restored = self._made = 0
        self._read: dict[int, None] = {}  # hashes of the states that the program has read, the newest last
        self._wrap(Optimizer, "__init__", self._make)
        if hasattr(lr_scheduler.LRScheduler, "_initial_step"):
            self._wrap(lr_scheduler.LRScheduler, "_initial_step", self._inside)
        for name in _SCHEDULERS:
            scheduler = getattr(lr_scheduler, name, None)
            if scheduler is not None and "step" in vars(scheduler):
                self._wrap(scheduler, "step", self._step)
        self._wrap(torch, "get_rng_state", self._read_state, also=(torch.random,))
        self._wrap(torch, "set_rng_state", self._restore, also=(torch.random,))

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any], also: tuple[Any, ...] = ()) -> None:
        put_around(owner, name, around, lambda: self._tracer.failed, also)

    # -- optimizers and schedulers

    def _make(self, original: Any, optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        self._safely(self._made_event, optimizer)
        return result

    def _made_event(self, optimizer: Any) -> None:
        self._made += 1
        if self._made <= _MOST_MADE:
            values = {
                f"{name} {value!r}": None
                for group in optimizer.param_groups
                for name, value in sorted(group.items())
                if isinstance(value, (bool, int, float))
            }
            self._record(events.MADE, optimizer=type(optimizer).__name__, settings=tuple(values)[:32])

    def stepped(self, optimizer: Any) -> None:
        """Counts a step of an optimizer."""
        self._optimizers[optimizer] = self._optimizers.get(optimizer, 0) + 1

    def _inside(self, original: Any, scheduler: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._within += 1
        try:
            return original(scheduler, *args, **kwargs)
        finally:
            self._within -= 1

    def _step(self, original: Any, scheduler: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not self._within:
            self._safely(self._count, scheduler)
        return self._inside(original, scheduler, *args, **kwargs)

    def _count(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is None:
            return
        done = self._optimizers.get(optimizer, 0)
        steps = self._schedulers.get(scheduler)
        if steps is None:
            steps = self._schedulers[scheduler] = _Steps(scheduler, done)
            if len(self._all) < _MOST_MADE:
                self._all.append(steps)
        if steps.add(done):
            steps.stack = steps.stack or self._tracer.frames.at(sys._getframe(1))
            self._write(steps)

    def _write(self, steps: _Steps) -> None:
        detail = {**steps.names, "optimizer_steps": steps.of_optimizer, "library": steps.stack.issuer}
        steps.written = steps.count
        self._tracer.event(events.SCHEDULER, detail=detail, number=steps.count, stack=steps.stack)

    def leave(self) -> None:
        """Writes how often each scheduler has stepped in all, also of those that are gone."""
        for steps in self._all:
            if steps.written != steps.count:
                self._write(steps)

    # -- generators

    # torch reads and restores states by itself around what it computes again: those are not a resume.

    def _read_state(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        state = original(*args, **kwargs)
        if self._restored < _MOST_RESTORED and not _is_of_torch(sys._getframe(2)):
            self._safely(self._keep, state)
        return state

    def _keep(self, state: torch.Tensor) -> None:
        value = fingerprint.of_parameters([state])
        self._read.pop(value, None)
        self._read[value] = None
        if len(self._read) > _MOST_READ:
            del self._read[next(iter(self._read))]

    def _restore(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        state = args[0] if args else kwargs.get("new_state")
        if self._restored < _MOST_RESTORED and isinstance(state, torch.Tensor) and not _is_of_torch(sys._getframe(2)):
            self._safely(self._restored_event, state)
        return original(*args, **kwargs)

    def _restored_event(self, state: torch.Tensor) -> None:
        self._restored += 1
        before, value = fingerprint.of_parameters([torch.default_generator.get_state()]), fingerprint.of_parameters([state])
        self._record(events.RESTORED, value=value, before=f"{before:016x}", own=value in self._read)


def _is_of_torch(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("torch.")
