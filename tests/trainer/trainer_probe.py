"""The trainer under a plain observer of its own, independent of the tracer: `trainer_probe.py DIR [trainer options]`.

Every rank writes DIR/rank-N.json over and over: its collectives as torch's flight recorder holds them, the hashes of the
inputs of its training forwards, and the reduce operations of the trainer's own all-reduces.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
from torch.nn.parallel import DistributedDataParallel

from ddp_audit_trainer import train

out = Path(sys.argv[1]) / f"rank-{os.environ['RANK']}.json"
inputs_seen: list[str] = []
reduce_ops: list[str] = []
lock = threading.Lock()


def write() -> None:
    entries = pickle.loads(_dump_fr_trace(True, True, False)).get("entries", [])
    collectives: list[dict[str, Any]] = [
        {
            "op": entry["profiling_name"].removeprefix("gloo:"),
            "sizes": entry["input_sizes"],
            "retired": entry["retired"],
            "frames": [
                f"{frame['name']}:{frame['line']}"
                for frame in entry["frames"]
                if Path(frame["filename"]).parent.name == "ddp_audit_trainer"
            ],
        }
        for entry in entries
    ]
    with lock:
        text = json.dumps({"collectives": collectives, "inputs": inputs_seen, "reduce_ops": reduce_ops})
        out.with_suffix(".part").write_text(text)
        out.with_suffix(".part").replace(out)


def write_on_and_on() -> None:
    while True:
        write()
        time.sleep(0.3)


def forward_and_note(self: Any, inputs: torch.Tensor) -> Any:
    if self.training:
        inputs_seen.append(hashlib.sha256(str(inputs.tolist()).encode()).hexdigest()[:12])
    return forward(self, inputs)


def all_reduce_and_note(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
    reduce_ops.append(str(op))
    write()  # at once: the call may be the last of this process
    all_reduce(tensor, op=op)


forward, DistributedDataParallel.forward = DistributedDataParallel.forward, forward_and_note
all_reduce, dist.all_reduce = dist.all_reduce, all_reduce_and_note
sys.argv = ["train", *sys.argv[2:]]
threading.Thread(target=write_on_and_on, daemon=True).start()
destroy = dist.destroy_process_group


def write_and_destroy() -> None:
    write()
    destroy()


dist.destroy_process_group = write_and_destroy
train.main()
