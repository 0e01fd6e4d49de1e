"""Which devices a module is on, named so that two processes name one device alike."""

from __future__ import annotations

import os

import torch


def devices_of(module: torch.nn.Module) -> list[torch.device]:
    """The devices of its parameters but for the CPU, in order."""
    return list(dict.fromkeys(p.device for p in module.parameters() if p.device.type not in ("cpu", "meta")))


def identity(device: torch.device) -> str | None:
    """The type and UUID of a device; None where torch does not tell it. An index will not do: ranks may see different devices."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return None
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = device.index or 0
    part = seen[index].strip() if index < len(seen) and seen[index].strip().startswith("MIG") else ""
    return f"cuda {uuid}{' ' if part else ''}{part}"
