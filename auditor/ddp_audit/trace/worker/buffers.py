"""Sees which buffers of a wrapped module training changes, and which of them an evaluation reads: codebooks, ranges, memories.

Batch normalisation is left to `evaluations`. Which buffers a forward reads is seen by its modules' own dictionaries of buffers: for
the one call that is looked at, each is replaced by a dictionary that notes the names it is asked for.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.wrappers import Wrapper

_MOST = 64  # buffers of a wrapper that are looked at
_ITEMS = 20000  # of what is saved, in which buffers are looked for
_DEPTH = 6

Known = dict[str, torch.Tensor]


class _Reads(dict[str, Any]):
    """A module's buffers, and the names of those that were read."""

    def __init__(self, buffers: dict[str, Any]) -> None:
        super().__init__(buffers)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the module that is made in the meantime gets a plain dictionary."""
        return dict, (dict(self),)


class Buffers:
    """The buffers of one rank's wrappers. `record` writes an event at the user's line."""

    def __init__(self, tracer: Tracer, record: Callable[..., Any]) -> None:
        self._tracer = tracer
        self._record = record

    def begin(self, wrapper: Wrapper) -> None:
        """Notes the buffers as they are before the first forward with gradients."""
        found = {} if wrapper.is_alone else {name: buffer for _, name, buffer in _own(wrapper)}
        wrapper.first_buffers = {name: (weakref.ref(b), b._version) for name, b in list(found.items())[:_MOST]}

    def changed(self, wrapper: Wrapper) -> Known:
        """The buffers that were written since then, by name. DDP's broadcast writes all of them."""
        first = wrapper.first_buffers
        if not first:
            return {}
        return {
            name: buffer
            for _, name, buffer in _own(wrapper)
            if (known := first.get(name)) is not None and (known[1] != buffer._version or known[0]() is not buffer)
        }

    def watch(self, wrapper: Wrapper, inner: torch.nn.Module) -> None:
        """Sees what the call of a wrapped module that begins now reads, and records it when the call ends.

        A buffer that the call writes as well (a cache) does not count: its value before says nothing of the result.
        """
        before = {name: (buffer, buffer._version) for name, buffer in self.changed(wrapper).items()}
        if not before:
            return
        replaced = [(owner, prefix, owner._buffers) for owner, prefix in _owners(wrapper, before)]

        def after(module: Any, args: Any, output: Any) -> None:
            read = []
            for owner, prefix, buffers in replaced:
                seen = owner.__dict__["_buffers"]
                if type(seen) is _Reads:
                    buffers.clear()
                    buffers.update(seen)
                    owner.__dict__["_buffers"] = buffers
                    read += [f"{prefix}{name}" for name in seen.read]
            try:
                handle.remove()
                now = {name: buffer for _, name, buffer in _own(wrapper)}
                whole = {
                    name: buffer
                    for name in read
                    if name in before and (buffer := before[name][0])._version == before[name][1] and now.get(name) is buffer
                }
                self._write(wrapper, whole, "evaluation")
            except Exception as error:
                self._tracer.fail(error)

        handle = inner.register_forward_hook(after, always_call=True)
        for owner, _, buffers in replaced:
            owner.__dict__["_buffers"] = _Reads(buffers)

    def at(self, wrapper: Wrapper, moment: str) -> None:
        """Records the buffers that DDP leaves to each rank, when something was saved or at the end."""
        if not wrapper.sends_buffers:
            self._write(wrapper, self.changed(wrapper), moment)

    def saved_in(self, wrapper: Wrapper, saved: Any) -> bool:
        """Whether something that is saved holds changed buffers of a wrapper that DDP leaves to each rank."""
        if wrapper.sends_buffers or not (changed := self.changed(wrapper)):
            return False
        wanted = {(name.rpartition(".")[2], buffer.shape) for name, buffer in changed.items()}
        ends = tuple(changed)
        found = ((name, tensor) for name, tensor in _named(saved, [_ITEMS]) if name.endswith(ends))
        return any((name.rpartition(".")[2], tensor.shape) in wanted for name, tensor in found)

    def _write(self, wrapper: Wrapper, buffers: Known, at: str) -> None:
        if buffers and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            self._record(
                events.BUFFERS,
                number=wrapper.steps,
                model=wrapper.name,
                joins=wrapper.joins,
                at=at,
                sent=wrapper.sends_buffers,
                hashes=tuple(_text(name, buffer) for name, buffer in sorted(buffers.items())),
            )


def _text(name: str, buffer: torch.Tensor) -> str:
    return f"{name} {'x'.join(map(str, buffer.shape)) or '1'} {fingerprint.of_parameters([buffer]):016x}"


def _own(wrapper: Wrapper) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """The owner, name and value of each buffer of real numbers.

    Left out are those of batch normalisation, those that DDP leaves alone, and those that no state keeps: caches and tables.
    """
    inner = wrapper.inner()
    for path, layer in () if inner is None else inner.named_modules():
        if isinstance(layer, (torch.nn.modules.batchnorm._NormBase, torch.jit.ScriptModule)):
            continue
        for key, buffer in layer._buffers.items():
            name = f"{path}.{key}".lstrip(".")
            if buffer is None or key in layer._non_persistent_buffers_set:
                continue
            if _is_plain(buffer) and name not in wrapper.ignored:
                yield layer, name, buffer


def _owners(wrapper: Wrapper, names: Known | dict[str, Any]) -> Iterator[tuple[torch.nn.Module, str]]:
    """The modules that own some buffers, with what goes before the buffers' own names."""
    found = {id(layer): (layer, name[: -len(name.rpartition(".")[2])]) for layer, name, _ in _own(wrapper) if name in names}
    return ((layer, prefix) for layer, prefix in found.values() if type(layer._buffers) in (dict, OrderedDict))


def _is_plain(buffer: torch.Tensor) -> bool:
    if type(buffer) is not torch.Tensor or not buffer.is_floating_point() or buffer.numel() == 0:
        return False
    return not (buffer.is_meta or buffer.is_inference())


def _named(value: Any, left: list[int], name: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of nested containers with the keys that lead to them. `left`: how many items may still be looked at."""
    left[0] -= 1
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < _DEPTH and isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else ((name, one) for one in value):
            if left[0] <= 0:
                return
            yield from _named(item, left, str(key), depth + 1)
