"""`ddp-audit batch`: the (B, A, a) that keep the tokens of an update for a world size."""

from __future__ import annotations

import argparse
import json
import sys

from ddp_audit.cli.parser import Subparsers, Usage
from ddp_audit.launch import LaunchError, arithmetic, read_command

_SHOWN = 12  # options of the table where no --limit is given

_EPILOG = """\
K = W x a x B x T = A x B x T: W processes, B sequences a micro-batch and process, T tokens a sequence (the block size),
A micro-batches an update over all processes, a = A / W of them in each process, K tokens an update.

examples:
  ddp-audit batch --world-size 16 --tokens 491520 --block-size 1024 --batch-size 12 --accumulation 40
  ddp-audit batch --launch 'torchrun --nproc_per_node=8 --nnodes=2 train.py' --block-size 1024 --batch-size 12 --accumulation 40
"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command and its options."""
    parser = subparsers.add_parser(
        "batch",
        help="launch and batch arithmetic",
        description="Lists the micro-batch sizes B and accumulation counts A that keep the tokens of an update.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    world = parser.add_mutually_exclusive_group(required=True)
    world.add_argument("--world-size", type=_count, metavar="W", help="number of processes")
    world.add_argument("--launch", metavar="COMMAND", help="a launch command that says the number of processes")
    parser.add_argument("--tokens", type=_count, metavar="K", help="tokens an update; A x B x T where it is not given")
    parser.add_argument("--block-size", type=_count, metavar="T", required=True, help="tokens a sequence")
    parser.add_argument("--batch-size", type=_count, metavar="B", help="sequences a micro-batch and process, as it is now")
    parser.add_argument("--accumulation", type=_count, metavar="A", help="micro-batches an update over all processes, as it is now")
    parser.add_argument("--limit", type=_count, metavar="N", help=f"options at most (table: {_SHOWN}, json: all)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the options; 0, or Usage (exit code 2) where the question is incomplete."""
    world_size = args.world_size if args.launch is None else _world_size(args.launch)
    tokens = args.tokens
    if tokens is None:
        if args.batch_size is None or args.accumulation is None:
            raise Usage("batch needs --tokens, or --batch-size and --accumulation to compute them from")
        tokens = arithmetic.tokens_per_update(args.accumulation, args.batch_size, args.block_size)
    given = (world_size, tokens, args.block_size, args.batch_size, args.accumulation)
    if args.format == "json":
        json.dump(arithmetic.batch_json(*given, args.limit), sys.stdout, indent=2)
        print()
    else:
        print("\n".join(_table(*given, args.limit or _SHOWN)))
    return 0


def _count(text: str) -> int:
    """A whole number of at least 1; `491_520` and `491,520` are understood."""
    try:
        number = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    if number > 10**12:
        raise argparse.ArgumentTypeError(f"{text} is more than any update")
    return number


def _world_size(command: str) -> int:
    try:
        launch = read_command(command)
    except LaunchError as error:
        raise Usage(str(error)) from None
    if launch.world_size is None:
        raise Usage(f"the launch starts {launch.describe_world()}; say it with --world-size")
    return launch.world_size


def _table(world_size: int, tokens: int, block: int, batch: int | None, accumulation: int | None, limit: int) -> list[str]:
    now = arithmetic.current(world_size, tokens, block, batch, accumulation)
    near = now.batch if now else None
    found = arithmetic.options(world_size, tokens, block, near)
    lines = [f"W = {world_size:,} processes, T = {block:,} tokens a sequence, K = {tokens:,} tokens an update"]
    if now is not None:
        shown = f"B = {_or_unknown(now.batch)}, A = {_or_unknown(now.accumulation)}"
        lines.append(
            f"now: {shown}: a = {now.per_rank} in each process" if now.holds else f"now: {shown}: does not hold, {now.reason}"
        )
    reason = arithmetic.why_not_exact(world_size, tokens, block)
    lines.append("")
    if reason is not None:
        lines.append(f"No B and A keep K: {reason}. The nearest:")
    elif near is not None:
        lines.append(f"Choices that keep K, nearest to B = {near} first; * needs no more memory a process than now:")
    else:
        lines.append("Choices that keep K, largest B first:")
    rows = [("B", "A", "a", "K")] + [
        (f"{o.batch:,}", f"{o.accumulation:,}", f"{o.per_rank:,}", f"{o.tokens:,}") for o in found[:limit]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for index, row in enumerate(rows):
        mark = " *" if index and near is not None and found[index - 1].batch <= near else ""
        lines.append("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + mark)
    if len(found) > limit:
        lines.append(f"  and {len(found) - limit} more (--limit)")
    return lines


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
