"""What DDP505 asks about a launch: which ones are judged, how a number is shown, what would keep the tokens of an update."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.findings import Span
from ddp_audit.launch.arithmetic import legal_world_sizes, options
from ddp_audit.launch.model import PYTHON, Launch
from ddp_audit.launch.notes import accumulation_of, batch_of, block_of
from ddp_audit.launch.scaling import Divisibility, Job, Number, assigned_number, starts
from ddp_audit.rule import Context


def in_config(context: Context, numbers: Sequence[Number], value: int) -> Span | None:
    """The line of a config file that the launch names, where the number that does not divide is set there."""
    number = next((n for n in numbers if n.value == value and n.path and n.line), None)
    if number is None or number.path in context.program.sources:
        return None
    return Span(number.path, number.line, 1, number.line, 2)


def legal(value: int, divisor: int, world: int | None) -> list[int]:
    """The world sizes that pass a check of `value % divisor`, where the divisor is a multiple of the world size."""
    if not world or divisor % world or value % (divisor // world):
        return []
    return legal_world_sizes(value // (divisor // world))


def judged(context: Context) -> Sequence[Launch]:
    """The named launch alone, else the documented ones that start this script with more than a plain python command."""
    entry = context.program.entry
    if context.launch is not None:
        return [context.launch] if context.launch.world_size is not None and starts(context.launch, entry) else []
    return [one for one in context.documented if one.world_size is not None and one.kind != PYTHON and starts(one, entry)]


def shown(job: Job, check: Divisibility, value: int, numbers: Sequence[Number]) -> str:
    """The dividend with its origin: the configuration value that it is, or its text with those it was computed from."""
    number = next((n for n in numbers if n.value == value and n.name.rpartition(".")[2] in check.left_text), None)
    number = number or assigned_number(job.program, check.node, check.left_text, value)
    if number is not None:
        return str(number)
    origin = ", ".join(str(number) for number in job.numbers(check.left))
    return f"{check.left_text or 'the total'} = {value:,}" + (f" (from {origin})" if origin else "")


def keeping(job: Job, launch: Launch, value: int) -> str:
    """The nearest choice of B that keeps the tokens of an update, where A, B and T are known."""
    accumulation, batch, block = accumulation_of(job), batch_of(job), block_of(job)
    if accumulation is None or accumulation.divisor != launch.world_size or accumulation.total.value != value or batch is None:
        return ""
    length = block.value if block is not None else 1
    tokens = value * batch.value * length
    unit = "tokens" if block is not None else "samples"
    exact = [o for o in options(accumulation.divisor, tokens, length, batch.value) if o.exact]
    if not exact:
        return f"; no micro-batch size keeps the {tokens:,} {unit} of an update"
    best = exact[0]
    return f"; with {batch.name} = {best.batch}, {best.accumulation} keeps the {tokens:,} {unit} of an update"
