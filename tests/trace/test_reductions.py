"""The operation of a reduction is known also where torch's own object does not tell it, as before torch 2.10."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from ddp_audit.trace.store import load_run
from ddp_audit.trace.worker import reductions
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Tracer

if sys.argv[2] == "noted":
    reductions._tells = lambda: False
dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
methods = dict(vars(dist.ProcessGroup))
tracer = Tracer(sys.argv[1])
tracer.open(0, 2)
hook = Hook(tracer)
part = torch.ones(4)
dist.all_reduce(part)
dist.all_reduce(part, op=dist.ReduceOp.MAX)
dist.reduce(part, 0, op=dist.ReduceOp.PRODUCT, async_op=True).wait()
dist.reduce_scatter_tensor(torch.ones(2), part, dist.ReduceOp.MIN)
dist.broadcast(part, 0)
dist.group.WORLD.allreduce([part]).wait()
dist.group.WORLD.allreduce([part], dist.ReduceOp.BOR).wait()
functional.wait_tensor(functional.all_reduce(part, "avg", dist.group.WORLD))
hook.remove()
dist.all_reduce(part)
assert not tracer.failed and vars(dist.ProcessGroup) == methods
found = [(e.op, e.reduce_op) for e in load_run(sys.argv[1]).ranks[0].events if e.kind == "collective"]
print(json.dumps(found))
"""


def recorded(folder: Path, way: str) -> list[tuple[str, str | None]]:
    command = [sys.executable, "-c", SCRIPT, str(folder / way), way]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert outcome.returncode == 0, outcome.stderr
    return [(op, reduction) for op, reduction in json.loads(outcome.stdout.splitlines()[-1])]


def test_what_callers_say_is_what_torch_tells(tmp_path: Path) -> None:
    noted = recorded(tmp_path, "noted")
    assert noted == [
        ("all_reduce", "sum"),
        ("all_reduce", "max"),
        ("reduce", "product"),
        ("reduce_scatter", "min"),
        ("broadcast", None),
        ("all_reduce", "sum"),
        ("all_reduce", "bor"),
        ("all_reduce", "avg"),
    ]
    assert recorded(tmp_path, "told") == noted
