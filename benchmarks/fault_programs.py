"""One fault a function, for faults.py: `fault_programs.py NAME` under torchrun. The last rank is the odd one.

Five all-reduces go before each fault, so that there is a common past. `diverge` notes the time at which the ranks part. The line of
the odd rank is marked with `# odd`, that of the others with `# rest`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Fault = Callable[[bool, int], None]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Registers a fault under the name of its function."""
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def diverge() -> None:
    """Notes that this rank parts from the others, in FAULT_CLOCK/RANK."""
    folder = os.environ.get("FAULT_CLOCK")
    if folder:
        Path(folder, str(dist.get_rank())).write_text(str(time.time()))


def data(size: int = 8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(size, dtype=dtype)


@fault
def operation(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.broadcast(data(), src=0)  # odd
    else:
        dist.all_reduce(data())  # rest


@fault
def size(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.all_reduce(data(20))  # odd
    else:
        dist.all_reduce(data(64))  # rest


@fault
def dtype_of_equal_bytes(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.all_reduce(data(dtype=torch.int32))  # odd
    else:
        dist.all_reduce(data())  # rest


@fault
def reduce_op(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.all_reduce(data(), op=dist.ReduceOp.MAX)  # odd
    else:
        dist.all_reduce(data())  # rest


@fault
def root(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.broadcast(data(), src=1)  # odd
    else:
        dist.broadcast(data(), src=0)  # rest


@fault
def order_of_equal_shapes(odd: bool, world: int) -> None:
    loss, accuracy = data(), data()

    def reduce_loss() -> None:
        dist.all_reduce(loss)  # rest

    def reduce_accuracy() -> None:
        dist.all_reduce(accuracy)  # odd

    metrics = [reduce_loss, reduce_accuracy]
    diverge()
    for reduce in reversed(metrics) if odd else metrics:
        reduce()


@fault
def order_across_two_groups(odd: bool, world: int) -> None:
    first, second = dist.new_group(list(range(world))), dist.new_group(list(range(world)))
    diverge()
    if odd:
        dist.all_reduce(data(), group=second)  # odd
        dist.all_reduce(data(), group=first)
    else:
        dist.all_reduce(data(), group=first)  # rest
        dist.all_reduce(data(), group=second)


@fault
def missing_rank(odd: bool, world: int) -> None:
    diverge()
    if odd:
        time.sleep(60)  # odd
    dist.barrier()  # rest


@fault
def extra_call(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.all_reduce(data())  # odd


@fault
def early_exit(odd: bool, world: int) -> None:
    diverge()
    if odd:
        os._exit(0)
    dist.all_reduce(data())  # rest


@fault
def exception(odd: bool, world: int) -> None:
    diverge()
    if odd:
        raise ValueError("a bad sample")  # odd
    dist.all_reduce(data())  # rest


@fault
def sigkill(odd: bool, world: int) -> None:
    diverge()
    if odd:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(data())  # rest


@fault
def sigabrt(odd: bool, world: int) -> None:
    diverge()
    if odd:
        os.abort()
    dist.all_reduce(data())  # rest


@fault
def sigstop(odd: bool, world: int) -> None:
    diverge()
    if odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(data())  # rest


@fault
def out_of_memory(odd: bool, world: int) -> None:
    diverge()
    if odd:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
        torch.empty(1 << 40, dtype=torch.uint8).fill_(1)  # odd
    dist.all_reduce(data())  # rest


@fault
def gil_held(odd: bool, world: int) -> None:
    diverge()
    if odd:
        ctypes.PyDLL(None).sleep(60)  # odd
    dist.all_reduce(data())  # rest


@fault
def point_to_point_circle(odd: bool, world: int) -> None:
    rank = dist.get_rank()
    diverge()
    dist.recv(data(), (rank + 1) % world)  # rest
    dist.send(data(), (rank - 1) % world)


@fault
def message_size(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.recv(data(4), 0)  # odd
    elif dist.get_rank() == 0:
        dist.send(data(), world - 1)  # rest


@fault
def message_tag(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.recv(data(), 0, tag=2)  # odd
    elif dist.get_rank() == 0:
        dist.send(data(), world - 1, tag=1)  # rest


@fault
def message_without_partner(odd: bool, world: int) -> None:
    diverge()
    if odd:
        time.sleep(60)  # odd
    elif dist.get_rank() == 0:
        dist.recv(data(), world - 1)  # rest


@fault
def members_only_new_group(odd: bool, world: int) -> None:
    diverge()
    if odd:
        dist.all_reduce(data())  # odd
    else:
        dist.all_reduce(data(), group=dist.new_group(list(range(world - 1))))


@fault
def rank0_evaluation(odd: bool, world: int) -> None:
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    diverge()
    if odd:  # the one rank that evaluates
        with torch.no_grad():
            model(torch.ones(2, 4))  # odd
    dist.barrier()  # rest


@fault
def uneven_batches(odd: bool, world: int) -> None:
    model = DDP(nn.Linear(4, 4))
    for step in range(4 if odd else 3):
        if step == 3:
            diverge()
        model(torch.ones(2, 4)).sum().backward()  # odd
    dist.barrier()  # rest


@fault
def unused_parameter(odd: bool, world: int) -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x) if odd else self.second(self.first(x))

    model = DDP(Net())
    diverge()
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()  # odd, rest


def dump_flight_recorder(folder: str, rank: int, world: int) -> None:
    """Writes the Flight Recorder's ring some seconds after the divergence, with the groups that a gloo dump lacks, and ends.

    It waits for the dumps of the others first: the launcher ends them when one rank leaves.
    """
    import pickle

    until = time.monotonic() + 60
    while time.monotonic() < until and not any(Path(os.environ["FAULT_CLOCK"]).iterdir()):
        time.sleep(0.1)
    time.sleep(4)
    ring = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, True, False))
    groups = {entry["process_group"] for entry in ring.get("entries", [])}
    ranks = str(list(range(world)))
    ring["pg_config"] = {name: {"name": name, "desc": desc, "ranks": ranks} for name, desc in groups}
    Path(folder, f"dump_{rank}").write_bytes(pickle.dumps(ring))
    until = time.monotonic() + 30  # on a busy machine another rank may be late
    while time.monotonic() < until and len(list(Path(folder).iterdir())) < world:
        time.sleep(0.1)
    os._exit(3)


def main() -> None:
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    if "FAULT_DUMPS" in os.environ:
        arguments = (os.environ["FAULT_DUMPS"], dist.get_rank(), world)
        threading.Thread(target=dump_flight_recorder, args=arguments, daemon=True).start()
    for _ in range(5):
        dist.all_reduce(data())
    odd = dist.get_rank() == (0 if sys.argv[1] == "rank0-evaluation" else world - 1)
    FAULTS[sys.argv[1]](odd, world)
    dist.destroy_process_group()
    if "FAULT_DUMPS" in os.environ:
        time.sleep(40)


if __name__ == "__main__":
    main()
