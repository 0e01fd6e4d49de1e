"""What is known of each DDP wrapper: its name in the trace, whether the gradients it holds were reduced, and by what factor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from ddp_audit import events
from ddp_audit.trace.worker.factor import common_ratio, probe
from ddp_audit.trace.worker.frames import Stack
from ddp_audit.trace.worker.tracer import Group, Prepared, Tracer

Multipliers = tuple[tuple[float, ...], bool]
Reader = Callable[[list[torch.nn.Parameter]], Callable[[], object]]  # the native kernel's, of gradients

_WATCHED = 6  # parameters of a wrapper whose gradients are looked at before and after a backward pass


class Wrapper:
    """One DDP wrapper. `is_local`: the last backward pass that reached its parameters left gradients of this rank alone."""

    def __init__(self, name: str, module: torch.nn.Module, group: Group | None, reader: Reader | None = None) -> None:
        self.name = name
        self._module = weakref.ref(module)
        self.group = group
        self.parameters = [weakref.ref(p) for p in module.parameters()]
        trainable = [p for p in module.parameters() if p.requires_grad]
        last = len(trainable) - 1
        spread = range(last + 1) if last < _WATCHED else [i * last // (_WATCHED - 1) for i in range(_WATCHED)]
        self._watched = [weakref.ref(trainable[i]) for i in spread]
        # Identity and version of some gradients: they change when a backward pass accumulates into them.
        self.gradients: Callable[[], object] = self._gradients if reader is None else reader([trainable[i] for i in spread])
        self.numel = sum(p.numel() for p in trainable)
        self.is_local = False
        self.user_elements = 0  # what the user's all-reduces had carried when the gradients became local
        self.reduced = 0  # backward passes with bucket all-reduces since the last step
        self.passes = 0  # backward passes that reached its parameters since the last step
        self.losses: list[Multipliers | None] = []  # of those passes, where they are looked at
        self.backward: Stack | None = None  # the last of them
        self._probe: list[torch.Tensor | None] = []  # of its gradients after it
        self.optimizer: weakref.ref[Any] | None = None  # whose step was the last
        self.first_buffers: dict[str, tuple[weakref.ref[torch.Tensor], int]] | None = None  # before it trained, with their versions
        self.evaluations = 0  # times that its module was put into evaluation mode
        self._forwards: dict[tuple[bool, bool, bool], Prepared] = {}
        self.joins = 0  # joins that have ended; in a join the ranks may take different numbers of steps
        self.steps = 0  # since the last of them
        self.is_due = True  # whether the next step is looked at (state_sampler.py)

    @property
    def is_alive(self) -> bool:
        """Whether the module is still there."""
        return self._module() is not None

    def is_of(self, module: torch.nn.Module) -> bool:
        return self._module() is module

    def forward(self, grad: bool, training: bool, sync: bool) -> Prepared:
        """The event of a forward pass: with gradients, in training mode, with a backward pass that is to reduce."""
        found = self._forwards.get((grad, training, sync))
        if found is None:
            group = self.group.name if self.group is not None else events.DEFAULT_GROUP
            found = Prepared(events.FORWARD, group, model=self.name, grad=grad, training=training, sync=sync)
            self._forwards[grad, training, sync] = found
        return found

    @property
    def is_alone(self) -> bool:
        return self.group is not None and len(self.group.ranks) == 1

    @property
    def is_averaged_later(self) -> bool:
        """Whether its ranks are meant to part for some steps: the communication hook of local SGD."""
        hooks = getattr(self._module(), "_comm_hooks", None) or ()
        return any(getattr(hook, "__name__", "") == "post_localSGD_hook" for hook, _ in hooks)

    @property
    def has_hook(self) -> bool:
        """Whether a communication hook decides what becomes of its gradients."""
        return bool(getattr(self._module(), "_comm_hooks", None))

    def _gradients(self) -> object:
        state = []
        for reference in self._watched:
            parameter = reference()
            gradient = parameter.grad if parameter is not None else None
            state.append((id(gradient), gradient._version) if gradient is not None else (0, 0))
        return tuple(state)

    def after_backward(self, buckets: int, user_elements: int, stack: Stack) -> None:
        """Notes a backward pass that reached the wrapper's parameters."""
        self.passes += 1
        self.backward = stack
        if buckets:
            self.is_local = False
            self.reduced += 1
        else:
            self.is_local = True
            self.user_elements = user_elements

    def is_unreduced(self, user_elements: int) -> bool:
        """Whether a step now would use gradients of this rank alone. An all-reduce of the user's counts when it carried about
        as many elements as the wrapper has, so that a reduced loss does not pass for reduced gradients."""
        if not self.is_local or self.is_averaged_later:
            return False
        return not self.is_alone and user_elements - self.user_elements < self.numel // 2

    def inner(self) -> torch.nn.Module | None:
        """The module that it wraps."""
        return getattr(self._module(), "module", None)

    @property
    def ignored(self) -> Collection[str]:
        """The names of parameters and buffers that DDP was set to leave alone."""
        names: Collection[str] = getattr(self._module(), "parameters_to_ignore", ())
        return names

    @property
    def sends_buffers(self) -> bool:
        """Whether DDP replaces the buffers by those of rank 0 in each forward that follows one with gradients."""
        module = self._module()
        return bool(getattr(module, "forward_sync_buffers", getattr(module, "broadcast_buffers", True)))

    def shared(self) -> list[torch.nn.Parameter]:
        """Its parameters but for those that DDP was set to leave alone; none where they cannot be read now."""
        module, inner = self._module(), self.inner()
        if module is None or inner is None:
            return []
        ignored = self.ignored
        found = [p for name, p in inner.named_parameters() if name not in ignored]
        return [] if any(p.is_cuda for p in found) and torch.cuda.is_current_stream_capturing() else found

    def statistics(self) -> list[torch.Tensor]:
        """The running statistics of its batch normalisation that an evaluation rests on."""
        inner, ignored = self.inner(), self.ignored
        if inner is None:
            return []
        return [
            buffer
            for name, layer in inner.named_modules()
            if isinstance(layer, torch.nn.modules.batchnorm._NormBase) and layer.track_running_stats and not layer.training
            for kind in ("running_mean", "running_var")
            if isinstance(buffer := getattr(layer, kind, None), torch.Tensor) and f"{name}.{kind}".lstrip(".") not in ignored
        ]

    # -- what gradients are multiplied by

    def take_probe(self) -> None:
        """Copies a few elements of the gradients as a backward pass leaves them."""
        self._probe = self._elements()

    def ratio(self) -> float:
        """What the gradients have been multiplied by since then; 0.0 where that is not one number."""
        return common_ratio(self._probe, self._elements()) if self._probe else 0.0

    def _elements(self) -> list[torch.Tensor | None]:
        return probe([None if (p := reference()) is None else p.grad for reference in self._watched])

    def after_step(self) -> None:
        """Begins the next step."""
        self.reduced = self.passes = 0
        self.is_local = False
        self.losses = []
        self._probe = []
        self.steps += 1

    def after_join(self) -> None:
        """Begins to count steps again: the ranks may have taken different numbers of them."""
        self.joins += 1
        self.steps = 0
        self.is_due = True

    def is_on_device(self) -> bool:
        module = self._module()
        return module is not None and any(p.device.type != "cpu" for p in module.parameters())


