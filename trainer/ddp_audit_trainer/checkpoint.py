"""Checkpoints: what is saved, by whom, and what a resumed run has to agree with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_audit_trainer.config import FREE_ON_RESUME, Refused

CHECKPOINT_KEYS = frozenset({"model", "optimizer", "step", "epoch", "update", "random", "world_size", "config"})


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of this rank's random streams, the GPU's included."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put this rank's random streams back to where `random_state` found them."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def save_checkpoint(
    config: argparse.Namespace,
    raw_model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    step: int,
    epoch: int,
    update: int,
) -> None:
    """Write `checkpoint.pt`: `step` updates are done, update number `update` of epoch `epoch` comes next. Collective.

    Rank 0 writes, with the random state of every rank. The barrier stands after the writing and outside the rank's branch: no
    rank goes on, or ends the job, before the file is there.
    """
    distributed = dist.is_initialized()
    rank = dist.get_rank() if distributed else 0
    states: list[Any] = [random_state(device)]
    if distributed:
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, random_state(device))
    if rank == 0:
        folder = Path(config.checkpoint_dir)
        content = {
            "model": raw_model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "epoch": epoch,
            "update": update,
            "random": states,
            "world_size": len(states),
            "config": vars(config),
        }
        torch.save(content, folder / "checkpoint.pt.part")
        (folder / "checkpoint.pt.part").replace(folder / "checkpoint.pt")  # a reader sees the old file or the new one, whole
    if distributed:
        dist.barrier()


def make_folder(path: str) -> None:
    """Make the checkpoint folder. Every rank may do so; raises Refused where it cannot be made."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot make the folder {path}: {error.strerror}") from error


def load_checkpoint(config: argparse.Namespace, world_size: int) -> dict[str, Any]:
    """The checkpoint that `--resume` goes on from, on the CPU; every rank reads it.

    Raises Refused without one, or where another number of ranks or other options would compute something else.
    """
    path = Path(config.checkpoint_dir) / "checkpoint.pt"
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Refused(f"cannot resume from {path}: {error.strerror}") from error
    except Exception as error:  # torch reports a damaged file by several types of its own
        raise Refused(f"cannot resume from {path}: torch cannot read it") from error
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= CHECKPOINT_KEYS:
        raise Refused(f"cannot resume from {path}: it is not a checkpoint of this trainer")
    if checkpoint["world_size"] != world_size:
        raise Refused(f"{path} was written by {checkpoint['world_size']} ranks and has no random states for {world_size}")
    for name, value in vars(config).items():
        saved = checkpoint["config"].get(name)
        if name not in FREE_ON_RESUME and saved != value:
            raise Refused(f"{path} was written with --{name.replace('_', '-')} {saved}, this run has {value}")
    return checkpoint
