"""FSDP2 in two real processes: what is different from DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fully_shard import DIFFERENCES, FullyShard

SCRIPT = """
import json

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the groups, or gloo's threads may abort the process at exit
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = {"_allgather_base_": "all_gather", "_reduce_scatter_base_": "reduce_scatter"}
sent = []


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function).split(".")
        if name[0] == "c10d":
            sent[-1].append([NAMES.get(name[1], name[1]), args[1].numel()])
        return function(*args, **(kwargs or {}))


dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
x = torch.ones(2, 4)
with Watch():
    for call in PROGRAM:
        sent.append([])
        if call in ("forward", "eval"):
            with torch.set_grad_enabled(call == "forward"):
                loss = model(x).sum()
        elif call == "backward":
            loss.backward()
        else:
            model.set_requires_gradient_sync(call == "on")
if dist.get_rank() == 0:
    print(json.dumps(sent), flush=True)
dist.destroy_process_group()
"""
PROGRAM = [
    "eval",
    "eval",
    "forward",
    "backward",
    "off",
    "forward",
    "on",
    "backward",
    "forward",
    "off",
    "backward",
    "forward",
    "backward",
]


def test_traffic(tmp_path: Path) -> None:
    """The flag is read in the backward: cleared around the forward alone it does nothing, cleared after it everything."""
    pytest.importorskip("torch")
    script = tmp_path / "sharded.py"
    script.write_text(f"PROGRAM = {PROGRAM!r}\n{SCRIPT}", encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr
    model = FullyShard(numel=10)
    predicted = []
    for call in PROGRAM:
        events = []
        if call in ("forward", "eval"):
            events = model.forward(grad=call == "forward")
        elif call == "backward":
            events = model.backward()
        else:
            model.set_requires_gradient_sync(call == "on")
        predicted.append([[e.op, e.numel] for e in events])
    assert json.loads(run.stdout.splitlines()[-1]) == predicted


def test_every_difference_is_one() -> None:
    assert all(difference.ddp != difference.fsdp2 for difference in DIFFERENCES)
