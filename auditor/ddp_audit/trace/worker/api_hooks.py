"""Records what single rules of the audit ask for: how a state was loaded, when gradients were clipped and unscaled, which objects
a broadcast brought, which wait found its collective still at work.

Each patch calls the original with the same arguments and returns what it returned. Inside of torch.compile nothing is recorded.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import Work, distributed_c10d
from torch.nn.utils import clip_grad

from ddp_audit import events
from ddp_audit.trace.worker import places
from ddp_audit.trace.worker.hook import hide_from_compiler
from ddp_audit.trace.worker.patching import put_around
from ddp_audit.trace.worker.tracer import Prepared, Tracer
from ddp_audit.trace.worker.warned import point_past

_ITEMS = 20000  # of what was loaded, whose devices are looked at
_DEPTH = 6
_FEW = 100  # items of a list that was sent, which are compared
_PLAIN = frozenset((int, float, bool, str, bytes, type(None)))
_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")

Around = Callable[..., Any]


class ApiHooks:
    """Installs the patches. `record` writes an event at the user's line, `safely` calls a part of the tracer whose error must not
    reach the program."""

    def __init__(self, tracer: Tracer, record: Callable[..., Any], safely: Callable[..., Any]) -> None:
        self._tracer = tracer
        self._record = record
        self._safely = safely
        point_past(torch.serialization, clip_grad)
        self._clips = {cut: Prepared(events.CLIP, cut=cut) for cut in (True, False, None)}  # a training step has one
        self._wrap(torch.nn.Module, "load_state_dict", self._load_state)
        self._wrap(torch, "load", self._load, also=(torch.serialization,))
        for name in _CLIPS:
            if hasattr(clip_grad, name):
                self._wrap(clip_grad, name, self._clip, also=(torch.nn.utils,))
        self._wrap(torch.amp.GradScaler, "unscale_", self._unscale)
        self._wrap(distributed_c10d, "broadcast_object_list", self._receive, also=(dist,))
        self._wrap_wait()

    def _wrap(self, owner: Any, name: str, around: Around, also: tuple[Any, ...] = ()) -> None:
        put_around(owner, name, around, lambda: not self._tracer.on, also)

    # -- states

    def _load_state(self, original: Any, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        if not (args[1] if len(args) > 1 else kwargs.get("strict", True)):
            self._safely(self._loaded, args[0] if args else kwargs.get("state_dict"), result)
        return result

    def _loaded(self, state: Any, result: Any) -> None:
        unexpected = getattr(result, "unexpected_keys", None)
        if unexpected is not None:
            self._record(events.LOADED, given=len(state), unexpected=len(unexpected))

    def _load(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self._safely(self._read, args[0] if args else kwargs.get("f"), result)
        return result

    def _read(self, f: Any, result: Any) -> None:
        found = dict.fromkeys(_devices(result, [_ITEMS]))
        devices = tuple(identity for device in found if (identity := places.identity(device)))
        self._record(
            events.READ, path=str(os.fspath(f) if isinstance(f, (str, os.PathLike)) else type(f).__name__), devices=devices
        )

    # -- gradients

    def _clip(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self._safely(self._clipped, result, args[1] if len(args) > 1 else kwargs.get("max_norm"))
        return result

    def _clipped(self, norm: Any, limit: Any) -> None:
        known = isinstance(norm, torch.Tensor) and norm.is_cpu and isinstance(limit, (int, float))
        self._tracer.note(self._clips[norm.item() > limit if known else None])

    def _unscale(self, original: Any, scaler: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, *args, **kwargs)
        self._safely(self._unscaled, scaler)
        return result

    def _unscaled(self, scaler: Any) -> None:
        if scaler.is_enabled():
            scale = getattr(scaler, "_scale", None)  # on a device reading it would wait
            self._record(events.UNSCALED, scale=scale.item() if isinstance(scale, torch.Tensor) and scale.is_cpu else None)

    # -- objects

    def _receive(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("object_list")
        held = list(given) if isinstance(given, list) else None
        result = original(*args, **kwargs)
        if held is not None:
            self._safely(self._received, held, given)
        return result

    def _received(self, held: list[Any], came: list[Any]) -> None:
        same = [_is_same(old, new) for old, new in zip(held, came, strict=True)]
        self._record(events.RECEIVED, changed=True if False in same else None if None in same else False)

    # -- waits

    def _wrap_wait(self) -> None:
        """Every synchronous collective of torch.distributed waits as well: those calls are handed on at once."""
        original = Work.wait
        tracer, getframe = self._tracer, sys._getframe

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if tracer.on and not getframe(1).f_globals.get("__name__", "").startswith("torch."):
                self._safely(self._before_wait, work)
            return original(work, *args, **kwargs)

        hide_from_compiler(cast(FunctionType, wait).__code__, callees=True)
        Work.wait = wait

    def _before_wait(self, work: Any) -> None:
        # Works of a device must not be asked while a graph is captured, by whatever thread.
        if not torch.cuda.is_initialized() and not work.is_completed():
            self._record(events.UNFINISHED)


def _is_same(old: Any, new: Any, depth: int = 0) -> bool | None:
    """Whether two objects are alike; None where only code of the program could tell, which is not called."""
    if old is new:
        return True
    if type(old) in _PLAIN and type(new) in _PLAIN:
        return type(old) is type(new) and (old == new or (old != old and new != new))
    if type(old) is not type(new):
        return False if type(old) in _PLAIN or type(new) in _PLAIN else None
    if type(old) not in (list, tuple) or depth >= _DEPTH:
        return None
    if len(old) != len(new):
        return False
    same = [_is_same(a, b, depth + 1) for a, b in zip(old[:_FEW], new[:_FEW], strict=True)]
    return False if False in same else None if None in same or len(old) > _FEW else True


def _devices(value: Any, left: list[int], depth: int = 0) -> Iterator[torch.device]:
    """The devices of the tensors in nested containers. `left`: how many items may still be looked at."""
    left[0] -= 1
    if isinstance(value, torch.Tensor):
        yield value.device
    elif isinstance(value, torch.nn.Module):
        yield from (parameter.device for parameter in value.parameters())
    elif depth < _DEPTH and isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            if left[0] <= 0:
                return
            yield from _devices(item, left, depth + 1)
