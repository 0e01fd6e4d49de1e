"""Iterable data sets: the stream that a loader reads, and whether something gives each rank items of its own."""

from __future__ import annotations

from ddp_audit.tree.nodes import Program
from ddp_audit.tree.questions import Pass, by_rank, calls_of, hints_at, is_kind
from ddp_audit.tree.values import ClassInfo, Made, Obj, Unknown, Value, behind, constant
from ddp_audit_rules.data._seeded import draws_by_chance


def stream_of(data: Value) -> Value | None:
    """The iterable data set that a value is: one of the project, or a streaming one of the datasets library."""
    if isinstance(data, Obj):
        return data if data.kind == "iterable-dataset" and isinstance(data.cls, ClassInfo) else None
    for inner in behind(data):
        if isinstance(inner, Unknown) and isinstance(inner.by, Made) and is_kind(inner, "loads-data"):
            streaming = inner.by.argument("streaming")
            return data if streaming is not None and constant(streaming) is True else None
    return None


def is_divided(program: Program, one: Pass, stream: Value) -> bool:
    """Whether something gives each rank items of its own, or may do so where it was not followed."""
    if by_rank(stream) or hints_at(program, "splits-stream") or calls_of(program, "shard"):
        return True
    if any("rank" in g.taint for g in one.backward.guards):
        return True
    if not isinstance(stream, Obj):
        return any(by_rank(inner) for inner in behind(stream))
    assert isinstance(stream.cls, ClassInfo)
    found = stream.cls.find("__iter__")
    if found is None or stream.cls.outside_bases() - {"torch.utils.data.IterableDataset"}:
        return True
    classes = [stream.cls, found[0]]
    held = [*(stream.info or ()), *program.contents.get(stream.key, {}).values()]
    for value in held:
        if isinstance(value, Obj) and isinstance(value.cls, ClassInfo):
            classes.append(value.cls)
        elif isinstance(value, Value) and any(by_rank(inner) for inner in behind(value)):
            return True
    return any(draws_by_chance(info.node) or hints_at(info, "rank-or-shard") for info in classes)
