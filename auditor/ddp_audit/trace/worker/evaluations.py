"""Sees with which running statistics of batch normalisation, and which other buffers, a wrapped module evaluates.

A wrapped module need not be called through its wrapper, so its own call is waited for: from the moment when it is put into
evaluation mode to its first call, a hook of torch's for all modules stands. Where the call comes through the wrapper, DDP's
broadcast of buffers lies before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint
from ddp_audit.trace.worker.buffers import Buffers
from ddp_audit.trace.worker.evidence import is_sampled
from ddp_audit.trace.worker.hook import hide_from_compiler
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.wrappers import Wrapper, Wrappers

_MOST_CALLS = 2000  # of other modules, after which the call is no longer waited for


class Evaluations:
    """The evaluations of one rank. `record` writes an event at the user's line."""

    def __init__(self, tracer: Tracer, wrappers: Wrappers, buffers: Buffers, record: Callable[..., Any]) -> None:
        self._tracer = tracer
        self._wrappers = wrappers
        self._buffers = buffers
        self._record = record
        self._awaited: dict[int, Wrapper] = {}  # by the id of the module inside
        self._handle: Any = None
        self._calls = 0
        hide_from_compiler(self._before_call.__func__.__code__, callees=True)  # type: ignore[attr-defined]

    def mode_set(self, module: torch.nn.Module) -> None:
        """Called when a module was put into training or evaluation mode."""
        wrapper = self._wrappers.around(module)
        if wrapper is None:
            return
        inner = wrapper.inner()
        if module.training or inner is None or not wrapper.steps or wrapper.is_alone or _compiles():
            self._forget(wrapper)
        elif (wrapper.statistics() or self._buffers.changed(wrapper)) and is_sampled(wrapper.evaluations, 16):
            self._awaited[id(inner)] = wrapper
            self._calls = 0
            if self._handle is None:
                self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._before_call)
        wrapper.evaluations += id(module) == id(inner) and not module.training

    def _before_call(self, module: torch.nn.Module, args: Any) -> None:
        try:
            self._look(module)
        except Exception as error:
            self._forget(None)
            self._tracer.fail(error)

    def _look(self, module: torch.nn.Module) -> None:
        self._calls += 1
        wrapper = self._awaited.get(id(module))  # the wrapper keeps its module, and so the id
        if wrapper is not None or self._calls > _MOST_CALLS:
            self._forget(wrapper)
        if wrapper is not None and not module.training:
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                return
            self._buffers.watch(wrapper, module)
            statistics = wrapper.statistics()
            if statistics:
                value = fingerprint.of_parameters(statistics)
                self._record(events.STATISTICS, value=value, number=wrapper.steps, model=wrapper.name, joins=wrapper.joins)

    def _forget(self, wrapper: Wrapper | None) -> None:
        """Waits no longer for the calls of a wrapper's module, or for any."""
        for key in [key for key, one in self._awaited.items() if wrapper in (None, one)]:
            del self._awaited[key]
        if not self._awaited and self._handle is not None:
            self._handle.remove()
            self._handle = None


def _compiles() -> bool:
    """Whether something was compiled: it would be compiled again with a hook for all modules, and once more without."""
    frame = sys.modules.get("torch._dynamo.eval_frame")
    return any(backend is not None for backend in getattr(frame, "cached_backends", {}).values())
