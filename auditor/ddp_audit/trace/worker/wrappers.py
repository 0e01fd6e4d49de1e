"""What is known of each DDP wrapper: its name in the trace, and whether the gradients it holds were reduced."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ddp_audit.trace.worker import fingerprint
from ddp_audit.trace.worker.tracer import Group, Tracer

_WATCHED = 6  # parameters of a wrapper whose gradients are looked at before and after a backward pass


class Wrapper:
    """One DDP wrapper. `is_local`: the last backward pass that reached its parameters left gradients of this rank alone."""

    def __init__(self, name: str, module: torch.nn.Module, group: Group | None) -> None:
        self.name = name
        self._module = weakref.ref(module)
        self.group = group
        self.parameters = [weakref.ref(p) for p in module.parameters()]
        trainable = [p for p in module.parameters() if p.requires_grad]
        last = len(trainable) - 1
        spread = range(last + 1) if last < _WATCHED else [i * last // (_WATCHED - 1) for i in range(_WATCHED)]
        self._watched = [weakref.ref(trainable[i]) for i in spread]
        self.numel = sum(p.numel() for p in trainable)
        self.is_local = False
        self.user_elements = 0  # what the user's all-reduces had carried when the gradients became local
        self.reduced = 0  # backward passes with bucket all-reduces since the last step
        self.steps = 0

    @property
    def is_alive(self) -> bool:
        """Whether the module is still there."""
        return self._module() is not None

    @property
    def is_alone(self) -> bool:
        return self.group is not None and len(self.group.ranks) == 1

    def gradients(self) -> tuple[tuple[int, int], ...]:
        """Identity and version of some gradients: they change when a backward pass accumulates into them."""
        state = []
        for reference in self._watched:
            parameter = reference()
            gradient = parameter.grad if parameter is not None else None
            state.append((id(gradient), gradient._version) if gradient is not None else (0, 0))
        return tuple(state)

    def after_backward(self, buckets: int, user_elements: int) -> None:
        """Notes a backward pass that reached the wrapper's parameters."""
        if buckets:
            self.is_local = False
            self.reduced += 1
        else:
            self.is_local = True
            self.user_elements = user_elements

    def is_unreduced(self, user_elements: int) -> bool:
        """Whether a step now would use gradients of this rank alone. An all-reduce of the user's counts when it carried about
        as many elements as the wrapper has, so that a reduced loss does not pass for reduced gradients."""
        return self.is_local and not self.is_alone and user_elements - self.user_elements < self.numel // 2

    def hash(self) -> int | None:
        """The hash of its parameters; None where it is gone or cannot be read."""
        module = self._module()
        if module is None:
            return None
        parameters = list(module.parameters())
        if any(p.is_cuda for p in parameters) and torch.cuda.is_current_stream_capturing():
            return None
        return fingerprint.of_parameters(parameters)

    def is_on_device(self) -> bool:
        module = self._module()
        return module is not None and any(p.device.type != "cpu" for p in module.parameters())


class Wrappers:
    """All wrappers of the process, and which optimizers hold their parameters."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._of: weakref.WeakKeyDictionary[torch.nn.Module, Wrapper] = weakref.WeakKeyDictionary()
        self._all: list[Wrapper] = []  # those of `_of`: going through that dictionary costs more than all the rest of a look
        self._count = 0
        self._held: weakref.WeakKeyDictionary[Any, tuple[int, int, list[Wrapper]]] = weakref.WeakKeyDictionary()

    def __iter__(self) -> Iterator[Wrapper]:
        return iter([wrapper for wrapper in self._all if wrapper.is_alive])

    def next_name(self) -> str:
        name = f"ddp{self._count}"
        self._count += 1
        return name

    def add(self, name: str, module: torch.nn.Module) -> None:
        """Takes up a wrapper whose constructor has returned."""
        process_group = getattr(module, "process_group", None)
        group = self._tracer.group(process_group) if process_group is not None else None
        self._all = [wrapper for wrapper in self if wrapper is not self._of.get(module)]
        self._of[module] = wrapper = Wrapper(name, module, group)
        self._all.append(wrapper)

    def get(self, module: torch.nn.Module) -> Wrapper | None:
        return self._of.get(module)

    def held_by(self, optimizer: Any) -> list[Wrapper]:
        """The wrappers that have a parameter in an optimizer."""
        size = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._held.get(optimizer)
        if known is not None and known[0] == size and known[1] == self._count:
            return known[2]
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        held = [w for w in self if any(id(p) in ids for r in w.parameters if (p := r()) is not None)]
        self._held[optimizer] = (size, self._count, held)
        return held
