"""Looks at what ranks should have in common: hashes of parameters, gradients and optimizer state, and factors of gradients.

Looked at is what surrounds some optimizer steps of each wrapper: 1, 2, 4, .. and every 50th, the first after something was
saved, and the end. The hashes are compared when the run is read, never between the processes. On a device a look waits for what
was asked of it before.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint, layout
from ddp_audit.trace.worker.buffers import Buffers
from ddp_audit.trace.worker.factor import multipliers
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.wrappers import Multipliers, Wrapper, Wrappers

_MOST_LOSSES = 256  # backward passes of one step whose losses are looked at
_MOST_RANKS = 64  # that look for a file before each step

Record = Callable[..., Any]


class StateSampler:
    """The looks of one rank. `record` writes an event at the user's line."""

    def __init__(self, tracer: Tracer, wrappers: Wrappers, buffers: Buffers, record: Record) -> None:
        self._tracer = tracer
        self._wrappers = wrappers
        self._buffers = buffers
        self._record = record
        every = os.environ.get(layout.ENV_HASH_EVERY, "50")
        self._every = int(every) if every.isdigit() and int(every) else 50
        self._descriptor: int | None = None  # of the file of saves; -1 without one
        self._seen = _size_of(self._file())  # of that file
        self._saved: dict[str, tuple[int, ...]] = {}  # by wrapper, the joins and steps after which some rank saved

    def is_due(self, step: int) -> bool:
        """Whether the `step`-th step of a wrapper, from 1, is looked at."""
        return step % self._every == 0 or (step < self._every and step & (step - 1) == 0)

    # -- backward passes and steps

    def before_backward(self, tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> Multipliers | None:
        """What a loss is multiplied by, where some wrapper's next step is looked at."""
        return None if grad_tensors is not None or _captures() else multipliers(tensors)

    def after_backward(self, wrapper: Wrapper, loss: Multipliers | None) -> None:
        """Notes a backward pass that reached the parameters of a wrapper whose next step is looked at."""
        if len(wrapper.losses) < _MOST_LOSSES and not _captures():
            wrapper.losses.append(loss)
            wrapper.take_probe()

    def before_step(self, optimizer: Any, held: list[Wrapper]) -> None:
        """Hashes the gradients that a step is about to use, and what was saved since the last step."""
        if self._tracer.backward is not None:  # a step of some parameters, while others wait for their gradients
            return
        self._learn_of_saves()
        for wrapper in held:
            saved, now = self._saved.get(wrapper.name), (wrapper.joins, wrapper.steps)
            if saved == now:
                self.hash(wrapper, "save")
            if saved is not None and saved <= now:
                del self._saved[wrapper.name]
            if wrapper.is_due and not wrapper.is_averaged_later:
                self._gradients(wrapper, optimizer)
            wrapper.optimizer = weakref.ref(optimizer)

    def _gradients(self, wrapper: Wrapper, optimizer: Any) -> None:
        if wrapper.is_unreduced(self._tracer.user_elements) or wrapper.is_alone:
            return
        number = wrapper.steps + 1
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        shared = [p for p in wrapper.shared() if id(p) in held]
        if shared:
            value = fingerprint.of_gradients(shared)
            self._record(events.GRADIENTS, value=value, number=number, model=wrapper.name, joins=wrapper.joins)
        if shared and wrapper.reduced and not wrapper.is_local and None not in wrapper.losses:
            losses = [loss for loss in wrapper.losses if loss is not None]
            self._tracer.event(
                events.FACTOR,
                value=int.from_bytes(layout.F64.pack(wrapper.ratio()), "little"),
                number=number,
                stack=wrapper.backward,
                detail={
                    "model": wrapper.name,
                    "passes": wrapper.passes,
                    "factors": tuple(dict.fromkeys(loss[0] for loss in losses)),
                    "mean": all(loss[1] for loss in losses),
                    "hook": wrapper.has_hook,
                    "replicas": 0 if wrapper.group is None else len(wrapper.group.ranks),
                    "joins": wrapper.joins,
                },
            )

    def after_step(self, wrapper: Wrapper) -> None:
        if self._tracer.backward is not None:
            return
        was_due = wrapper.is_due
        wrapper.after_step()
        wrapper.is_due = self.is_due(wrapper.steps + 1)
        if was_due:
            self.hash(wrapper, "step")

    # -- parameters and optimizer state

    def hash(self, wrapper: Wrapper, at: str) -> None:
        """Writes the hashes of a wrapper's parameters and of their optimizer's state, and where not at a step, of its buffers."""
        if at != "step":
            self._buffers.at(wrapper, at)
        shared = [] if wrapper.is_averaged_later else wrapper.shared()
        if not shared:
            return
        detail = {"model": wrapper.name, "at": at, "joins": wrapper.joins}
        value = fingerprint.of_parameters(shared)
        self._record(events.PARAMETERS, value=value, number=wrapper.steps, **detail)
        optimizer = None if wrapper.optimizer is None else wrapper.optimizer()
        if optimizer is not None:
            value, kept = fingerprint.of_optimizer(optimizer, shared)
            self._record(
                events.OPTIMIZER,
                value=value,
                number=wrapper.steps,
                **detail,
                optimizer=type(optimizer).__name__,
                layout=f"{kept:016x}",
                settings=fingerprint.settings_of(optimizer, shared),
            )
            rest = self._wrappers.beside(optimizer)
            if rest:
                value = fingerprint.of_parameters(rest)
                self._record(events.OUTSIDE, value=value, number=wrapper.steps, **detail)

    # -- what was saved

    def saved(self) -> None:
        """Has every rank hash, before its next step, what this rank saves now.

        DDP lets no other rank finish the step after the next backward pass without this one, so a file tells them in time where
        they share one. A rank that is late sees it a step too early: the file says after which step it is meant.
        """
        if self._tracer.world_size > _MOST_RANKS or not self._tracer.on:
            return
        try:
            line = json.dumps({wrapper.name: (wrapper.joins, wrapper.steps) for wrapper in self._wrappers})
            os.write(self._open(), f"{line}\n".encode())
        except OSError:  # what is saved is not compared then
            pass

    def _open(self) -> int:
        """The descriptor of the file of saves, to which each save of a rank adds a line."""
        if self._descriptor is None:
            self._descriptor = -1
            if self._tracer.world_size <= _MOST_RANKS:
                self._descriptor = os.open(self._file(), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return self._descriptor

    def _learn_of_saves(self) -> None:
        try:
            descriptor = self._open()
            # Asked before every step: it costs a tenth of what asking for the file by its name does.
            size = 0 if descriptor < 0 else os.lseek(descriptor, 0, os.SEEK_END)
            if size <= self._seen:
                return
            last = os.pread(descriptor, size - self._seen, self._seen).splitlines()[-1]
            self._seen = size
            self._saved = {str(name): tuple(place) for name, place in json.loads(last).items()}
        except (OSError, ValueError):
            pass

    def _file(self) -> str:
        return os.path.join(self._tracer.directory, layout.SAVED_FILE)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _captures() -> bool:
    """Whether a CUDA graph is being captured: nothing may wait for the device then, and nothing else may be asked of it."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
