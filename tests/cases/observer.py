"""Watches one rank of a case program from inside, without a change to the program, and writes down what it saw.

What is seen does not come from the tracer: the ground truth of the cases must not depend on the tool that is measured by it.
`install` patches torch before the program starts; `record` gives the facts at its end.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data.dataloader as dataloader
from pretended import pretend_devices
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

GROUP_TIMEOUT = 4  # seconds after which a rank in a collective without partners gives up
LEFT_ALONE = re.compile(
    r"[Tt]imed out|[Tt]imeout|Connection closed|Connection reset|Broken pipe|pair closure|socket|store->get|"
    r"failed to recv|DistNetworkError|waiting for .* ranks"
)


class Reductions(TorchDispatchMode):
    """Counts the all-reduces of this process, those of DDP's reducer included."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.name().startswith("c10d::allreduce_")
        return func(*args, **(kwargs or {}))


def tensors_in(thing: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested containers, in order."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_in(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors_in(value)


def digest(tensors: Iterable[torch.Tensor | None]) -> str:
    """A hash of the bytes of some tensors, with None and shapes told apart."""
    state = hashlib.sha1(usedforsecurity=False)
    for tensor in tensors:
        state.update(b"none" if tensor is None else f"{tuple(tensor.shape)}".encode())
        if tensor is not None:
            state.update(_bytes(tensor))
    return state.hexdigest()[:16]


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor.detach()
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def rows_of(batch: Any) -> list[str]:
    """A hash of each sample of a batch: the rows of its largest tensor."""
    found = [tensor for tensor in tensors_in(batch) if tensor.dim()]
    if not found:
        return []
    return [digest([row]) for row in max(found, key=torch.Tensor.numel)]


class Observer:
    """What one rank did: its optimizer steps, batches, forwards, devices and wrappers."""

    def __init__(self, devices: int) -> None:
        self.steps: list[tuple[int, str]] = []  # optimizer by order of its first step, hash of its gradients
        self.first_gradient: list[torch.Tensor] = []
        self.loaders: dict[int, list[list[list[str]]]] = {}  # loader -> epochs -> batches -> rows
        self.inputs: list[str] = []  # hash of the inputs of each training forward of a wrapper
        self.chosen: list[int] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._wrappers: list[DistributedDataParallel] = []
        self._kept: list[Any] = []
        self._stepping = 0
        self._devices = devices
        self.reductions = Reductions()

    def install(self) -> None:
        """Patches torch for this process."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._watch_wrappers()
        self._watch_loaders()
        _shorten_timeouts()
        if self._devices:
            pretend_devices(self._devices, self.chosen)

    def record(self) -> dict[str, Any]:
        """The facts, as plain data."""
        parameters = [p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]]
        return {
            "steps": self.steps,
            "parameters": digest(parameters),
            "buffers": digest(b for wrapper in self._wrappers for b in wrapper.module.buffers()),
            "loaders": list(self.loaders.values()),
            "inputs": self.inputs,
            "chosen": self.chosen,
            "reductions": self.reductions.count,
        }

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping -= 1

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping += 1
        if (
            self._stepping > 1
        ):  # an optimizer inside another, as the local one of ZeroRedundancyOptimizer, has a part of the parameters
            return
        if not any(optimizer is known for known in self._optimizers):
            self._optimizers.append(optimizer)
        number = next(i for i, known in enumerate(self._optimizers) if known is optimizer)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        if not self.steps:
            self.first_gradient = [g.detach().double().reshape(-1).clone() for g in gradients if g is not None]
        self.steps.append((number, digest(gradients)))

    def _watch_wrappers(self) -> None:
        forward, construct = DistributedDataParallel.forward, DistributedDataParallel.__init__
        watch = self

        def watched_forward(self: DistributedDataParallel, *inputs: Any, **named: Any) -> Any:
            if torch.is_grad_enabled() and self.training:
                watch.inputs.append(digest(tensors_in([inputs, named])))
            return forward(self, *inputs, **named)

        def watched_construct(self: DistributedDataParallel, *args: Any, **named: Any) -> None:
            construct(self, *args, **named)
            watch._wrappers.append(self)

        DistributedDataParallel.forward = watched_forward
        DistributedDataParallel.__init__ = watched_construct

    def _watch_loaders(self) -> None:
        iterate, following = dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__

        def watched_iterate(loader: Any) -> Any:
            iterator = iterate(loader)
            if torch.is_grad_enabled():  # an evaluation may see the same samples everywhere
                self._kept.append(loader)  # so that no other loader gets its id
                epochs = self.loaders.setdefault(id(loader), [])
                epochs.append([])
                iterator._observed = epochs[-1]
            return iterator

        def watched_following(iterator: Any) -> Any:
            batch = following(iterator)
            if hasattr(iterator, "_observed"):
                iterator._observed.append(rows_of(batch))
            return batch

        dataloader.DataLoader.__iter__ = watched_iterate
        dataloader._BaseDataLoaderIter.__next__ = watched_following


def _shorten_timeouts() -> None:
    """Groups without a time-out of the program's own give up soon."""
    short = datetime.timedelta(seconds=GROUP_TIMEOUT)
    distributed_c10d._get_default_timeout = lambda backend: short
    distributed_c10d.default_pg_timeout = short


def use_own_keys(prefix: str, host: str, port: int, rank: int, world_size: int) -> None:
    """Lets init_process_group of this process meet its peers under a prefix in the launcher's store."""
    plain = dist.init_process_group

    def init_process_group(backend: str | None = None, init_method: str | None = None, **named: Any) -> None:
        if init_method is not None and not init_method.startswith("env://"):
            return plain(backend, init_method, **named)
        store = dist.TCPStore(host, port, is_master=False)
        named = {"rank": rank, "world_size": world_size} | {k: v for k, v in named.items() if v not in (-1, None)}
        return plain(backend, store=dist.PrefixStore(prefix, store), **named)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
