"""Train a small GPT with DistributedDataParallel, reading from top to bottom.

One process, two processes on a CPU, or one process a GPU:

    python -m ddp_audit_trainer.train
    torchrun --standalone --nproc-per-node 2 -m ddp_audit_trainer.train --device cpu
    torchrun --standalone --nproc-per-node 4 -m ddp_audit_trainer.train --device cuda --accumulation 8

An update sees W ranks x a micro-batches x B sequences x T tokens, with A = W a micro-batches over all ranks (`--accumulation`).
`--hazard NAME` departs from the right way at one place; each such place is marked `# HAZARD NAME`, and `hazards.py` says what
comes of it.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import math
import os
import sys
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group is made; see main()
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

from ddp_audit_trainer.checkpoint import load_checkpoint, make_folder, save_checkpoint, set_random_state
from ddp_audit_trainer.config import Refused, parse_config
from ddp_audit_trainer.data import IGNORED, RandomWindows, Windows, load_tokens, split_tokens
from ddp_audit_trainer.model import GPT, summed_loss


def train(config: argparse.Namespace) -> None:
    # Who we are. torchrun sets these; without it we are one process and need no process group, unless a backend is asked for.
    rank = int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    distributed = world_size > 1 or config.backend != "auto"

    # Everything that can be refused is refused here, by every rank alike, before the first collective.
    refuse_wrong_launch(config, world_size)
    micro_steps = config.accumulation // world_size
    device = choose_device(config, local_rank)
    train_set, val_set = split_tokens(load_tokens(config), config)
    share = train_set.disjoint // world_size  # sequences of an epoch, a rank
    if share < micro_steps * config.batch_size:
        raise Refused(f"the data gives each rank {share} sequences an epoch, one update needs {micro_steps * config.batch_size}")
    checkpoint = load_checkpoint(config, world_size) if config.resume else None
    if config.checkpoint_dir:
        make_folder(config.checkpoint_dir)

    # The backend follows the device, unless one is asked for.
    backend = config.backend
    if backend == "auto":
        backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if distributed:
        dist.init_process_group(backend=backend, device_id=device if backend == "nccl" else None)

    # One seed for the model on all ranks, although DDP sends rank 0's parameters in any case. A checkpoint is loaded by every
    # rank, and before the wrap.
    torch.manual_seed(config.seed)
    raw_model: nn.Module = GPT(config).to(device)
    optimizer = torch.optim.AdamW(raw_model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    if checkpoint is not None:
        raw_model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    model: nn.Module = raw_model
    if distributed:
        model = DistributedDataParallel(raw_model, device_ids=[device.index] if device.type == "cuda" else None)

    if config.hazard == "params-differ" and rank != 0:
        # HAZARD params-differ: the other ranks change a parameter after the wrap, and DDP never sends parameters again.
        with torch.no_grad():
            raw_model.tokens.weight.add_(0.01)

    # After the wrap every rank has its own stream: its dropout is not that of the others.
    torch.manual_seed(config.seed + 1 + rank)

    # A batch of the loader is this rank's part of one update.
    loader, sampler = make_loader(config, train_set, share, micro_steps * config.batch_size, rank, world_size)

    step, first_epoch, first_update = 0, 0, 0
    if checkpoint is not None:
        step, first_epoch, first_update = checkpoint["step"], checkpoint["epoch"], checkpoint["update"]
        if distributed:
            rehearse(model, optimizer, train_set, device)
        set_random_state(checkpoint["random"][rank], device)

    update_tokens = config.accumulation * config.batch_size * config.block_size
    if rank == 0:
        ranks = f"{world_size} ranks over {backend}" if distributed else "1 rank"
        print(
            f"{ranks} on {device.type}: "
            f"{micro_steps} micro-batches x {config.batch_size} sequences x {config.block_size} tokens a rank, "
            f"{update_tokens} tokens an update, {sum(p.numel() for p in raw_model.parameters())} parameters",
            flush=True,
        )

    first_step = step
    stop = False
    for epoch in range(first_epoch, config.max_epochs):
        if config.hazard == "no-set-epoch":
            pass  # HAZARD no-set-epoch: the sampler does not get the epoch, so every epoch has the order of the first.
        elif sampler is not None:
            sampler.set_epoch(epoch)

        for update, (inputs, targets) in enumerate(loader):
            if epoch == first_epoch and update < first_update:
                continue  # done before the checkpoint
            if step >= config.max_steps:
                break
            started = time.perf_counter()

            # Evaluation and checkpoint stand between two updates, and not before the first one of a run.
            if step > first_step and step % config.eval_interval == 0:
                evaluate_between_updates(config, model, raw_model, val_set, device, step, rank, world_size, distributed)
                if config.checkpoint_dir:
                    save_checkpoint(config, raw_model, optimizer, device, step, epoch, update)

            inputs, targets = inputs.to(device), targets.to(device)
            token_count = tokens_of_update(config, targets, update_tokens, distributed)

            lr = learning_rate(config, step)
            for group in optimizer.param_groups:
                group["lr"] = lr

            # DDP averages the gradients of the ranks. With world_size x (sum over its own tokens) / (tokens of all ranks) as
            # the loss of a rank, that average is the gradient of the mean over all tokens.
            scale = world_size / token_count
            loss_sum = accumulate(config, model, inputs, targets, scale, micro_steps, distributed)

            if config.hazard == "rank0-clip" and rank != 0:
                pass  # HAZARD rank0-clip: the gradients are equal on all ranks, and only rank 0 clips its own.
            elif config.grad_clip > 0:
                torch.nn.utils.clip_grad_norm_(raw_model.parameters(), config.grad_clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            # The loss that is printed, and that ends the training, is the mean over the tokens of all ranks.
            local_loss = float(loss_sum * scale)
            sum_over_ranks(config, loss_sum, rank, distributed)
            mean_loss = float(loss_sum / token_count)
            if rank == 0:
                milliseconds = (time.perf_counter() - started) * 1000
                print(
                    f"step {step}  epoch {epoch}  loss {mean_loss:.4f}  tokens {int(token_count)}  lr {lr:.6f}  "
                    f"{milliseconds:.0f} ms",
                    flush=True,
                )
            step += 1
            position = (epoch, update + 1)

            stop = mean_loss < config.target_loss
            if config.hazard == "early-exit":
                # HAZARD early-exit: each rank asks its own loss, so one rank leaves and the other goes on.
                stop = local_loss < mean_loss
            if stop:
                break

        if stop or step >= config.max_steps:
            break

    if step > first_step:
        evaluate_on_all_ranks(config, raw_model, val_set, device, step, rank, world_size, distributed)
        if config.checkpoint_dir:
            save_checkpoint(config, raw_model, optimizer, device, step, *position)
    report_parameters(raw_model, rank, distributed)


def refuse_wrong_launch(config: argparse.Namespace, world_size: int) -> None:
    """Raise Refused where the options do not fit the number of processes, or where torchrun is missing."""
    if config.accumulation % world_size != 0:
        above = (config.accumulation // world_size + 1) * world_size
        below = above - world_size
        nearest = f"{below} and {above} are" if below > 0 else f"{above} is"
        raise Refused(f"--accumulation {config.accumulation} does not divide over {world_size} ranks; {nearest} next to it and do")
    if config.hazard != "none" and world_size == 1:
        raise Refused(f"--hazard {config.hazard} needs at least two processes: start it with torchrun")
    if config.backend != "auto" and "RANK" not in os.environ:
        raise Refused(f"--backend {config.backend} makes a process group: start it with torchrun, be it with one process")


def make_loader(
    config: argparse.Namespace, train_set: Windows, share: int, part: int, rank: int, world_size: int
) -> tuple[DataLoader[Any], DistributedSampler | RandomWindows | None]:
    """The loader of this rank, `part` sequences a batch, and the sampler that needs the epoch.

    DistributedSampler deals one permutation out to the ranks: equal numbers, no sample twice. Random windows are drawn by each
    rank for itself. The generator keeps the loader's own draws out of the rank's random stream.
    """
    generator = torch.Generator().manual_seed(config.seed)
    if config.hazard == "no-sampler":
        # HAZARD no-sampler: every rank goes through the whole set, and through the same permutation of it.
        return DataLoader(train_set, batch_size=part, shuffle=True, drop_last=True, generator=generator), None
    if config.hazard == "uneven-batches":
        # HAZARD uneven-batches: a split by hand, two thirds of the data to rank 0 and one third to each of the others.
        cut = len(train_set) * 2 // 3
        own = range(cut) if rank == 0 else range(cut, len(train_set))
        return DataLoader(Subset(train_set, own), batch_size=part, shuffle=True, drop_last=True, generator=generator), None
    sampler: DistributedSampler | RandomWindows
    if config.sampling == "random-windows":
        sampler = RandomWindows(train_set, share, config.seed, rank)
    else:
        sampler = DistributedSampler(train_set, world_size, rank, shuffle=True, seed=config.seed, drop_last=True)
    return DataLoader(train_set, batch_size=part, sampler=sampler, drop_last=True, generator=generator), sampler


def rehearse(model: nn.Module, optimizer: torch.optim.Optimizer, train_set: Windows, device: torch.device) -> None:
    """Run one forward and backward of which nothing is kept. Collective.

    DDP orders its buckets again once, after the first backward, and that order decides how three or more ranks round their sums.
    The unbroken run did so long ago; this brings a resumed run there too.
    """
    inputs, targets = train_set.batch(range(1))
    summed_loss(model(inputs.to(device)), targets.to(device)).backward()
    optimizer.zero_grad(set_to_none=True)


def tokens_of_update(config: argparse.Namespace, targets: Tensor, update_tokens: int, distributed: bool) -> Tensor:
    """The number of tokens of this update over all ranks, a float scalar, by which the loss is divided.

    With equal lengths every rank knows it; with varied ones the ranks add up theirs: then it is a collective.
    """
    if config.lengths == "equal":
        return torch.tensor(float(update_tokens), device=targets.device)
    token_count = (targets != IGNORED).sum().float()
    if distributed:
        dist.all_reduce(token_count)
    return token_count


def accumulate(
    config: argparse.Namespace,
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    scale: Tensor,
    micro_steps: int,
    distributed: bool,
) -> Tensor:
    """Forward and backward of each micro-batch of an update; gives the summed loss of this rank.

    Only the last micro-batch reduces. no_sync acts in the forward, which therefore stands inside it.
    """
    loss_sum = torch.zeros((), device=inputs.device)
    for micro_step in range(micro_steps):
        here = slice(micro_step * config.batch_size, (micro_step + 1) * config.batch_size)
        last = micro_step == micro_steps - 1
        if config.hazard == "flag-after-forward":
            loss = summed_loss(model(inputs[here]), targets[here])
            # HAZARD flag-after-forward: the forward has read this flag already; it acts on the next micro-batch.
            model.require_backward_grad_sync = last
            (loss * scale).backward()
        elif config.hazard == "no-sync-backward-only":
            loss = summed_loss(model(inputs[here]), targets[here])
            # HAZARD no-sync-backward-only: the backward never asks for no_sync, every micro-batch is reduced.
            with nullcontext() if last else model.no_sync():
                (loss * scale).backward()
        elif config.hazard == "wrapper-bypassed":
            # HAZARD wrapper-bypassed: without the wrapper's forward its reducer is not armed, nothing is reduced.
            loss = summed_loss(model.module(inputs[here]), targets[here])
            (loss * scale).backward()
        else:
            with model.no_sync() if distributed and not last else nullcontext():
                loss = summed_loss(model(inputs[here]), targets[here])
                (loss * scale).backward()
        loss_sum += loss.detach()
    return loss_sum


def sum_over_ranks(config: argparse.Namespace, loss_sum: Tensor, rank: int, distributed: bool) -> None:
    """Add up the summed losses of the ranks in place. Collective."""
    if config.hazard == "skip-all-reduce":
        # HAZARD skip-all-reduce: only the rank that prints the loss reduces it.
        if rank == 0:
            dist.all_reduce(loss_sum)
    elif config.hazard == "reduce-op-differs":
        # HAZARD reduce-op-differs: one all-reduce, two operations. No backend compares them.
        if rank == 0:
            dist.all_reduce(loss_sum, op=dist.ReduceOp.SUM)
        else:
            dist.all_reduce(loss_sum, op=dist.ReduceOp.MAX)
    elif distributed:
        dist.all_reduce(loss_sum)


def evaluate_between_updates(
    config: argparse.Namespace,
    model: nn.Module,
    raw_model: nn.Module,
    val_set: Windows,
    device: torch.device,
    step: int,
    rank: int,
    world_size: int,
    distributed: bool,
) -> None:
    """Evaluate, on all ranks or as a hazard does it."""
    if config.hazard in ("rank0-eval", "rank0-eval-barrier"):
        # HAZARD rank0-eval: rank 0 alone goes through the wrapper. Where the model has buffers, its first forward broadcasts
        # them, and that broadcast meets the one of the others' next training forward.
        if rank == 0:
            with torch.no_grad():
                report_evaluation(step, evaluate(model, val_set, config, device))
        if config.hazard == "rank0-eval-barrier":
            # HAZARD rank0-eval-barrier: and here the others wait in a barrier instead, for a rank that never comes.
            dist.barrier()
    elif config.hazard == "rank0-eval-grad":
        # HAZARD rank0-eval-grad: the same without no_grad, so that every forward of it broadcasts the buffers.
        if rank == 0:
            report_evaluation(step, evaluate(model, val_set, config, device))
    else:
        evaluate_on_all_ranks(config, raw_model, val_set, device, step, rank, world_size, distributed)


def evaluate_on_all_ranks(
    config: argparse.Namespace,
    raw_model: nn.Module,
    val_set: Windows,
    device: torch.device,
    step: int,
    rank: int,
    world_size: int,
    distributed: bool,
) -> None:
    """Evaluate on each rank its share of the windows, and print the result on rank 0. Collective.

    It goes through the inner module: no traffic, so the shares may be uneven.
    """
    with torch.no_grad():
        sums = evaluate(raw_model, val_set, config, device, first=rank, stride=world_size)
    if distributed:
        dist.all_reduce(sums)
    if rank == 0:
        report_evaluation(step, sums)


def evaluate(
    network: nn.Module, val_set: Windows, config: argparse.Namespace, device: torch.device, first: int = 0, stride: int = 1
) -> Tensor:
    """Summed loss and number of tokens, float64 [2], over every `stride`-th validation window from `first` on.

    Issues no collective of its own. It is the caller who turns gradients off and adds up the ranks.
    """
    network.eval()
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    indices = range(first, min(len(val_set), config.eval_windows), stride)
    for start in range(0, len(indices), config.batch_size):
        inputs, targets = val_set.batch(indices[start : start + config.batch_size])
        logits = network(inputs.to(device))
        sums[0] += summed_loss(logits, targets.to(device)).detach()
        sums[1] += int((targets != IGNORED).sum())
    network.train()
    return sums


def report_evaluation(step: int, sums: Tensor) -> None:
    """Print the validation loss from its sum and its number of tokens."""
    print(f"evaluation before step {step}  loss {float(sums[0] / sums[1]):.4f}  tokens {int(sums[1])}", flush=True)


def report_parameters(raw_model: nn.Module, rank: int, distributed: bool) -> None:
    """Print, on rank 0, whether all ranks ended with the same parameters, bit by bit. Collective."""
    digest = hashlib.sha256()
    for parameter in raw_model.parameters():
        values = parameter.detach().cpu().contiguous()
        digest.update(ctypes.string_at(values.data_ptr(), values.nbytes))
    digests: list[Any] = [digest.hexdigest()]
    if distributed:
        digests = [None] * dist.get_world_size()
        dist.all_gather_object(digests, digest.hexdigest())
    if rank == 0:
        if len(set(digests)) == 1:
            print(f"parameters: equal on {len(digests)} rank{'s' if distributed else ''}, sha256 {digests[0]}", flush=True)
        else:
            each = ", ".join(f"rank {number} {value[:16]}" for number, value in enumerate(digests))
            print(f"parameters: DIFFER between {len(digests)} ranks, sha256 {each}", flush=True)


def learning_rate(config: argparse.Namespace, step: int) -> float:
    """Linear warm-up over `warmup_steps`, then a cosine down to `min_lr` at `decay_steps`."""
    if step < config.warmup_steps:
        return float(config.lr * (step + 1) / config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / max(1, config.decay_steps - config.warmup_steps))
    return float(config.min_lr + (config.lr - config.min_lr) * 0.5 * (1 + math.cos(math.pi * progress)))


def choose_device(config: argparse.Namespace, local_rank: int) -> torch.device:
    """This rank's device. `auto` takes GPUs where every process of this host can have its own, and the CPU elsewhere."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    gpus = torch.cuda.device_count()
    if config.device == "cuda" and config.share_device and gpus > 0:
        return torch.device("cuda", local_rank % gpus)
    if config.backend == "nccl" and gpus < here:
        raise Refused(f"--backend nccl needs a GPU for each of the {here} processes of this host, it has {gpus}")
    if config.device == "cuda" and gpus < here:
        raise Refused(f"--device cuda needs a GPU for each of the {here} processes of this host, it has {gpus}")
    if config.device == "cuda" or (config.device == "auto" and gpus >= here):
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def main() -> None:
    """Train, and exit with code 2 and one line where the run was refused.

    The process group is destroyed whatever happened, and with it gloo's threads, one of which could otherwise end the process
    by `terminate` while Python shuts down. That needs the import of torch.distributed.nn above: its functions take the group
    as a default argument, so importing it keeps a group alive that exists by then, and DDP's constructor imports it where
    nobody has (torch 2.13, torch/distributed/nn/functional.py).
    """
    config = parse_config()
    try:
        train(config)
    except Refused as refusal:
        print(f"ddp_audit_trainer: {refusal}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
