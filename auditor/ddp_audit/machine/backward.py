"""One backward pass, through the outputs of one wrapper or of several: in which order hooks and callbacks run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ddp_audit.events import Event
from ddp_audit.machine import errors
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.graph import Handle

if TYPE_CHECKING:
    from ddp_audit.machine.ddp import Ddp

# What `torch.autograd.grad` is asked for behind one wrapper: names of parameters that the module has now, and None for what lies
# before the wrapper, such as its input. None as a whole: all parameters that require a gradient.
Asked = Collection["str | None"] | None


def backward(
    outputs: Sequence[tuple[Ddp, Sequence[Handle]]],
    *,
    retain_graph: bool = False,
    fails_at: str | None = None,
    asked: Sequence[Asked] | None = None,
) -> list[Event]:
    """Runs one pass from the sum of losses of these outputs, given with their wrappers; the collectives that it issues.

    The gradients of all wrappers become ready in one order, and what their reducers queue for the end runs in the order in which
    it was queued. `fails_at` names a parameter of the first wrapper before whose gradient the user's own code raises. With `asked`,
    an entry a wrapper, it is a pass of `torch.autograd.grad`, which runs only the nodes on the way to what it is asked for
    (`GraphTask::init_to_execute` of torch/csrc/autograd/engine.cpp) and accumulates nothing. Raises MachineError with torch's
    text; its `events` are what had been issued by then.
    """
    accumulates = asked is None
    if accumulates and not any(h.grad for _, handles in outputs for h in handles):
        raise MachineError(errors.NO_GRAPH)
    captured = [_keys_now(ddp, one) for (ddp, _), one in zip(outputs, asked or (), strict=True)] if asked is not None else []
    if accumulates:
        live = [(ddp, [h for h in handles if h.grad]) for ddp, handles in outputs]
    else:
        live = [(ddp, [h for h in handles if _leads(h, keys)]) for (ddp, handles), keys in zip(outputs, captured, strict=True)]
    if accumulates and any(h.is_freed for _, handles in live for h in handles):
        raise MachineError(errors.BACKWARD_TWICE)
    run = _Pass(live, fails_at, captured)
    events = []
    if accumulates:
        newest = sorted(((h, ddp) for ddp, handles in live for h in handles), key=lambda pair: -pair[0].at)
        events = [event for handle, ddp in newest for event in ddp.sync_batchnorm_backward([handle])]
    try:
        run.go()
    except MachineError as error:
        error.events = [*events, *run.settled()]
        raise
    events += run.settled()
    if not retain_graph:
        for _, handles in live:
            for handle in handles:
                handle.free()
    return events


def _keys_now(ddp: Ddp, asked: Asked) -> frozenset[str | None]:
    """The keys of what is asked for. A parameter that was replaced since a forward is not behind its output."""
    names = [name for name in ddp.gradients if ddp.requires_grad(name)] if asked is None else asked
    return frozenset(ddp.key_of(name) for name in names)


def _leads(handle: Handle, keys: frozenset[str | None]) -> bool:
    """Whether a way leads from an output to one of these."""
    return None in keys or (handle.grad and not keys.isdisjoint(handle.hooked))


class _Pass:
    def __init__(
        self, outputs: Sequence[tuple[Ddp, list[Handle]]], fails_at: str | None, captured: Sequence[frozenset[str | None]]
    ) -> None:
        self.outputs = outputs
        self.captured = captured  # by wrapper, in a pass that accumulates nothing
        self.fails_key = outputs[0][0].key_of(fails_at) if outputs else None
        self.issued: list[tuple[Ddp, Event]] = []
        self.callbacks: list[Callable[[], None]] = []

    def go(self) -> None:
        """Runs the nodes from the newest to the oldest, then what was queued for the end."""
        nodes: list[tuple[int, Ddp, str | None]] = []
        for place, (ddp, handles) in enumerate(self.outputs):
            ddp.reducer.callbacks = self.callbacks
            keys = self.captured[place] if self.captured else None
            nodes += [(h.at, ddp, None) for h in handles if h.sink and (keys is None or _through_sink(h, keys))]
            hooked: dict[str, int] = {}
            for handle in handles:
                for key, number in handle.hooked.items():
                    hooked[key] = min(number, hooked.get(key, number))
            nodes += [(number, ddp, key) for key, number in hooked.items() if keys is None or key in keys]
        sources = [_sources(handles) for _, handles in self.outputs]
        by_wrapper = {id(ddp): found for (ddp, _), found in zip(self.outputs, sources, strict=True)}
        for _, ddp, node in sorted(nodes, key=lambda one: -one[0]):
            if node is None:
                self._sink(ddp)
                continue
            ddp.start_delayed({node})
            self._collect(ddp)
            if self.captured:
                continue
            if node == self.fails_key and ddp is self.outputs[0][0]:
                raise MachineError(errors.FAILED)
            try:
                ddp.accumulate(node, by_wrapper[id(ddp)].get(node, ()))
            finally:
                self._collect(ddp)
        for callback in self.callbacks:
            try:
                callback()
            finally:
                for ddp, _ in self.outputs:
                    self._collect(ddp)

    def _sink(self, ddp: Ddp) -> None:
        """The node on an output of a static graph, which queues its first reduction."""
        if not ddp.delay_enqueued:
            ddp.delay_enqueued = True
            self.callbacks.append(ddp.reducer.delay_all_reduce)

    def _collect(self, ddp: Ddp) -> None:
        self.issued += [(ddp, event) for event in ddp.reducer.issued]
        ddp.reducer.issued = []

    def settled(self) -> list[Event]:
        """What was issued, in order, with what each reducer knows of it at the end."""
        for ddp, _ in self.outputs:
            self._collect(ddp)
        own = {id(ddp): iter(ddp.settled([e for other, e in self.issued if other is ddp])) for ddp, _ in self.outputs}
        return [next(own[id(ddp)]) for ddp, _ in self.issued]


def _through_sink(handle: Handle, keys: frozenset[str | None]) -> bool:
    """Whether the way to one of these passes the sink on the output: not to parameters that were applied after the call alone."""
    return None in keys or any(number < handle.at and key in keys for key, number in handle.hooked.items())


def _sources(handles: Sequence[Handle]) -> dict[str, list[int]]:
    """The forwards that contribute to each gradient, the newest first; the parts of one output are one."""
    found: dict[str, list[int]] = {}
    for handle in sorted(handles, key=lambda h: -h.number):
        for key in handle.uses:
            numbers = found.setdefault(key, [])
            if handle.number not in numbers:
                numbers.append(handle.number)
    return found
