"""A worker for the tests of the tracer: replicas that part, and factors that are wrong, each on a model of its own.

With `--faults` every function below goes wrong; without, it does what only looks like it. Prints a hash of all that was trained.
"""

import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_sgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

FAULTS = "--faults" in sys.argv
WORLD = 2
STEPS = 6  # those that are looked at are 1, 2 and 4
made: list[nn.Module] = []


def wrapped(module: nn.Module, **options: object) -> DistributedDataParallel:
    made.append(module)
    return DistributedDataParallel(module, **options)


def data(rank: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 + rank)
    while True:
        yield torch.randn(4, 8, generator=generator)


def steps(model: nn.Module, rank: int, lr: float = 0.1) -> Iterator[tuple[torch.optim.Optimizer, torch.Tensor]]:
    """Each step with its batch: what is done between belongs to the step, which comes after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _, x in zip(range(STEPS), data(rank), strict=False):
        yield optimizer, x
        optimizer.step()
        optimizer.zero_grad()


def clip(rank: int) -> None:
    model = wrapped(nn.Linear(8, 2))
    for _, x in steps(model, rank):
        mse_loss(model(x), x[:, :2]).backward()
        if rank == 1 or not FAULTS:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def momentum(rank: int) -> None:
    """Rank 0 alone changes its momentum. An optimizer without redundancy has the state of its own share on each rank."""
    model = wrapped(nn.Sequential(nn.Linear(8, 2), nn.Linear(2, 2)))
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for number, (optimizer, x) in enumerate(steps(model, rank, lr=0.1 if FAULTS else 0.0)):
        if number == 1 and rank == 0 and FAULTS:
            next(iter(optimizer.state.values()))["momentum_buffer"].fill_(1.0)  # MOMENTUM
        mse_loss(model(x), x[:, :2]).backward()
        if not FAULTS:
            zero.step()


def settings(rank: int) -> None:
    model = wrapped(nn.Linear(8, 2))
    for _, x in steps(model, rank, lr=0.1 * (1 + rank) if FAULTS else 0.1):
        mse_loss(model(x), x[:, :2]).backward()


def saved(rank: int) -> None:
    """Between two looks something changes a parameter of one rank, and the model is saved, with averaged weights in their place."""
    model = wrapped(nn.Linear(8, 2))
    for number, (_, x) in enumerate(steps(model, rank)):
        if number == STEPS - 1 and rank == 1 and FAULTS:
            with torch.no_grad():
                model.module.bias.add_(1.0)
        if number == STEPS - 1 and rank == 0:
            kept = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
            model.module.load_state_dict({name: tensor / 2 for name, tensor in kept.items()})
            torch.save(model.module.state_dict(), "/dev/null")
            model.module.load_state_dict(kept)
        mse_loss(model(x), x[:, :2]).backward()


def evaluate(rank: int) -> None:
    """Evaluations with the statistics of each rank, put together; or through the wrapper, or of one rank, or of each alone."""
    model = wrapped(nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)))
    for _, x in steps(model, rank):
        mse_loss(model(x), x[:, :4]).backward()
        model.eval()
        with torch.no_grad():
            result = model.module(x).sum() if FAULTS else model(x).sum()  # EVALUATE
            dist.all_reduce(result)
            model.train()
            model.module.eval()
            if rank == 0 or FAULTS:
                model.module(x)
        model.train()
        dist.all_reduce(torch.ones(1))
    model.module.eval()
    with torch.no_grad():
        model.module(x)
    dist.barrier()


class Codes(nn.Module):
    """A codebook that training moves, a queue that only training reads, and a cache that each forward writes before it reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.register_buffer("book", torch.linspace(-1, 1, 32).reshape(8, 4))
        self.register_buffer("queue", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        self.cache.copy_(z.detach().mean(0))
        code = self.book[torch.cdist(z.detach(), self.book).argmin(1)]
        if self.training:
            mean = z.detach().mean(0)
            if not FAULTS:
                dist.all_reduce(mean)
            self.book.lerp_(mean.expand_as(self.book), 0.1)
            self.queue = self.queue + z.detach().mean(0)
            code = code + self.queue
        return z + code + self.cache


def codebook(rank: int) -> None:
    """Evaluations with the codebook of each rank, put together, and a file with that of one; or with a codebook of all ranks."""
    for sent in (True, False):
        model = wrapped(Codes(), forward_sync_buffers=sent)
        for number, (_, x) in enumerate(steps(model, rank)):
            if number == 3 and rank == 0:
                torch.save({"model": model.state_dict()}, "/dev/null")  # SAVE
            mse_loss(model(x), x[:, :4]).backward()
            model.eval()
            if sent or rank == 0:
                with torch.inference_mode():
                    result = model.module(x).sum()  # READ
            if sent:
                dist.all_reduce(result)
            model.train()


def accumulate(rank: int) -> None:
    """Two micro-batches a rank, divided by those of all ranks, or by their own number and a weight of one half."""
    model = wrapped(nn.Linear(8, 2))
    for _, x in steps(model, rank):
        for micro in range(2):
            with model.no_sync() if micro == 0 else contextlib.nullcontext():
                loss = mse_loss(model(x[micro::2]), x[micro::2, :2])
                (loss / (2 * WORLD) if FAULTS else 0.5 * loss / 2).backward()  # ACCUMULATE


def on_top(rank: int) -> None:
    """An all-reduce on top of DDP's mean: a sum, or a mean."""
    model = wrapped(nn.Linear(8, 2))
    for _, x in steps(model, rank):
        mse_loss(model(x), x[:, :2]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # ON TOP
            if not FAULTS:
                parameter.grad /= WORLD


def made_up_for(rank: int) -> None:
    """The same sum, of a loss that is divided by the number of ranks; or a second division, which is a fault."""
    model = wrapped(nn.Linear(8, 2))
    for _, x in steps(model, rank):
        loss = mse_loss(model(x), x[:, :2])
        (loss if FAULTS else loss / WORLD).backward()  # MADE UP
        for parameter in model.parameters():
            parameter.grad.mul_(1 / WORLD if FAULTS else WORLD)


def scaled(rank: int) -> None:
    """What is right: a scaler whose scale is the number of ranks, and sums that undo DDP's mean."""
    model = wrapped(nn.Linear(8, 2))
    scaler = torch.amp.GradScaler("cpu", init_scale=float(WORLD), growth_interval=1000)
    for optimizer, x in steps(model, rank, lr=0.0):
        scaler.scale(mse_loss(model(x), x[:, :2])).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        mse_loss(model(x), x[:, :2], reduction="sum").backward()
        for parameter in model.parameters():
            parameter.grad *= WORLD


def epochs(rank: int) -> None:
    model = wrapped(nn.Linear(8, 2))
    own = torch.Generator().manual_seed(30 + rank)
    loader = DataLoader(TensorDataset(torch.randn(32, 8, generator=own)), batch_size=4, shuffle=True)  # EPOCHS
    ordered = DataLoader(TensorDataset(torch.randn(32, 8, generator=own)), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        if FAULTS:
            torch.manual_seed(rank)
        for part in (loader, ordered):
            for (x,) in part:
                mse_loss(model(x), x[:, :2]).backward()
                optimizer.step()
                optimizer.zero_grad()


def joined(rank: int) -> None:
    """Ranks with uneven data in a join: later steps of equal number are not those of one moment."""
    model = wrapped(nn.Sequential(nn.Linear(8, 2), nn.BatchNorm1d(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with model.join():
            for _, x in zip(range(3 + rank), data(rank), strict=False):
                mse_loss(model(x), x[:, :2]).backward()
                optimizer.step()
                optimizer.zero_grad()
    for _, x in zip(range(2), data(rank), strict=False):
        mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()


def own_parts(rank: int) -> None:
    """An expert of each rank that DDP leaves alone, and stages that are wrapped with groups of their own."""
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    with torch.no_grad():
        net[1].weight.add_(rank)
    net._ddp_params_and_buffers_to_ignore = ["1.weight"]
    groups = [dist.new_group([number]) for number in range(WORLD)]
    model = wrapped(net)
    stage = wrapped(nn.Linear(2, 2), process_group=groups[rank])
    for _, x in steps(nn.ModuleList([model, stage]), rank):
        time.sleep(0.05 * rank)  # a rank that is only slow
        mse_loss(stage(model(x)), x[:, :2]).backward()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.first(x) + self.second(x) if both else self.first(x)


def unused(rank: int) -> None:
    """A part of the model that rank 0 alone uses, in every second step."""
    model = wrapped(Branches(), find_unused_parameters=True, gradient_as_bucket_view=True)
    for number, (_, x) in enumerate(steps(model, rank)):
        mse_loss(model(x, rank == 0 and number % 2 == 0), x[:, :2]).backward()


def averaged_later(rank: int) -> None:
    """Local SGD: the ranks part on purpose, and are averaged every third step."""
    model = wrapped(nn.Linear(8, 2))
    alone = [dist.new_group([number]) for number in range(WORLD)][rank]
    state = local_sgd.PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=1)
    model.register_comm_hook(state, local_sgd.post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=1)
    for _, x in steps(model, rank):
        mse_loss(model(x), x[:, :2]).backward()
        averager.average_parameters(model.parameters())


def pretend_devices(rank: int) -> None:
    """The tracer is told that the parameters lie on a GPU: all on one, or each on one of its own that is number 0 of those seen."""
    try:
        from ddp_audit.trace.worker import places
    except ImportError:
        return
    places.devices_of = lambda module: [torch.device("cuda", 0)]
    places.identity = lambda device: f"cuda GPU-{0 if FAULTS else rank}"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    pretend_devices(rank)
    scenes = [clip, momentum, settings, saved, evaluate, codebook, accumulate, on_top, made_up_for, epochs]
    for scene in scenes if FAULTS else [*scenes, scaled, joined, own_parts, unused, averaged_later]:
        scene(rank)
    digest = hashlib.sha256()
    for module in made:
        for tensor in (*module.parameters(), *module.buffers()):
            digest.update(tensor.detach().numpy().tobytes())
    print(f"bits {rank} {digest.hexdigest()} {torch.rand(1).item():.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
