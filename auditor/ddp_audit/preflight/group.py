"""The store at which the ranks meet, and the process group of the job's backend.

The ranks leave their state in the store, so that rank 0 knows of all of them although the group cannot form.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ddp_audit.preflight.environment import Place
from ddp_audit.preflight.settings import backend_names

_PORT = 29500  # torchrun's default


class StoreError(Exception):
    """The store cannot be reached. The text is one line."""


def meeting_address(place: Place) -> tuple[str, int, bool]:
    """Address and port of the store, and whether the environment names them as torch wants it.

    Where it does not, the first node of Slurm's list stands in, for scripts that derive the address themselves.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if address and port.isdecimal():
        return address, int(port), True
    if place.world == 1:
        return "127.0.0.1", 0, True
    first = re.match(r"[^,\[]+(?:\[(\d+))?", os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST") or "")
    host = first.group().replace("[", "") if first else "127.0.0.1"
    return address or host, int(port) if port.isdecimal() else _PORT, False


class Board:
    """Where the ranks post their state: `post` and `read` never wait for another rank."""

    def __init__(self, place: Place, seconds: float) -> None:
        """Connects within some seconds. Raises StoreError."""
        self.address, self.port, self.is_named = meeting_address(place)
        hosts = place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._store = self._connect(place, seconds, hosts)
        if self.port == 0:
            self.port = self._store.port
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"ddp_audit_preflight/{attempt}"
        self.store = dist.PrefixStore(self._prefix, self._store)

    def _connect(self, place: Place, seconds: float, hosts: bool) -> Any:
        try:
            return dist.TCPStore(
                self.address, self.port, place.world, hosts, timedelta(seconds=max(1.0, seconds)), wait_for_workers=False
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise StoreError(" ".join(str(error).split("Exception raised from")[0].split())) from None

    def again(self, place: Place, seconds: float) -> Board:
        """A second connection, for a thread: one that waits in a connection keeps the others of its process out."""
        other = object.__new__(Board)
        other.address, other.port, other.is_named, other._prefix = self.address, self.port, self.is_named, self._prefix
        other._store = other._connect(place, seconds, False)
        other.store = dist.PrefixStore(other._prefix, other._store)
        return other

    def post(self, key: str, document: dict[str, Any]) -> None:
        """Leaves an object under a key."""
        self.store.set(key, json.dumps(document))

    def read(self, key: str) -> dict[str, Any] | None:
        """The object under a key; None where nothing was posted yet."""
        if not self.store.check([key]):
            return None
        found = json.loads(self.store.get(key))
        return found if isinstance(found, dict) else None

    def wait(self, key: str, seconds: float) -> dict[str, Any] | None:
        """The object under a key, once it is there; None where it does not come in time."""
        try:
            self.store.wait([key], timedelta(seconds=max(0.01, seconds)))
        except RuntimeError:  # torch's DistStoreError is one
            return None
        return self.read(key)

    def count(self, key: str, more: int = 0) -> int:
        """The number under a key, after adding to it."""
        return int(self.store.add(key, more))


def choose_backend(wanted: str | None, devices: Iterable[dict[str, Any]]) -> str:
    """The backend of the group: the script's where every rank can have it, else what the devices allow."""
    has_devices = all(device["index"] is not None and device["error"] is None for device in devices)
    names = backend_names(wanted)
    if "nccl" in names or not names:
        return "nccl" if has_devices and dist.is_nccl_available() else "gloo"
    return "mpi" if names == ["mpi"] and dist.is_mpi_available() else "gloo"


def make_group(backend: str, board: Board, place: Place, index: int | None, seconds: float) -> None:
    """Makes the process group of all ranks, as the job will. Raises whatever torch does."""
    options: dict[str, Any] = {}
    if backend == "nccl" and index is not None:
        options["device_id"] = torch.device("cuda", index)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("group", board.store),
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=max(2.0, seconds)),
        **options,
    )