class Held:
    """What of the wrappers one optimizer holds."""

    def __init__(self, optimizer: Any, size: int, count: int, wrappers: list[Wrapper]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._state = (size, count)
        self.wrappers = wrappers
        names = tuple(wrapper.name for wrapper in wrappers)
        # The event of a step whose gradients were reduced, and of one whose were not.
        kind = type(optimizer).__name__
        self.steps = [Prepared(events.STEP, optimizer=kind, models=names, unreduced=unreduced) for unreduced in (False, True)]

    @property
    def is_alive(self) -> bool:
        return self._optimizer() is not None

    def is_of(self, optimizer: Any, size: int, count: int) -> bool:
        """Whether this is still so, for an optimizer with so many parameters among so many wrappers."""
        return self._optimizer() is optimizer and self._state == (size, count)


class Wrappers:
    """All wrappers of the process, and which optimizers hold their parameters."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # By the id of what they are of, which is asked whether it is still that: weak dictionaries cost more than all the rest.
        self._of: dict[int, Wrapper] = {}
        self.all: tuple[Wrapper, ...] = ()  # those whose modules are there
        self._held: dict[int, Held] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Wrapper]:
        return iter(self.all)

    def next_name(self) -> str:
        name = f"ddp{self._count}"
        self._count += 1
        return name

    def add(self, name: str, module: torch.nn.Module) -> Wrapper:
        """Takes up a wrapper whose constructor has returned."""
        process_group = getattr(module, "process_group", None)
        group = self._tracer.group(process_group) if process_group is not None else None
        self._of.pop(id(module), None)
        self._of[id(module)] = wrapper = Wrapper(name, module, group, self._tracer.native_gradients)
        self._drop_dead()
        weakref.finalize(module, self._drop_dead).atexit = False
        return wrapper

    def _drop_dead(self) -> None:
        # Called in whatever place a module is freed.
        for key, wrapper in list(self._of.items()):
            if not wrapper.is_alive and self._of.get(key) is wrapper:
                del self._of[key]
        self.all = tuple(self._of.values())

    def get(self, module: torch.nn.Module) -> Wrapper | None:
        found = self._of.get(id(module))
        return found if found is not None and found.is_of(module) else None

    def around(self, module: torch.nn.Module) -> Wrapper | None:
        """The wrapper that a module is, or that it is wrapped in."""
        found = self.get(module)
        return found if found is not None else next((w for w in self if w.inner() is module), None)

    def beside(self, optimizer: Any) -> list[torch.Tensor]:
        """The trained parameters of an optimizer that are in no wrapper."""
        inside = {id(p) for w in self if (inner := w.inner()) is not None for p in inner.parameters()}
        held = (p for group in optimizer.param_groups for p in group["params"])
        return [p for p in held if p.requires_grad and id(p) not in inside]

    def held_by(self, optimizer: Any) -> Held:
        """The wrappers that have a parameter in an optimizer."""
        size = 0
        for group in optimizer.param_groups:
            size += len(group["params"])
        known = self._held.get(id(optimizer))
        if known is not None and known.is_of(optimizer, size, self._count):
            return known
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        found = [w for w in self if any(id(p) in ids for r in w.parameters if (p := r()) is not None)]
        self._held = {key: held for key, held in self._held.items() if held.is_alive}
        self._held[id(optimizer)] = made = Held(optimizer, size, self._count, found)
        return made
