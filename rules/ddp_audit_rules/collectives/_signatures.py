"""Where ranks bring what does not fit together to one collective: sizes, element types, devices, and lists of a root."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddp_audit.findings import Related
from ddp_audit.tree.nodes import Collective, Init, Node, Program, ReportedValue
from ddp_audit.tree.questions import (
    Facts,
    enters,
    facts,
    group_of,
    is_default,
    is_kind,
    issues,
    met_in_branches,
    on_rank,
    says,
    sized_by_data,
    speaks_of,
    worlds_by_size,
)
from ddp_audit.tree.values import (
    DATA,
    MISSING,
    RANDOM,
    RANK,
    Alt,
    Const,
    Expr,
    Items,
    Unknown,
    Value,
    World,
    behind,
    constant,
    evaluate,
)

_SENT = ("input_tensor", "input", "tensor", "tensors", "output_tensor")  # what a rank brings; the first that is given
_ROOT_LISTS = {"gather": ("gather_list", "dst"), "scatter": ("scatter_list", "src"), "gather_object": ("object_gather_list", "dst")}


@dataclass(frozen=True, slots=True, eq=False)
class Mismatch:
    """A collective to which ranks bring what does not fit, and one sentence that says so."""

    node: Node
    message: str
    related: Iterable[Related] = ()
    severity: str | None = None
    explanation: str = ""  # where it is not that of sizes and types


def mismatches(program: Program) -> Iterator[Mismatch]:
    """Every mismatch that can be shown, the surest kinds first; one collective may come several times."""
    yield from _by_branch(program)
    yield from _by_rank(program)
    yield from _by_data(program)
    yield from _lists(program)
    yield from _on_cpu(program)
    yield from _read_elsewhere(program)


def _by_branch(program: Program) -> Iterator[Mismatch]:
    for left, right, one, other in met_in_branches(program):
        mine, theirs = _sent(left), _sent(right)
        if mine is None or theirs is None or not _on_all(left) or not _on_all(right):
            continue
        here, there = facts(mine, one), facts(theirs, other)
        what = _difference(here, there) or _measure_as_count(mine, here, theirs, there)
        if what:
            place = f"the {right.op} of line {right.span.line}"
            message = f"Ranks bring different tensors to one {left.op}, here and in {place}: {what}."
            related = [Related(right.span.path, right.span.line, "collective", f"what the other ranks issue: {right.text}")]
            guess = "" in (here.dtype, there.dtype)
            yield Mismatch(left, message, related, "warning" if guess else None)


def _by_rank(program: Program) -> Iterator[Mismatch]:
    for node in program.of(Collective):
        if not _on_all(node):
            continue
        sent, jobs = _sent(node), worlds_by_size(program.world_size)
        if sent is not None and is_kind(node.op, "sizes-must-be-equal"):
            yield from _in_every_job(node, [_unlike_tensors(node, sent, job) for job in jobs])
        elif node.op == "broadcast_object_list" and "object_list" in node.args:
            yield from _in_every_job(node, [_unlike_lists(node, job) for job in jobs])


def _in_every_job(node: Node, messages: list[str]) -> Iterator[Mismatch]:
    """A mismatch that comes in a job on one node and in one on two alike."""
    if all(messages):
        yield Mismatch(node, messages[0])


def _unlike_tensors(node: Collective, sent: Value, job: Sequence[World]) -> str:
    ranks = [world for world in job if issues(node, world)]
    for one, other in itertools.pairwise(ranks):
        what = _difference(facts(sent, one), facts(sent, other))
        if what:
            who = f"Rank {one.rank} and rank {other.rank}"
            return f"{who} bring different tensors to this {node.op}: {what}."
    return ""


def _unlike_lists(node: Collective, job: Sequence[World]) -> str:
    lengths = {_length(node.args["object_list"], world) for world in job if issues(node, world)} - {None}
    return f"The ranks bring lists of different lengths to this broadcast_object_list: {_and(lengths)}." if len(lengths) > 1 else ""


def _by_data(program: Program) -> Iterator[Mismatch]:
    for node in program.of(Collective):
        sent = _sent(node)
        if sent is None or not is_kind(node.op, "sizes-must-be-equal") or not _on_all(node):
            continue
        by = sized_by_data(sent)
        if by and sent.taint & {DATA, RANK, RANDOM}:
            message = (
                f"How many elements this rank brings to the {node.op} depends on its own data ({by}); the "
                "other ranks bring other numbers."
            )
            yield Mismatch(node, message)


def _lists(program: Program) -> Iterator[Mismatch]:
    for node in program.of(Collective):
        names = None if node.hidden else _ROOT_LISTS.get(node.op)
        if names is not None and _on_all(node) and f"group_{names[1]}" not in node.args:
            yield from _in_every_job(node, [_misplaced_list(node, names, job) for job in worlds_by_size(program.world_size)])


def _misplaced_list(node: Collective, names: tuple[str, str], job: Sequence[World]) -> str:
    for world in job:
        root = evaluate(node.args.get(names[1], Const(value=0)), world)
        brings = _brings(on_rank(node.args.get(names[0], Const(value=None)), world), world)
        if not issues(node, world) or not isinstance(root, int) or brings is None or brings == (world.rank == root):
            continue
        if brings:
            who, rest = f"Rank {world.rank} brings {_a(names[0])} though rank {root} is the root", "the root waits for it"
        else:
            who, rest = f"Rank {root}, the root, brings no {names[0]}", "the other ranks wait"
        return f"{who}: this {node.op} raises ValueError there, and {rest}."
    return ""


def _on_cpu(program: Program) -> Iterator[Mismatch]:
    starts = list(program.of(Init))
    if not starts or any(constant(n.args.get("backend")) != "nccl" or not _is_fixed(n.args["backend"]) for n in starts):
        return
    if speaks_of(program, "set_default_device", "set_default_tensor_type") or enters(program, "device"):
        return
    for node in program.of(Collective):
        sent = _sent(node)
        started = node.number > starts[0].number and _on_all(node)
        if sent is not None and started and facts(sent, World(0, 2, 2)).device == "cpu":
            message = (
                f"This {node.op} is given a tensor on the CPU, and the group's backend is nccl: it raises "
                "RuntimeError, `No backend type associated with device type cpu`."
            )
            yield Mismatch(node, message)


def _read_elsewhere(program: Program) -> Iterator[Mismatch]:
    """What a reduce gave to one rank, and the others step a scheduler by as well."""
    for node in program.of(ReportedValue):
        if node.what != "scheduler":
            continue
        for value in node.args.values():
            made = next(
                (v.by for v in behind(value, _is_settled) if isinstance(v, Unknown) and v.by and v.by.name == "reduce"), None
            )
            root = MISSING if made is None else constant(made.argument("dst"))
            group = None if made is None else made.argument("group")
            if not isinstance(root, int) or (group is not None and not is_default(group)):
                continue
            if all(any(w.rank != root and node.reached_by(w) for w in job) for job in worlds_by_size(program.world_size)):
                yield Mismatch(
                    node,
                    f"Every rank steps its scheduler by `{value.text or node.text}`, which a reduce gave to rank {root} alone: the "
                    "others go by what they had themselves, or by parts of the sum, and may set other learning rates.",
                    severity="warning",
                    explanation="reduce leaves its result on dst; what is in the tensor of the other ranks is not defined. DDP "
                    "averages gradients and not learning rates, so that from the first rank that lowers its own the replicas "
                    "differ. all_reduce gives the result to all. It does no harm while all ranks decide alike.",
                )
                break


def _is_settled(value: Value) -> bool:
    """Whether a value may be equal on all ranks again, or one that was chosen by rank, whatever is behind it."""
    if isinstance(value, Alt):
        return value.choice is not None
    if isinstance(value, Expr) and value.op == "ifexp":
        return True
    if not isinstance(value, Unknown) or value.by is None:
        return False
    return value.by.name != "reduce" and (value.by.name in ("?", "returned") or says(value.by.name, "settles"))


def _sent(node: Collective) -> Value | None:
    """The tensor that a rank brings to a collective."""
    if node.hidden or "object" in node.op:
        return None
    return next((node.args[name] for name in _SENT if name in node.args), None)


def _on_all(node: Collective) -> bool:
    group = group_of(node)
    return group is None or is_default(group)


def _difference(one: Facts, other: Facts) -> str:
    if one.dtype and other.dtype and one.dtype != other.dtype:
        return f"{one.dtype} and {other.dtype}"
    if one.numel is not None and other.numel is not None and one.numel != other.numel:
        return f"{one.numel} and {other.numel} elements"
    return ""


def _measure_as_count(mine: Value, here: Facts, theirs: Value, there: Facts) -> str:
    """A whole number on one side against what reads as a measure on the other, and so is a number with a fraction."""
    for value, found, against in ((mine, here, there), (theirs, there, here)):
        if not found.dtype and against.dtype == "int64" and found.device and says(value, "fraction"):
            return f"{value.text} reads as a number with a fraction, and the others have int64"
    return ""


def _length(value: Value, world: World) -> int | None:
    value = on_rank(value, world)
    return len(value.items) if isinstance(value, Items) and not value.many and value.keys is None else None


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _brings(value: Value, world: World) -> bool | None:
    """Whether a rank brings a list with something in it; None where that is not known."""
    if isinstance(value, Items):
        return bool(value.items)
    if isinstance(value, Expr) and value.op == "*":  # `[None] * world_size`
        return _repeated(value.args, world)
    return False if isinstance(value, Const) and value.value is None else None


def _repeated(parts: Sequence[Value], world: World) -> bool | None:
    """Whether a display that is repeated has something in it; None where that is not known."""
    shown = [part for part in parts if isinstance(part, Items)]
    times = [evaluate(part, world) for part in parts if not isinstance(part, Items)]
    if len(shown) != 1 or len(times) != 1 or type(times[0]) is not int:
        return None
    return bool(shown[0].items) and times[0] > 0


def _is_fixed(value: Value) -> bool:
    return isinstance(value, Const) and (value.default is None or not value.default.open)


def _and(numbers: Iterable[object]) -> str:
    return " and ".join(map(str, sorted(numbers, key=str)))
