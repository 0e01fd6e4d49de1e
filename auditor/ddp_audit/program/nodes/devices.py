"""Nodes of devices: where a process chooses its own, and where it uses one that it did not choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import Node
from ddp_audit.program.values import Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class DeviceChoice(Node):
    """A place where a CUDA device is chosen."""

    kind: ClassVar[str] = "device"
    index: Value
    via: str  # set_device, device_ids, to, torch.device


class CurrentDevice(Node):
    """Something is put on the process's current CUDA device: `.cuda()`, `.to("cuda")`, `device="cuda"`."""

    kind: ClassVar[str] = "current-device"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ForcedDevice(Node):
    """An option that names a device, or `cpu`, is overwritten by the process's CUDA device."""

    kind: ClassVar[str] = "forced-device"
    old: Value
    value: Value
