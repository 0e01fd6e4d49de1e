"""How a shuffling sampler learns of the epochs of a training pass: never, outside of them, of one alone, or too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddp_audit.findings import Fix
from ddp_audit.tree.nodes import IteratorMade, Loop, Node, Program, SamplerMade, SetEpoch
from ddp_audit.tree.questions import DISTRIBUTED, Pass, assigned_at, mentions
from ddp_audit.tree.values import ClassInfo, Const, Expr, constant
from ddp_audit_rules.data._epoch_calls import inserted_call, moved_call


@dataclass(frozen=True, slots=True)
class Untold:
    """Why epochs of a pass have the same order, in words. `calls` show it: those of set_epoch, and of iter() where it counts."""

    message: str
    calls: Sequence[Node] = ()
    sure: bool = True
    fix: Fix | None = None


def has_order_of_torch(sampler: SamplerMade) -> bool:
    """DistributedSampler itself, or a subclass that leaves its order alone."""
    if sampler.cls == DISTRIBUTED:
        return True
    info = sampler.object.cls if sampler.object is not None else None
    if not isinstance(info, ClassInfo) or not any(b.endswith(DISTRIBUTED) for b in info.outside_bases()):
        return False
    return info.find("__iter__") is None and info.find("set_epoch") is None


def untold(program: Program, sampler: Node, one: Pass) -> Untold | None:
    """Why the sampler gives epochs of a pass the same order; None where it gets each of them in time, or may get it."""
    assert sampler.object is not None
    calls = list(program.of(SetEpoch))
    if any(n.object is None or n.object.kind != "sampler" for n in calls):
        return None  # on something that could not be followed: perhaps this sampler
    mine = [n for n in calls if n.object is not None and n.object.key == sampler.object.key]
    epochs = one.around[-1]
    if not mine:
        message = (
            f"This sampler's set_epoch is never called, so every epoch of the loop in line {epochs.span.line} uses the same "
            "shuffled order."
        )
        return Untold(message, sure=not _is_called_unseen(program, calls), fix=inserted_call(program, sampler, one))
    inside = [n for n in mine if epochs in n.loops]
    if not inside:
        message = (
            f"set_epoch is called outside the loop over epochs (line {epochs.span.line}), so all its epochs have the "
            "order of the one epoch that it was given."
        )
        return Untold(message, mine[:1], fix=moved_call(program, one, mine))
    if all(isinstance(n.args.get("epoch"), Const) for n in inside):
        number = constant(inside[0].args.get("epoch"))
        message = f"set_epoch is called with {number} in every epoch, so all epochs have the same order."
        return Untold(message, inside[:1], fix=moved_call(program, one, inside))
    fetched = _fetched_before(program, one)
    if fetched is not None and all(fetched.number < n.number < one.iterate.number for n in inside):
        message = (
            f"set_epoch is called after line {fetched.span.line} created the epoch's iterator, so it acts one epoch late: the "
            "first two epochs have the same order."
        )
        return Untold(message, [*inside[:1], fetched])
    if all(_lags(n, one, epochs) for n in inside):
        message = (
            "set_epoch is called after the batches of the epoch were taken, so it acts one epoch late: the first two epochs "
            "have the same order."
        )
        return Untold(message, inside[:1])
    return None


def _is_called_unseen(program: Program, calls: list[SetEpoch]) -> bool:
    """Whether the files call set_epoch where the job as it was followed does not come."""
    reached = {(n.span.path, n.span.line) for n in calls}
    return any((one.path, one.line) not in reached and program.takes(one.path, one.line) for one in mentions(program, "set_epoch"))


def _fetched_before(program: Program, one: Pass) -> Node | None:
    """The call that makes the iterator of a pass in the same epoch; None without workers, as nothing is fetched before the loop."""
    assert one.made is not None
    workers = constant(one.made.args.get("num_workers"))
    if type(workers) is not int or workers < 1:
        return None
    for node in program.of(IteratorMade):
        name = assigned_at(program, node.span)
        same = node.object is not None and node.object.key == one.loader.key and node.loops == one.iterate.loops
        if same and not node.guards and name and one.iterate.text == name:
            return node
    return None


def _lags(call: SetEpoch, one: Pass, epochs: Loop) -> bool:
    """Whether set_epoch gets the number of the running epoch when its batches have been taken, or are being taken."""
    value = call.args.get("epoch")
    counts = isinstance(value, Expr) and value.op.startswith("loop:") and int(value.op.split(":")[1]) == epochs.span.line
    late = one.loop in call.loops or (call.number > one.iterate.number and call.loops[-1:] == (epochs,))
    return counts and late
