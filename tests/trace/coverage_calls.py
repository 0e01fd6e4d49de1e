"""Every way in which ranks communicate, one function each, for the table of what the tracer sees.

Run under torchrun with two ranks. A function that raises is noted with its last line, and the others go on. `NEEDS` names what has
to be there beside torch on a CPU. Each function has its own model, made in it, so that all its traffic comes from its lines.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

Call = Callable[[int], None]
CALLS: dict[str, Call] = {}
EXPECTED: dict[str, str] = {}  # operations that both ranks together must have recorded, by commas; "nothing"


def call(name: str, expected: str) -> Callable[[Call], Call]:
    """Registers a function under what it shows and the operations that it issues."""

    def register(function: Call) -> Call:
        CALLS[name], EXPECTED[name] = function, expected
        return function

    return register


def ones(size: int = 4) -> torch.Tensor:
    return torch.ones(size)


# ---- collectives of torch.distributed


@call("all_reduce", "all_reduce")
def _all_reduce(rank: int) -> None:
    dist.all_reduce(ones())


@call("all_reduce, async_op", "all_reduce")
def _all_reduce_async(rank: int) -> None:
    dist.all_reduce(ones(), async_op=True).wait()


@call("broadcast", "broadcast")
def _broadcast(rank: int) -> None:
    dist.broadcast(ones(), src=0)


@call("reduce", "reduce")
def _reduce(rank: int) -> None:
    dist.reduce(ones(), dst=1)


@call("all_gather", "all_gather")
def _all_gather(rank: int) -> None:
    dist.all_gather([ones(), ones()], ones())


@call("all_gather_into_tensor", "all_gather")
def _all_gather_into_tensor(rank: int) -> None:
    dist.all_gather_into_tensor(ones(8), ones())


@call("gather", "gather")
def _gather(rank: int) -> None:
    dist.gather(ones(), [ones(), ones()] if rank == 0 else None, dst=0)


@call("scatter", "scatter")
def _scatter(rank: int) -> None:
    dist.scatter(ones(), [ones(), ones()] if rank == 0 else None, src=0)


@call("reduce_scatter", "reduce_scatter")
def _reduce_scatter(rank: int) -> None:
    dist.reduce_scatter(ones(), [ones(), ones()])


@call("reduce_scatter_tensor", "reduce_scatter")
def _reduce_scatter_tensor(rank: int) -> None:
    dist.reduce_scatter_tensor(ones(), ones(8))


@call("all_to_all_single", "all_to_all")
def _all_to_all_single(rank: int) -> None:
    dist.all_to_all_single(ones(), ones())


@call("all_to_all", "all_to_all")
def _all_to_all(rank: int) -> None:
    dist.all_to_all([ones(), ones()], [ones(), ones()])


@call("barrier", "barrier")
def _barrier(rank: int) -> None:
    dist.barrier()


@call("monitored_barrier", "monitored_barrier")
def _monitored_barrier(rank: int) -> None:
    dist.monitored_barrier()


@call("all_gather_object", "all_gather")
def _all_gather_object(rank: int) -> None:
    dist.all_gather_object([None, None], {"rank": rank})


@call("gather_object", "all_gather,gather")
def _gather_object(rank: int) -> None:
    dist.gather_object(rank, [None, None] if rank == 0 else None, dst=0)


@call("broadcast_object_list", "broadcast")
def _broadcast_object_list(rank: int) -> None:
    dist.broadcast_object_list([rank], src=0)


@call("scatter_object_list", "broadcast,scatter")
def _scatter_object_list(rank: int) -> None:
    dist.scatter_object_list([None], [1, 2] if rank == 0 else None, src=0)


@call("send and recv", "recv,send")
def _send(rank: int) -> None:
    if rank == 0:
        dist.send(ones(), 1)
    else:
        dist.recv(ones(), 0)


@call("isend and irecv", "recv,send")
def _isend(rank: int) -> None:
    (dist.isend(ones(), 1) if rank == 0 else dist.irecv(ones(), 0)).wait()


@call("batch_isend_irecv", "recv,send")
def _batch(rank: int) -> None:
    operations = [dist.P2POp(dist.isend, ones(), 1 - rank), dist.P2POp(dist.irecv, ones(), 1 - rank)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@call("coalescing manager", "all_reduce")
def _coalesced(rank: int) -> None:
    with dist._coalescing_manager():
        dist.all_reduce(ones())
        dist.all_reduce(ones(5))


@call("a group of new_group", "all_reduce")
def _group(rank: int) -> None:
    dist.all_reduce(ones(), group=dist.new_group([0, 1]))


@call("a group of one rank", "all_reduce")
def _own_group(rank: int) -> None:
    alone = dist.new_group([1])
    if rank == 1:
        dist.all_reduce(ones(), group=alone)


# ---- other interfaces


@call("functional collectives", "all_gather,all_reduce,reduce_scatter")
def _functional(rank: int) -> None:
    funcol.all_reduce(ones(), "sum", dist.group.WORLD) + 1
    funcol.all_gather_tensor(ones(), 0, dist.group.WORLD) + 1
    funcol.reduce_scatter_tensor(ones(8), "sum", 0, dist.group.WORLD) + 1


@call("torch.distributed.nn, forward and backward", "all_reduce")
def _with_gradient(rank: int) -> None:
    value = ones().requires_grad_()
    torch.distributed.nn.functional.all_reduce(value).sum().backward()


@call("DTensor: full_tensor", "all_gather,scatter")
def _dtensor(rank: int) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (2,))
    distribute_tensor(ones(8), mesh, [Shard(0)]).full_tensor()


@call("FSDP2: fully_shard", "all_gather,reduce_scatter")
def _fully_shard(rank: int) -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    model = fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (2,)))
    model(ones()).sum().backward()


@call("FSDP1: FullyShardedDataParallel", "all_gather,reduce_scatter")
def _fsdp(rank: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    model(ones()).sum().backward()


@call("ZeroRedundancyOptimizer", "broadcast")
def _zero(rank: int) -> None:
    model = nn.Linear(4, 4)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    model(ones()).sum().backward()
    optimizer.step()
    optimizer.consolidate_state_dict(to=0)


@call("SyncBatchNorm", "")
def _sync_batchnorm(rank: int) -> None:
    nn.SyncBatchNorm(4).to("cuda")(torch.ones(2, 4, device="cuda"))


# ---- DistributedDataParallel


@call("DDP constructor", "all_gather,broadcast")
def _constructor(rank: int) -> None:
    DDP(nn.BatchNorm1d(4))


@call("DDP: buffers, buckets, rebuild, unused map", "all_gather,all_reduce,broadcast")
def _training(rank: int) -> None:
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), find_unused_parameters=True)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()


@call("DDP: static_graph", "all_gather,all_reduce,broadcast")
def _static(rank: int) -> None:
    model = DDP(nn.Linear(4, 4), static_graph=True)
    for _ in range(3):
        model(ones()).sum().backward()


@call("DDP: a communication hook", "all_gather,all_reduce,broadcast")
def _hook(rank: int) -> None:
    model = DDP(nn.Linear(4, 4))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model(ones()).sum().backward()


@call("DDP: PowerSGD", "all_gather,all_reduce,broadcast")
def _power(rank: int) -> None:
    model = DDP(nn.Linear(16, 16))
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(ones(16)).sum().backward()


@call("DDP: join", "all_gather,all_reduce,broadcast")
def _join(rank: int) -> None:
    model = DDP(nn.Linear(4, 4))
    with model.join():
        for _ in range(1 + rank):
            model(ones()).sum().backward()


@call("DDP under no_grad", "all_gather,broadcast")
def _no_grad(rank: int) -> None:
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with torch.no_grad():
        model(torch.ones(2, 4))


@call("DDP under inference_mode", "all_gather,broadcast")
def _inference(rank: int) -> None:
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).eval()
    with torch.inference_mode():
        model(torch.ones(2, 4))


@call("DDP under torch.compile", "all_gather,all_reduce,broadcast")
def _compiled(rank: int) -> None:
    model = torch.compile(DDP(nn.Linear(4, 4)), backend="eager")
    model(ones()).sum().backward()


@call("a collective inside torch.compile", "all_reduce")
def _compiled_collective(rank: int) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    torch.compile(double, backend="eager")(ones())


# ---- from elsewhere than the main thread


@call("another thread", "all_reduce")
def _thread(rank: int) -> None:
    def reduce() -> None:
        dist.all_reduce(ones())

    thread = threading.Thread(target=reduce)
    thread.start()
    thread.join()


@call("a tensor's hook, during backward", "all_reduce")
def _in_backward(rank: int) -> None:
    value = ones().requires_grad_()
    value.register_hook(lambda gradient: dist.all_reduce(gradient))
    value.sum().backward()


def main() -> None:
    """Issues every call; what raised goes to FOLDER/failed.RANK.json."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    failed = {}
    for name, function in CALLS.items():
        try:
            function(rank)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:100]}"
    Path(sys.argv[1], f"failed.{rank}.json").write_text(json.dumps(failed))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0) if "--at-once" in sys.argv else dist.destroy_process_group()


if __name__ == "__main__":
    main()
