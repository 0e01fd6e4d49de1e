"""What DDP505 asks about a launch: which ones are judged, how a number is shown, what would keep the tokens of an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddp_audit.findings import Fix, Related, Span
from ddp_audit.launch.arithmetic import legal_world_sizes, options
from ddp_audit.launch.model import PYTHON, Launch
from ddp_audit.launch.notes import accumulation_of, batch_of, block_of
from ddp_audit.launch.scaling import Divisibility, Job, Number, assigned_number, starts
from ddp_audit.rule import Context
from ddp_audit.tree.nodes import Program


def in_config(context: Context, numbers: Sequence[Number], value: int) -> Span | None:
    """The line of a config file that the launch names, where the number that does not divide is set there."""
    number = next((n for n in numbers if n.value == value and n.path and n.line), None)
    if number is None or number.path in context.program.sources:
        return None
    return Span(number.path, number.line, 1, number.line, 2)


def config_number(program: Program, launch: Launch, check: Divisibility) -> Number | None:
    """The number that a check divides by the world size, where a config file of the launch sets it."""
    job = Job(program, launch)
    value, divisor = job.value(check.left), job.value(check.right)
    if type(value) is not int or divisor != launch.world_size or job.reaches(check.node) is False:
        return None
    found = (n for n in job.numbers(check.left) if n.value == value and n.line and n.path and n.path not in program.sources)
    return next(found, None)


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
    origin = ", ".join(f"{number.name} = {number.value}" for number in job.numbers(check.left))
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


def about_numbers(
    context: Context, checks: Sequence[Divisibility], failing: Mapping[int, Sequence[Launch]]
) -> Iterator[dict[str, Any]]:
    """The further findings of DDP505 about documented launches, as the arguments of `Rule.finding`.

    `failing` are the launches that a check stops, by the number of the check.
    """
    for index, launches in failing.items():
        yield from about_check(context, checks[index], launches)
    yield from for_one_process(context, checks)
    for index, launches in failing.items():
        yield from in_other_files(context, checks[index], launches)


def about_check(context: Context, check: Divisibility, launches: Sequence[Launch]) -> Iterator[dict[str, Any]]:
    """The check itself, where documented launches do not pass it: which world sizes do."""
    job = Job(context.program, launches[0])
    value, divisor, world = job.value(check.left), job.value(check.right), launches[0].world_size
    sizes = legal(value, divisor, world)
    if not sizes:
        return
    text = shown(job, check, value, job.numbers(check.left, check.right))
    places = launches[0].where() + (f" and {len(launches) - 1} more" if len(launches) > 1 else "")
    wanted = ", ".join(dict.fromkeys(str(launch.world_size) for launch in launches))
    yield {
        "span": check.node.span,
        "message": (
            f"{text} passes this check only with {_some(sizes)} processes, and {places} start{'s' * (len(launches) == 1)} {wanted}."
        ),
        "explanation": (
            "The number is that of all processes together, so the processes must divide it."
            + ("" if check.node.raises else " Under python -O the assert is not evaluated, and the division rounds down.")
        ),
        "related": [Related(launch.path or "", launch.line or 1, "launch", launch.text) for launch in launches],
        "severity": "warning",
        "cause": cause_of(check, text),
    }


def for_one_process(context: Context, checks: Sequence[Divisibility]) -> Iterator[dict[str, Any]]:
    """Config files of documented commands with which no job of several processes starts."""
    entry = context.program.entry
    own = [launch for launch in context.documented if starts(launch, entry)]
    if not any((launch.world_size or 2) > 1 for launch in own):
        return
    for launch in own:
        for check in checks if launch.kind == PYTHON else ():
            on_two = replace(launch, world_size=2, nnodes=1, nproc_per_node=2)
            number, place = config_number(context.program, on_two, check), check.node.span
            if number is None or number.value != 1:
                continue
            yield {
                "span": Span(number.path, number.line, 1, number.line, 2),
                "message": (f"{number.name} = 1 allows only one process: with more, every rank stops at {place.place}."),
                "explanation": (
                    f"{launch.where()} gives this file to a single process, for which it holds. The number counts the "
                    "micro-batches of all processes together, so a launch of N processes needs a multiple of N."
                ),
                "related": [
                    Related(place.path, place.line, "check", check.node.text),
                    Related(launch.path or "", launch.line or 1, "launch", launch.text),
                ],
                "severity": "warning",
                "fix": Fix("display-only", f"pass --{number.name}=N with a launch of N processes"),
            }
            break


def in_other_files(context: Context, check: Divisibility, failing: Sequence[Launch]) -> Iterator[dict[str, Any]]:
    """Config files of documented commands that hold here and would not on as many processes as another command starts."""
    worlds = dict.fromkeys(launch.world_size for launch in failing if launch.world_size)
    for launch in context.documented:
        if launch in failing or not starts(launch, context.program.entry) or launch.world_size is None:
            continue
        number = config_number(context.program, launch, check)
        other = next((world for world in worlds if number is not None and number.value % world), None)
        if number is None or other is None or number.value == 1:
            continue
        first, place = failing[0], check.node.span
        sizes = _some(legal_world_sizes(number.value))
        yield {
            "span": Span(number.path, number.line, 1, number.line, 2),
            "message": (
                f"{number.name} = {number.value} is not divisible by the {other} processes of {first.where()}; "
                f"jobs of {sizes} processes start with it."
            ),
            "explanation": (
                f"{launch.where()} starts {launch.describe_world()} with this file, which it allows. The check of "
                f"{place.place} stops every rank of any other number of processes."
            ),
            "related": [Related(place.path, place.line, "check", check.node.text)],
            "severity": "info",
        }


def cause_of(check: Divisibility, text: str) -> str:
    """Return the same text for all findings about one number that does not pass one check."""
    return f"{check.node.place} {text}"


def _some(sizes: Sequence[int]) -> str:
    """Return `1, 2, 4, 8`, the first few of many."""
    return ", ".join(map(str, sizes[:6])) + (", .." if len(sizes) > 6 else "")
