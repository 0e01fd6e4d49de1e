"""The options of the reference trainer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ddp_audit_trainer.hazards import HAZARDS


class Refused(Exception):
    """A run that cannot start as asked; the text is one line for the user."""


# What may change between a run and its resumption without changing what is computed.
FREE_ON_RESUME = (
    "max_steps",
    "max_epochs",
    "eval_interval",
    "eval_windows",
    "checkpoint_dir",
    "resume",
    "target_loss",
    "hazard",
)

_POSITIVE = (
    "vocab_size",
    "block_size",
    "n_layer",
    "n_head",
    "n_embd",
    "batch_size",
    "accumulation",
    "max_epochs",
    "max_steps",
    "eval_interval",
    "eval_windows",
)


def parse_config(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options from `arguments`, by default from the command line. Exits with code 2 on options that it does not know."""
    parser = argparse.ArgumentParser(
        prog="ddp_audit_trainer.train",
        description="Train a small GPT with DistributedDataParallel, under torchrun or as one process.",
    )
    # data
    parser.add_argument("--data", default="", help="token file, unsigned 16 bit little endian; default: generated text")
    parser.add_argument("--vocab-size", type=int, default=256, help="number of different tokens; 256 suits bytes")
    parser.add_argument("--sampling", choices=("sharded", "random-windows"), default="sharded")
    parser.add_argument("--lengths", choices=("equal", "varied"), default="equal", help="varied: padded, token-weighted loss")
    parser.add_argument("--block-size", type=int, default=32, help="T, tokens a sequence")
    # model
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=2)
    parser.add_argument("--n-embd", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention", choices=("sdpa", "manual"), default="sdpa", help="manual keeps its mask as a buffer")
    # training
    parser.add_argument("--batch-size", type=int, default=4, help="B, sequences a micro-batch and rank")
    parser.add_argument("--accumulation", type=int, default=4, help="A, micro-batches an update over all ranks")
    parser.add_argument("--max-epochs", type=int, default=2)
    parser.add_argument("--max-steps", type=int, default=1000, help="updates; training ends at this or at --max-epochs")
    parser.add_argument("--target-loss", type=float, default=0.0, help="stop when the training loss is below this")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--min-lr", type=float, default=1e-4)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--decay-steps", type=int, default=1000, help="step at which the cosine reaches --min-lr")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=1.0, help="largest gradient norm; 0 turns clipping off")
    parser.add_argument("--seed", type=int, default=1)
    # evaluation, checkpoints, device
    parser.add_argument("--eval-interval", type=int, default=3, help="steps between evaluations")
    parser.add_argument("--eval-windows", type=int, default=64, help="most sequences an evaluation reads, over all ranks")
    parser.add_argument("--checkpoint-dir", default="", help="write a checkpoint here at each evaluation and at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --checkpoint-dir")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--backend",
        choices=("auto", "gloo", "nccl"),
        default="auto",
        help="auto follows the device, and one process has no group; a name makes the group for one process too",
    )
    parser.add_argument("--share-device", action="store_true", help="ranks may share a GPU where there are fewer GPUs than ranks")
    parser.add_argument("--hazard", choices=("none", *HAZARDS), default="none", help="depart from the right way")
    config = parser.parse_args(arguments)

    for name in _POSITIVE:
        if getattr(config, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if not 0 <= config.dropout < 1:
        parser.error("--dropout must be 0 or more and below 1")
    if config.n_embd % config.n_head != 0:
        parser.error(f"--n-embd {config.n_embd} is not divisible by --n-head {config.n_head}")
    if config.backend == "nccl" and config.device == "cpu":
        parser.error("--backend nccl needs GPUs, not --device cpu")
    if config.resume and not config.checkpoint_dir:
        parser.error("--resume needs --checkpoint-dir")
    return config
