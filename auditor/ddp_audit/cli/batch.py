"""`ddp-audit batch`: what an update is made of on a number of processes, and the (B, A, a) that keep its tokens."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.cli.parser import Subparsers, Usage
from ddp_audit.launch import Launch, LaunchError, arithmetic, named_launch, world_launch
from ddp_audit.report.columns import say
from ddp_audit.report.tables import table_lines

if TYPE_CHECKING:
    from ddp_audit.launch.tokens import Unequal

_SHOWN = 12  # options of the table where no --limit is given

_EPILOG = """\
K = W x a x B x T = A x B x T: W processes, B sequences a micro-batch and process, T tokens a sequence (the block size), \
A micro-batches an update over all processes, a = A / W of them in each process, K tokens an update.

With a SCRIPT, A, B, T and K are read from it, its config files and the launch; nothing of it is run. Without W its documented \
launches are listed.

examples:
  ddp-audit batch train.py
  ddp-audit batch train.py --config-file config.py --from 8 --to 16
  ddp-audit batch train.py --launch 'torchrun --nproc_per_node=8 train.py'
  ddp-audit batch --world-size 16 --tokens 491520 --block-size 1024
  ddp-audit batch --rank-tokens 1800,2048,400,2048
"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command and its options."""
    parser = subparsers.add_parser(
        "batch",
        help="launch and batch arithmetic",
        description="Lists the micro-batch sizes B and accumulation counts A that keep the tokens of an update.",
        epilog=_EPILOG,
    )
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="the training script; it is read and not run")
    world = parser.add_mutually_exclusive_group()
    world.add_argument("--world-size", "--to", type=_count, metavar="W", dest="world_size", help="number of processes")
    world.add_argument("--launch", metavar="COMMAND", help="a launch command that says the number of processes")
    parser.add_argument("--from", type=_count, metavar="W", dest="before", help="number of processes that K is kept from")
    parser.add_argument("--config-file", action="append", default=[], metavar="FILE", dest="config_files", help="as for check")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="as for check")
    parser.add_argument("--tokens", type=_count, metavar="K", help="tokens an update; A x B x T where it is not given")
    parser.add_argument("--block-size", type=_count, metavar="T", help="tokens a sequence")
    parser.add_argument("--batch-size", type=_count, metavar="B", help="sequences a micro-batch and process, as it is now")
    parser.add_argument("--accumulation", type=_count, metavar="A", help="micro-batches an update over all processes, as it is now")
    parser.add_argument(
        "--rank-tokens", type=_counts, metavar="N,N,.. or MIN:MAX", help="tokens that the loss of each process is the mean of"
    )
    parser.add_argument("--limit", type=_count, metavar="N", help=f"options at most (table: {_SHOWN}, json: all)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the options; 0, or Usage (exit code 2) where the question is incomplete."""
    launch = _launch(args)
    script = args.script
    numbers_given = args.block_size is not None and (
        args.tokens is not None or (args.batch_size is not None and args.accumulation is not None)
    )
    if script is None and launch is not None and launch.script and not numbers_given and Path(launch.script).is_file():
        script = launch.script
    unequal = _unequal(args, launch)
    if script is not None:
        from ddp_audit.cli.batch_script import run_script

        return run_script(args, script, launch, unequal)
    if args.config_files or args.settings:
        raise Usage("--config-file and --set need a script to apply to")
    if unequal is not None and args.tokens is None and args.block_size is None:
        return _print_unequal(args, unequal)
    return _run_numbers(args, launch, unequal)


def _run_numbers(args: argparse.Namespace, launch: Launch | None, unequal: Unequal | None) -> int:
    """The answer from numbers alone."""
    if launch is None:
        raise Usage("batch needs a script, or the number of processes: --world-size or --launch")
    if args.block_size is None:
        raise Usage("batch needs --block-size, the tokens of a sequence, if it has no script to read it from")
    world_size, tokens = _world_size(launch), args.tokens
    if tokens is None:
        if args.batch_size is None or args.accumulation is None:
            raise Usage("batch needs --tokens, or --batch-size and --accumulation to compute them from")
        tokens = arithmetic.tokens_per_update(args.accumulation, args.batch_size, args.block_size)
    given = (world_size, tokens, args.block_size, args.batch_size, args.accumulation)
    if args.format == "json":
        found = arithmetic.batch_json(*given, args.limit)
        print_json(found | ({} if unequal is None else {"rank_tokens": unequal.to_json()}))
        return 0
    asked = args.before is not None and args.accumulation is not None and args.batch_size is not None
    whole = asked and args.accumulation % args.before == 0
    lines = _table(*given, args.limit or _SHOWN, args.accumulation // args.before if whole else None)
    if asked:
        lines.insert(1, _before(args.before, args.accumulation, args.batch_size, args.block_size))
    if unequal is not None:
        lines += ["", *_unequal_lines(args, unequal)]
    say(lines)
    return 0


def print_json(document: dict[str, Any]) -> None:
    """Prints one object."""
    json.dump(document, sys.stdout, indent=2)
    print()


def _count(text: str) -> int:
    """A whole number of at least 1; `491_520` and `491,520` are understood."""
    try:
        number = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    if number > 10**12:
        raise argparse.ArgumentTypeError(f"{text} is more than any update")
    return number


def _counts(text: str) -> list[int] | tuple[int, int]:
    """`1800,2048`: the tokens of each process; `400:2048`: what they lie between."""
    parts = text.replace("_", "").split(":" if ":" in text else ",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a list of numbers (1800,2048) nor a range (400:2048)")
    numbers = [int(part) for part in parts]
    if ":" in text:
        if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
            raise argparse.ArgumentTypeError(f"{text} is not a range: it starts at 1 or above and does not end below its start")
        return numbers[0], numbers[1]
    if len(numbers) < 2 or not any(numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must name the tokens of at least two processes")
    return numbers


def _launch(args: argparse.Namespace) -> Launch | None:
    """The launch that is asked about, None where none is named."""
    try:
        if args.launch is not None:
            return named_launch(args.launch)
        return None if args.world_size is None else world_launch(args.world_size)
    except LaunchError as error:
        raise Usage(str(error)) from None


def _world_size(launch: Launch) -> int:
    if launch.world_size is None:
        raise Usage(f"the launch starts {launch.describe_world()}; say it with --world-size")
    return launch.world_size


def _unequal(args: argparse.Namespace, launch: Launch | None) -> Unequal | None:
    if args.rank_tokens is None:
        return None
    from ddp_audit.launch.tokens import Unequal, worst

    world = launch.world_size if launch is not None else None
    if isinstance(args.rank_tokens, list):
        if world is not None and world != len(args.rank_tokens):
            raise Usage(f"--rank-tokens names {len(args.rank_tokens)} processes, and there are {world}")
        return Unequal(tuple(args.rank_tokens))
    if world is None:
        raise Usage("--rank-tokens MIN:MAX needs the number of processes: --world-size or --launch")
    return worst(world, *args.rank_tokens)


def _unequal_lines(args: argparse.Namespace, unequal: Unequal) -> list[str]:
    from ddp_audit.launch.tokens import token_lines

    return [*token_lines(unequal, args.rank_tokens if isinstance(args.rank_tokens, tuple) else None)]


def _print_unequal(args: argparse.Namespace, unequal: Unequal) -> int:
    if args.format == "json":
        print_json({"version": 1, "world_size": len(unequal.counts), "rank_tokens": unequal.to_json()})
    else:
        say(_unequal_lines(args, unequal))
    return 0


def _before(world: int, accumulation: int, batch: int, block: int) -> str:
    """The line about the number of processes that K is kept from."""
    if accumulation % world:
        return f"from W = {world:,}: {accumulation} is not divisible by {world} there either"
    per_rank = accumulation // world
    made = arithmetic.tokens_per_update(accumulation, batch, block)
    return f"from W = {world:,}: a = {per_rank:,}, K = W x a x B x T = {world:,} x {per_rank:,} x {batch:,} x {block:,} = {made:,}"


def _table(
    world_size: int, tokens: int, block: int, batch: int | None, accumulation: int | None, limit: int, before: int | None = None
) -> list[str]:
    """The answer for people; `before` is the a of the job that K is kept from."""
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
    lines += ["", *option_lines(found, near, reason, limit, before), *kept_line(found, before, "tokens")]
    if now is not None and now.batch is not None and now.accumulation is not None and now.accumulation % world_size:
        near_by = arithmetic.nearest_accumulations(now.accumulation, world_size)
        made = [(count, arithmetic.tokens_per_update(count, now.batch, block)) for count in near_by]
        options = [arithmetic.Option(now.batch, count, count // world_size, k, k == tokens) for count, k in made]
        lines += ["", *instead_lines(options, tokens)]
    return lines


def option_lines(
    found: list[arithmetic.Option], near: int | None, reason: str | None, limit: int, per_rank: int | None = None, unit: str = "K"
) -> list[str]:
    """The table of choices. `near` is B as it is now; choices with the a that there was before are marked with `=`."""
    if reason is not None:
        lines = [f"No B and A keep {unit}: {reason}. The nearest:"]
    elif near is not None:
        lines = [f"Choices that keep K, nearest to B = {near} first; * needs no more memory a process than now"]
        lines[0] += f", = keeps a = {per_rank}:" if per_rank is not None else ":"
    else:
        lines = ["Choices that keep K, largest B first:"]
    rows = [(f"{o.batch:,}", f"{o.accumulation:,}", f"{o.per_rank:,}", f"{o.tokens:,}") for o in found[:limit]]
    for index, row in enumerate(table_lines(rows, heads=("B", "A", "a", "K"), right=range(4), indent=2)):
        mark = " *" if index and near is not None and found[index - 1].batch <= near else ""
        mark += " =" if index and per_rank is not None and found[index - 1].per_rank == per_rank else ""
        lines.append(row + mark)
    if len(found) > limit:
        lines.append(f"  and {len(found) - limit} more (--limit)")
    if arithmetic.needs_memory(found[:limit], near):
        lines.append(arithmetic.NO_ROOM)
    return lines


def kept_line(found: list[arithmetic.Option], per_rank: int | None, unit: str) -> list[str]:
    """The choice that keeps K and a, said once more."""
    same = next((one for one in found if one.exact and one.per_rank == per_rank), None)
    if same is None:
        return []
    return ["", f"A = {same.accumulation} with B = {same.batch} keeps the {same.tokens:,} {unit} at a = {same.per_rank}."]


def instead_lines(options: list[arithmetic.Option], tokens: int) -> list[str]:
    """What another A makes of K with B as it is."""
    lines = [f"With B = {options[0].batch} as it is and another A, K changes:"]
    for option in options:
        change = (option.tokens - tokens) / tokens
        same = "as it was" if option.tokens == tokens else f"{change:+.1%}, so is the number of samples of a schedule in updates"
        lines.append(f"  A = {option.accumulation:,}: a = {option.per_rank:,}, K = {option.tokens:,} ({same})")
    return lines


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
