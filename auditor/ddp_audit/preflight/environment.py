"""What a rank finds where it runs: its place in the job, devices, versions, variables. Needs no group and no other rank."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ddp_audit

_PREFIXES = ("NCCL_", "GLOO_", "TORCH_")
_LONGEST = 500

# Where launchers say a process's place, in the order in which they count: torch's own, then Slurm, Open MPI, and PMI (MPICH).
_PLACES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A process's place in the job. `node` names the node: its rank where the launcher says it, else the host."""

    rank: int
    world: int
    local_rank: int
    local_world: int | None
    node: str
    said_by: str

    @property
    def leads(self) -> bool:
        """Whether it is the rank of its node that reads what the whole node shares."""
        return self.local_rank == 0


def find_place(env: Mapping[str, str], words: list[str]) -> Place:
    """The place that the environment gives this process; a job of one where it gives none.

    torch.distributed.launch and deepspeed may say the local rank in the arguments alone.
    """
    said = [word.partition("=")[2] for word in words if re.fullmatch(r"--local[-_]rank=\d+", word)]
    for rank, world, local, local_world, node in _PLACES:
        if env.get(rank, "").isdecimal() and env.get(world, "").isdecimal():
            number = env.get(local, said[0] if said else "")
            name = env.get(node, "") if node else ""
            many = env.get(local_world, "")
            return Place(
                int(env[rank]),
                int(env[world]),
                int(number) if number.isdecimal() else 0,
                int(many) if many.isdecimal() else None,
                f"node {name}" if name.isdecimal() else socket.gethostname(),
                rank,
            )
    return Place(0, 1, 0, 1, socket.gethostname(), "")


def describe(place: Place) -> dict[str, Any]:
    """The facts of this process. Its devices are those of CUDA (or ROCm, which passes for CUDA)."""
    import torch

    versions = {
        "ddp-audit": ddp_audit.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "nccl": None,
        "driver": _driver(),
    }
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        with suppress(Exception):
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {
        "rank": place.rank,
        "world_size": place.world,
        "local_rank": place.local_rank,
        "local_world_size": place.local_world,
        "node": place.node,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "executable": sys.executable,
        "address": f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}",
        "memory": _memory(),
        "device": _device(place),
        "versions": versions,
        "variables": {name: value[:_LONGEST] for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)},
    }


def _device(place: Place) -> dict[str, Any]:
    """The GPU that the rank would take by its local rank, or the only one that it sees; `error` where none can be used."""
    import torch

    count = torch.cuda.device_count()
    found: dict[str, Any] = {"count": count, "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "index": None, "error": None}
    if count == 0:
        return found
    index = place.local_rank if place.local_rank < count else 0 if count == 1 else None
    found["index"] = index
    if index is None:
        return found
    try:
        torch.cuda.set_device(index)
        free, total = torch.cuda.mem_get_info(index)
        properties = torch.cuda.get_device_properties(index)
        found.update(name=properties.name, uuid=str(getattr(properties, "uuid", "")), free=free, total=total)
    except Exception as error:  # whatever a driver says is a fact to report
        found["error"] = " ".join(str(error).split())[:_LONGEST]
    return found


def _driver() -> str | None:
    """The version of NVIDIA's kernel driver, as it says itself."""
    with suppress(OSError, UnicodeDecodeError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        found = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", text)
        return found.group() if found else None
    return None


def _memory() -> dict[str, int]:
    """Free and total memory of the machine, in bytes, and what a cgroup leaves of it."""
    found = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found["total" if name == "MemTotal" else "free"] = int(value.split()[0]) * 1024
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8"))
        found["free"] = min(found.get("free", limit), max(0, limit - used))
        found["total"] = min(found.get("total", limit), limit)
    return found
