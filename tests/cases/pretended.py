"""Lets a CPU process believe that its node has CUDA devices, and notes which of them it chooses. Tensors stay on the CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel


def pretend_devices(count: int, chosen: list[int]) -> None:
    """Patches torch: `count` devices are there, and each choice of one is appended to `chosen`."""
    current = [0]

    def note(device: Any) -> None:
        index = _index(device)
        if index is not None:
            chosen.append(index)

    def set_device(device: Any) -> None:
        index = _index(device)
        current[0] = 0 if index is None else index
        note(device)

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: count
    torch.cuda.current_device = lambda: current[0]
    torch.cuda.set_device = set_device
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.manual_seed = torch.cuda.manual_seed_all = lambda seed: None
    torch.cuda.empty_cache = lambda: None
    _move_nowhere(torch.Tensor, note, current)
    _move_nowhere(torch.nn.Module, note, current)
    _load_to_cpu(note)
    _make_on_cpu(note, current)
    _groups_on_gloo(note)


def _index(device: Any) -> int | None:
    """The index of a CUDA device, None for another device or one without an index."""
    if isinstance(device, bool) or device is None:
        return None
    if isinstance(device, int):
        return device
    if isinstance(device, str | torch.device) and str(device).startswith("cuda"):
        return torch.device(device).index
    return None


def _is_cuda(device: Any) -> bool:
    return isinstance(device, str | torch.device) and str(device).startswith("cuda")


def _move_nowhere(owner: Any, note: Any, current: list[int]) -> None:
    to = owner.to

    def moved(self: Any, *args: Any, **named: Any) -> Any:
        for device in [*args, named.get("device")]:
            if _is_cuda(device):
                note(torch.device("cuda", current[0]) if _index(device) is None else device)
        rest = ["cpu" if _is_cuda(a) or (isinstance(a, int) and not isinstance(a, bool)) else a for a in args]
        return to(self, *rest, **(named | ({"device": "cpu"} if _is_cuda(named.get("device")) else {})))

    def to_cuda(self: Any, device: Any = None, **named: Any) -> Any:
        note(current[0] if _index(device) is None else device)
        return self

    owner.to, owner.cuda = moved, to_cuda


def _load_to_cpu(note: Any) -> None:
    load = torch.load

    def loaded(file: Any, map_location: Any = None, **named: Any) -> Any:
        note(map_location)
        return load(file, map_location="cpu" if _is_cuda(map_location) else map_location, **named)

    torch.load = loaded


def _make_on_cpu(note: Any, current: list[int]) -> None:
    for name in ("tensor", "zeros", "ones", "empty", "full", "randn", "rand", "randint", "arange"):
        make = getattr(torch, name)

        def made(*args: Any, _make: Any = make, **named: Any) -> Any:
            if _is_cuda(named.get("device")):
                note(torch.device("cuda", current[0]) if _index(named["device"]) is None else named["device"])
                named["device"] = "cpu"
            return _make(*args, **named)

        setattr(torch, name, made)


def _groups_on_gloo(note: Any) -> None:
    begin, construct = dist.init_process_group, DistributedDataParallel.__init__

    def init_process_group(backend: Any = None, *args: Any, device_id: Any = None, **named: Any) -> None:
        note(device_id)
        begin("gloo" if backend is None or "nccl" in str(backend) else backend, *args, **named)

    def wrap(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **named: Any) -> None:
        for device in device_ids or []:
            note(device)
        construct(self, module, **named)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    DistributedDataParallel.__init__ = wrap
