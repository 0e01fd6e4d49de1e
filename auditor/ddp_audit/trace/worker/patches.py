"""Records what is not a collective: wrappers, forward and backward passes, steps, batches, groups, seeds, files.

Each patch calls the original with the same arguments and returns what it returned. The patched functions are hidden from
torch.compile, so that a compiled program is compiled as it would be without them.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from threading import get_ident
from types import FunctionType
from typing import Any, cast

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optim
from torch.utils.data import dataloader
from torch.utils.data.distributed import DistributedSampler

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint, layout, places
from ddp_audit.trace.worker.api_hooks import ApiHooks
from ddp_audit.trace.worker.buffers import Buffers
from ddp_audit.trace.worker.departures import Departures
from ddp_audit.trace.worker.evaluations import Evaluations
from ddp_audit.trace.worker.evidence import Draws, is_sampled, label_weight
from ddp_audit.trace.worker.frames import Stack
from ddp_audit.trace.worker.groups import Groups
from ddp_audit.trace.worker.hook import hide_from_compiler
from ddp_audit.trace.worker.markers import BACKWARD_ENGINE
from ddp_audit.trace.worker.orders import Order, Orders
from ddp_audit.trace.worker.ring import mark
from ddp_audit.trace.worker.samples import Samples
from ddp_audit.trace.worker.settings import Settings
from ddp_audit.trace.worker.state_sampler import StateSampler
from ddp_audit.trace.worker.tracer import Prepared, Tracer
from ddp_audit.trace.worker.wrappers import Multipliers, Wrapper, Wrappers

_OPTIONS = (
    "find_unused_parameters",
    "static_graph",
    "broadcast_buffers",
    "forward_sync_buffers",
    "gradient_as_bucket_view",
    "bucket_cap_mb",
    "init_sync",
)
_MOST_NAMES = 20000  # parameters or buffers that one WRAP event lists
_BATCH_PRINTS = 64  # batches of loaders that get a fingerprint
_DEVICE_PRINTS = 8  # forward passes whose inputs are fetched from a device; after those every hundredth


class _Inside:
    """What a thread is in: a backward pass, and the steps of optimizers, by id. `held`: the wrappers of the outermost of those."""

    __slots__ = ("backward", "held", "step", "steps")

    def __init__(self) -> None:
        self.backward = False
        self.steps: list[int] = []
        self.held: list[Wrapper] = []
        self.step: tuple[Any, int] | None = None  # the record of the outermost step, and its number


class _Loader:
    """An iterator of a loader's. `is_settled`: nothing is read of its next batches, which are on a device or are not."""

    def __init__(self, iterator: Any, number: int) -> None:
        self.iterator = (lambda: None) if iterator is None else weakref.ref(iterator)
        self.batch = Prepared(events.BATCH, loader=number)
        self.is_on_device = False
        self.is_settled = False


