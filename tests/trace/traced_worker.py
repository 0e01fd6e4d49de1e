"""A worker for the tests of the tracer: a little of everything, on two ranks. Prints its final parameters' bits."""

import hashlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def bits(module: nn.Module) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest()


def train(rank: int) -> nn.Module:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(48, 8), torch.randn(48, 2))
    sampler = DistributedSampler(data)
    workers = 1 if "--workers" in sys.argv else 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers):
            (model(x) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def accumulate(rank: int) -> None:
    """Right: the last micro-step synchronizes. Then wrong: all of them under no_sync."""
    model = DistributedDataParallel(nn.Linear(4, 4), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.full((2, 4), 1.0 + rank)
    with model.no_sync():
        model(x).sum().backward()
    model(x).sum().backward()
    optimizer.step()  # reduced
    optimizer.zero_grad()
    with model.no_sync():
        model(x).sum().backward()
    loss = torch.ones(1)
    dist.all_reduce(loss)  # a metric is no gradient
    optimizer.step()  # unreduced
    optimizer.zero_grad()
    with model.no_sync():
        model(x).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()  # reduced by hand


def collectives(rank: int) -> None:
    tensor = torch.ones(3) * rank
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, src=1)
    pair = dist.new_group([1, 0])
    dist.broadcast(tensor, src=1, group=pair)
    alone = dist.new_group([1])
    if rank == 1:
        dist.all_reduce(tensor, group=alone)
    dist.all_gather_object([None, None], {"rank": rank})
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    dist.reduce(tensor, dst=1, op=dist.ReduceOp.PRODUCT)
    dist.scatter(tensor, [tensor, tensor] if rank == 0 else None, src=0)
    dist.all_gather([torch.empty(3), torch.empty(3)], tensor)
    with dist._coalescing_manager():
        dist.all_reduce(tensor)
        dist.all_reduce(torch.ones(5))
    dist.barrier()


def hooks(rank: int) -> None:
    """What stands between the user and the Reducer: a join, communication hooks, a tensor's hook."""
    joined = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with joined.join():
        for _ in range(1 + rank):
            joined(torch.randn(4, 4)).sum().backward()
    compressed = DistributedDataParallel(nn.Linear(4, 4))
    compressed.register_comm_hook(None, default_hooks.fp16_compress_hook)
    compressed(torch.randn(2, 4)).sum().backward()
    mine = DistributedDataParallel(nn.Linear(4, 4))
    mine.register_comm_hook(None, reduce_bucket)
    mine(torch.randn(2, 4)).sum().backward()
    watched = DistributedDataParallel(nn.Linear(4, 4))
    watched.module.weight.register_hook(reduce_norm)
    watched(torch.randn(2, 4)).sum().backward()


def reduce_bucket(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def reduce_norm(gradient: torch.Tensor) -> None:
    dist.all_reduce(gradient.norm())


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = train(rank)
    if "--same" not in sys.argv:
        accumulate(rank)
        collectives(rank)
        hooks(rank)
        if rank == 0:
            torch.save(model.state_dict(), "/dev/null")
        with torch.no_grad():  # one rank leaves the common path
            next(model.parameters()).add_(float(rank))
    print(f"bits {rank} {bits(model)} {torch.rand(1).item():.9f}", flush=True)
    if "--raise" in sys.argv and rank == 1:
        raise ValueError("the end of rank 1")
    del model  # before the group: what frees the reducer last waits for gloo's thread, which may wait for the interpreter
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