class Patches:
    """Installs the patches."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.wrappers = Wrappers(tracer)
        self.exception: str | None = None
        self._threads: dict[int, _Inside] = {}  # a threading.local costs more than most of what is recorded
        self._loaders: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()  # by iterator
        self._loader = _Loader(None, 0)  # the one that gave the last batch
        self._loader_count = 0
        self._batches = 0
        self._forwards = 0
        self._draws = Draws()
        self._orders = Orders()
        self._samples = Samples(self._event)
        self._reduced = 0  # backward passes with bucket all-reduces so far
        self._backward_pass = Prepared(events.BACKWARD)
        self._buffers = Buffers(tracer, self._event)
        self._looks = StateSampler(tracer, self.wrappers, self._buffers, self._event)
        self._evaluations = Evaluations(tracer, self.wrappers, self._buffers, self._event)
        self._wrap(DistributedDataParallel, "__init__", self._ddp_init)
        forward = "_pre_forward" if hasattr(DistributedDataParallel, "_pre_forward") else "forward"
        self._wrap(DistributedDataParallel, forward, self._ddp_forward)
        self._wrap(torch.autograd, "backward", self._backward)
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self._next_batch)
        self._wrap(DistributedSampler, "set_epoch", self._set_epoch)
        self._wrap(DistributedSampler, "__iter__", self._iterate_sampler)
        self._wrap(Join, "__exit__", self._end_join)
        self._wrap(torch.nn.Module, "train", self._set_mode)
        self._wrap(torch, "save", self._save, also=(torch.serialization,))
        self._wrap(torch, "manual_seed", self._seed, also=(torch.random,))
        self._wrap(torch.cuda, "set_device", self._set_device)
        self._uses = ApiHooks(tracer, self._event, self._safely)
        self._settings = Settings(tracer, self._event, self._safely)
        self._departures = Departures(tracer, self._safely, self._progress)
        for owner, name, around, also in (*Groups(tracer, self._event, self._safely).patches, *self._departures.patches):
            self._wrap(owner, name, around, also=also)
        self._wrap(sys, "excepthook", self._uncaught)
        # What the patches do in addition to calling the original must not be compiled, and nothing below it.
        recording = (tracer.event, tracer.note_in_python, tracer.finish_in_python)
        for part in (self._safely, self._event, *recording, self._before_step, self._after_step):
            hide_from_compiler(part.__func__.__code__, callees=True)  # type: ignore[union-attr]
        optim.register_optimizer_step_pre_hook(self._before_step)
        optim.register_optimizer_step_post_hook(self._after_step)

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any], also: tuple[Any, ...] = ()) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            if self._tracer.failed:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        hide_from_compiler(cast(FunctionType, patched).__code__, callees=False)
        hide_from_compiler(around.__func__.__code__, callees=False)  # type: ignore[attr-defined]
        setattr(owner, name, patched)
        for other in also:
            if getattr(other, name, None) is original:
                setattr(other, name, patched)
        try:  # TorchScript finds builtins by identity
            from torch.jit._builtins import _find_builtin, _register_builtin

            builtin = _find_builtin(original)
            if builtin:
                _register_builtin(patched, builtin)
        except ImportError:
            pass

    def _safely(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a part of the tracer; an error in it ends tracing and not the program."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._tracer.fail(error)
            return None

    def _event(self, kind: str, *, value: int = 0, number: int = 0, group: str = events.DEFAULT_GROUP, **detail: Any) -> Any:
        """Records an event at the user's line."""
        tracer = self._tracer
        try:
            stack = tracer.frames.at(sys._getframe(1))
        except Exception as error:
            tracer.fail(error)
            return None
        return tracer.event(kind, group=group, detail=detail, value=value, number=number, stack=stack)

    # -- wrappers -----------------------------------------------------------------------------------------------------

    def _ddp_init(self, original: Any, ddp: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = self.wrappers.next_name()
        module = args[0] if args else kwargs.get("module")
        if isinstance(module, torch.nn.Module):
            self._safely(self._wrap_event, name, module, kwargs)
        result = original(ddp, *args, **kwargs)
        self._safely(self.wrappers.add, name, ddp)
        if isinstance(module, torch.nn.Module):
            self._safely(self._place_event, name, module)
        return result

    def _place_event(self, name: str, module: torch.nn.Module) -> None:
        devices = tuple(identity for device in places.devices_of(module) if (identity := places.identity(device)))
        if devices:
            self._event(events.PLACE, model=name, devices=devices)

    def _wrap_event(self, name: str, module: torch.nn.Module, kwargs: dict[str, Any]) -> None:
        parameters = list(module.named_parameters())
        trained = [(n, p.numel(), _dtype(p)) for n, p in parameters if p.requires_grad]
        group, mesh = kwargs.get("process_group"), kwargs.get("device_mesh")
        if group is None and mesh is not None and mesh.ndim == 1:
            group = mesh.get_group(mesh_dim=0)  # as the constructor does
        self._event(
            events.WRAP,
            group=self._tracer.group(group).name if group is not None else events.DEFAULT_GROUP,
            model=name,
            module=type(module).__name__,
            parameters=trained[:_MOST_NAMES],
            frozen=len(parameters) - len(trained),
            buffers=[(n, b.numel(), _dtype(b)) for n, b in module.named_buffers()][:_MOST_NAMES],
            options={k: v for k in _OPTIONS if isinstance(v := kwargs.get(k), (bool, int, float))},
        )

    def _ddp_forward(self, original: Any, ddp: Any, /, *inputs: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            self._safely(self._forward_event, ddp, inputs, kwargs)
        return original(ddp, *inputs, **kwargs)

    def _forward_event(self, ddp: Any, inputs: Any, kwargs: Any) -> None:
        wrapper = self.wrappers.get(ddp)
        if wrapper is None:  # unpickled or copied
            wrapper = self.wrappers.add(self.wrappers.next_name(), ddp)
        if wrapper.first_buffers is None and torch.is_grad_enabled():
            self._buffers.begin(wrapper)
        count = self._forwards
        self._forwards += 1
        batch = self._fingerprint((inputs, kwargs), count < _DEVICE_PRINTS or count % 100 == 0)
        grad = torch.is_grad_enabled()
        self._tracer.note(wrapper.forward(grad, ddp.training, ddp.require_backward_grad_sync), batch)
        drawn = self._draws.at_forward(grad, batch)
        if drawn:
            self._event(events.DRAWS, value=drawn, number=self._draws.count - 1, model=wrapper.name)

    def _fingerprint(self, batch: Any, fetches: bool) -> int:
        """The fingerprint of a batch; 0 where it is on a device and not to be fetched."""
        native = self._tracer.native_fingerprint
        known: int | None = native(batch) if native is not None else None
        if known is not None:
            return known
        leaves = fingerprint.leaves(batch)
        return fingerprint.of_leaves(leaves) if fetches or not fingerprint.are_on_device(leaves) else 0

    # -- backward and step --------------------------------------------------------------------------------------------

    def _backward(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        inside = self._threads.get(get_ident()) or self._inside()
        if inside.backward:  # re-entrant checkpointing calls it again
            return original(*args, **kwargs)
        tracer = self._tracer
        place, stack = tracer.note(self._backward_pass) or (None, tracer.frames.empty)
        before, labels, loss = self._safely(self._look_before, args, kwargs) or ((), None, None)
        buckets = tracer.buckets
        outer = tracer.backward
        if stack.engine is None:
            stack.engine = Stack(stack.definition, BACKWARD_ENGINE, stack.frames)
        tracer.backward = stack.engine
        inside.backward = True
        state = layout.RAISED
        try:
            result = original(*args, **kwargs)
            state = layout.DONE
            return result
        finally:
            inside.backward = False
            tracer.backward = outer
            issued = tracer.buckets - buckets
            tracer.finish(place, issued, state)
            for wrapper, gradients in before:
                if (issued and len(before) == 1) or self._safely(wrapper.gradients) != gradients:
                    wrapper.after_backward(issued, tracer.user_elements, stack)
                    if wrapper.is_due:
                        self._safely(self._looks.after_backward, wrapper, loss)
                    if issued and labels is not None:
                        tracer.event(events.LABELS, detail={"model": wrapper.name}, value=labels, number=self._reduced, stack=stack)
                        labels = None
            self._reduced += issued > 0

    def _inside(self) -> _Inside:
        return self._threads.setdefault(get_ident(), _Inside())

    def _look_before(self, args: Any, kwargs: Any) -> tuple[list[tuple[Wrapper, object]], int | None, Multipliers | None]:
        """What is looked at before a backward pass: each wrapper's gradients, the weight of a label, the factors of the loss."""
        before, labels, loss, is_due = [], None, None, False
        for wrapper in self.wrappers.all:
            before.append((wrapper, wrapper.gradients()))
            is_due = is_due or wrapper.is_due
        reduced = self._reduced
        if before and (reduced < 16 or reduced % 16 == 0 or reduced % 100 == 0):  # see _labels
            labels = self._labels(*args, **kwargs)
        if is_due:
            loss = self._looks.before_backward(*args, **kwargs)
        return before, labels, loss

    def _labels(self, tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> int | None:
        """The value of a LABELS event for a backward pass that is looked at. On a device a look waits for the forward pass."""
        if grad_tensors is not None or not isinstance(tensors, torch.Tensor):
            return None
        on_device = not tensors.is_cpu
        if not (is_sampled(self._reduced, 100, _DEVICE_PRINTS) if on_device else is_sampled(self._reduced, 16)):
            return None
        if on_device and (not tensors.is_cuda or torch.cuda.is_current_stream_capturing()):
            return None
        found = label_weight(tensors)
        if found is None:
            return None
        count, weight = found
        return int.from_bytes(layout.LABELS_VALUE.pack(weight, count & 0xFFFFFFFF), "little")

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Runs before every optimizer's step. A step inside a step (ZeRO's local optimizer) is not the user's."""
        inside = self._threads.get(get_ident()) or self._inside()
        steps = inside.steps
        if id(optimizer) in steps:  # the last step of this optimizer raised
            del steps[steps.index(id(optimizer)) :]
        steps.append(id(optimizer))
        if len(steps) == 1 and not self._tracer.failed:
            inside.held = []
            self._safely(self._step_event, optimizer, inside)

    def _step_event(self, optimizer: Any, inside: _Inside) -> None:
        held = self.wrappers.held_by(optimizer)
        inside.held = held.wrappers
        reduced, is_unreduced = 0, False
        for wrapper in held.wrappers:
            reduced = max(reduced, wrapper.reduced)
            is_unreduced = is_unreduced or wrapper.is_unreduced(self._tracer.user_elements)
        # A number that stands at first counts in the check of the record, and one that is written with the end does not.
        noted = self._tracer.note(held.steps[is_unreduced])
        inside.step = None if noted is None else (noted[0], reduced)
        self._settings.stepped(optimizer)
        self._looks.before_step(optimizer, held.wrappers)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        inside = self._threads.get(get_ident()) or self._inside()
        steps = inside.steps
        if id(optimizer) in steps:
            del steps[steps.index(id(optimizer)) :]
        if steps or self._tracer.failed:
            return
        self._safely(self._look_after, inside)

    def _look_after(self, inside: _Inside) -> None:
        if inside.step is not None:
            self._tracer.finish(*inside.step, layout.DONE)
            inside.step = None
        self._draws.after_step()
        for wrapper in inside.held:
            self._looks.after_step(wrapper)

    def _end_join(self, original: Any, join: Any, /, *args: Any) -> Any:
        result = original(join, *args)
        for joinable in join._joinables:
            wrapper = self.wrappers.get(joinable) if isinstance(joinable, torch.nn.Module) else None
            if wrapper is not None:
                wrapper.after_join()
        return result

    def _set_mode(self, original: Any, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        if not torch.compiler.is_compiling():
            self._safely(self._evaluations.mode_set, module)
        return result

    # -- data ---------------------------------------------------------------------------------------------------------

    def _next_batch(self, original: Any, iterator: Any) -> Any:
        began = time.perf_counter()
        try:
            batch = original(iterator)
        except StopIteration:
            self._order_event(self._safely(self._orders.after_last, iterator, self._draws.count))
            self._safely(self._samples.after_last, iterator)
            self._loader = _Loader(None, 0)
            if iterator in self._loaders:
                self._loaders[iterator].is_settled = False  # what comes next is another epoch
            raise
        waited = min(int((time.perf_counter() - began) * 1e6), 0xFFFFFFFF)
        self._safely(self._batch_event, iterator, batch, waited)
        return batch

    def _batch_event(self, iterator: Any, batch: Any, waited: int) -> None:
        self._draws.after_batch()
        loader = self._loader
        if loader.iterator() is not iterator:
            known = self._loaders.get(iterator)
            if known is None:
                known = self._loaders[iterator] = _Loader(iterator, self._loader_count)
                self._loader_count += 1
            loader = self._loader = known
        if loader.is_settled:
            if not loader.is_on_device:
                self._tracer.note(loader.batch, 0, waited)
            return
        loader.is_on_device = fingerprint.are_on_device(fingerprint.leaves(batch))
        # What the ranks trained on is recorded by the forward passes; here only the beginning, and that of an order of chance.
        wanted = self._orders.wants(iterator)
        samples = not loader.is_on_device and self._samples.wants(iterator)
        loader.is_settled = not wanted and not samples and self._batches >= _BATCH_PRINTS
        if loader.is_on_device:
            return
        if samples:
            self._samples.after_batch(iterator, batch)
        value = self._fingerprint(batch, False) if wanted or self._batches < _BATCH_PRINTS else 0
        self._batches += 1
        self._tracer.note(loader.batch, value, waited)
        if wanted:
            self._order_event(self._orders.after_batch(iterator, value, self._draws.count))

    def _order_event(self, found: Order | None) -> None:
        if found is not None:
            self._event(events.ORDER, value=found.value, number=found.batches)

    def _set_epoch(self, original: Any, sampler: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(sampler, *args, **kwargs)
        self._safely(self._sampler_event, sampler, "set_epoch")
        return result

    def _iterate_sampler(self, original: Any, sampler: Any) -> Any:
        self._safely(self._sampler_event, sampler, "iter")
        return original(sampler)

    def _sampler_event(self, sampler: Any, action: str) -> None:
        self._event(
            events.SAMPLER,
            action=action,
            epoch=int(sampler.epoch),
            seed=int(sampler.seed),
            rank=sampler.rank,
            replicas=sampler.num_replicas,
            shuffle=bool(sampler.shuffle),
        )

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _save(self, original: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        path = os.fspath(f) if isinstance(f, (str, os.PathLike)) else type(f).__name__
        place = self._safely(self._save_event, str(path), obj)
        self._safely(self._looks.saved)
        result = original(obj, f, *args, **kwargs)
        if place is not None:
            self._safely(mark, place, layout.DONE, time.time())
        return result

    def _save_event(self, path: str, saved: Any) -> Any:
        holders = tuple((w.name, w.joins, w.steps) for w in self.wrappers if self._buffers.saved_in(w, saved))
        if holders:
            return self._event(events.SAVE, path=path, buffers=holders)
        return self._event(events.SAVE, path=path)

    def _seed(self, original: Any, seed: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(seed, int):
            self._event(events.SEED, seed=seed)
        result = original(seed, *args, **kwargs)
        self._safely(self._draws.after_seed)
        return result

    def _set_device(self, original: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(device, *args, **kwargs)
        index = device if isinstance(device, int) else getattr(device, "index", None)
        self._event(events.DEVICE, index=index if index is not None else str(device))
        return result

    def _progress(self) -> object:
        """How far the training has come."""
        native = self._tracer.native
        return self._forwards, self._reduced, self._batches, self._tracer.collectives if native is None else native.last_time

    def _uncaught(self, original: Any, kind: Any, error: Any, trace: Any) -> Any:
        self._safely(self.exception_event, kind, error, trace)
        return original(kind, error, trace)

    def exception_event(self, kind: Any, error: Any, trace: Any) -> None:
        """Records the exception that ends the program, at the user's innermost line."""
        if self.exception is not None:
            return
        self.exception = kind.__name__
        self._departures.code = 130 if issubclass(kind, KeyboardInterrupt) else 1
        lines = []
        while trace is not None:
            lines.append((trace.tb_frame, trace.tb_lineno))
            trace = trace.tb_next
        stack = self._tracer.frames.of_lines(lines[::-1])
        text = " ".join(str(error).split())[:500]
        self._tracer.event(events.EXCEPTION, detail={"type": kind.__name__, "text": text}, stack=stack)

    def leave(self) -> None:
        """At the interpreter's exit: the last hash of the parameters, and the exit code."""
        tracer = self._tracer
        last, left = getattr(sys, "last_value", None), self._departures.at()
        if last is not None and self.exception is None and not isinstance(last, SystemExit) and not sys.flags.interactive:
            self._safely(self.exception_event, type(last), last, last.__traceback__)  # an excepthook that did not chain
        if not tracer.on:
            return
        for wrapper in self.wrappers:
            # A device may hang in a collective that never ends, and a copy from it would wait for that.
            stepped = wrapper.steps or wrapper.joins
            if stepped and not (wrapper.is_on_device() and (tracer.has_pending() or self.exception)):
                self._safely(self._looks.hash, wrapper, "exception" if self.exception else "exit")
        self._safely(self._settings.leave)
        self._safely(self._samples.leave)
        tracer.event(events.EXIT, detail={"code": self._departures.code}, stack=left)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
