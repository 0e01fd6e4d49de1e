"""Messages between two ranks in an interpreted run, and the handles of what was started and not yet waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddp_audit.events import COLLECTIVE, OBJECT, Event
from ddp_audit.explore.exact.values import Lib, Native, Tensor, Unknown, error
from ddp_audit.knowledge import functions
from ddp_audit.machine.process_group import asynchronous, wait

if TYPE_CHECKING:
    from ddp_audit.explore.exact.collectives import Group
    from ddp_audit.explore.exact.interpreter import Interpreter


@dataclass(slots=True, eq=False)
class Work:
    """The handle of calls under way: their numbers on this rank."""

    numbers: tuple[int, ...]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method of a handle."""
        if name == "wait":
            return Native(lambda *args, **kwargs: self._wait(it))
        return Native(lambda *args, **kwargs: Unknown(name))

    def _wait(self, it: Interpreter) -> bool:
        for number in self.numbers:
            it.emit(wait(number))
        return True


@dataclass(frozen=True, slots=True)
class Operation:
    """`P2POp(..)`: one message of a batch, not started yet."""

    op: str
    given: dict[str, Any]


def operation(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.distributed.P2POp(op, tensor, peer, group, tag, group_peer)`."""
    given = functions.given("torch.distributed.P2POp", args, kwargs)
    function = given.pop("op", None)
    op = function.name.rsplit(".", 1)[-1] if isinstance(function, Lib) else ""
    if op not in ("isend", "irecv"):
        return Unknown("an operation")
    end = "dst" if op == "isend" else "src"
    renamed = {"peer": end, "group_peer": f"group_{end}"}
    return Operation(op, {renamed.get(name, name): value for name, value in given.items()})


def started(it: Interpreter, made: Sequence[Event]) -> Work:
    """Emits calls that return at once; their handle."""
    numbers = []
    for event in made:
        numbers.append(it.works)
        it.works += 1
        it.emit(asynchronous([event], numbers[-1]))
    return Work(tuple(numbers))


def call(it: Interpreter, op: str, given: dict[str, Any], group: Group) -> Any:
    """A send or a receive, as `torch.distributed` names it. Raises what torch raises for a peer that cannot be."""
    returns_at_once = op.startswith("i")
    sends = "send" in op
    if group.handle is None:  # torch warns, and goes on
        return None if sends or returns_at_once else -1
    detail = _other_end(it, op, given, group)
    if op.endswith("object_list"):
        made = _objects(given.get("object_list"), sends, group.name, detail)
    else:
        tensor = given.get("tensor")
        known = tensor if isinstance(tensor, Tensor) else Tensor(None, None)
        name = "send" if sends else "recv"
        made = [Event(COLLECTIVE, op=name, group=group.name, numel=known.numel, dtype=known.dtype, detail=detail)]
        if not sends:
            known.local = True
    if returns_at_once:
        return started(it, made)
    it.emit(made)
    source = detail.get("peer")
    return None if sends else source if isinstance(source, int) else Unknown("a rank", True)


def _other_end(it: Interpreter, op: str, given: dict[str, Any], group: Group) -> dict[str, Any]:
    """The other rank and the tag, as an event holds them: without a peer where that is not known."""
    end = "dst" if "send" in op else "src"
    tag = given.get("tag", 0)
    if not isinstance(tag, int):
        it.bound(f"{op} with a tag that is not known")
        return {}
    peer, number = given.get(end), given.get(f"group_{end}")
    if peer is None and number is None:
        if end == "dst":
            raise error("ValueError", "Must specify global_rank or group_rank")
        return {"peer": None, "tag": tag}
    if isinstance(number, int) and peer is None and 0 <= number < len(group.members):
        peer = group.members[number]
    if not isinstance(peer, int):
        it.bound(f"{op} with a rank that is not known")
        return {"tag": tag}
    if peer == it.rank:
        if op in ("send", "send_object_list", "recv_object_list"):
            kind = "destination" if end == "dst" else "source"
            raise error(
                "ValueError", f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current process."
            )
        raise error("RuntimeError", "Pair is not connected")
    if peer in group.members:
        return {"peer": peer, "tag": tag}
    if len(group.members) < it.world_size:
        raise error("ValueError", f"Global rank {peer} is not part of group")
    return {"peer": peer, "tag": tag, "nobody": True}  # gloo waits for a rank that is not there


def _objects(objects: Any, sends: bool, group: str, detail: dict[str, Any]) -> list[Event]:
    """The sizes of the pickles, then the pickles."""
    op = "send" if sends else "recv"
    length = len(objects) if isinstance(objects, list) else None
    sizes = Event(COLLECTIVE, op=op, group=group, origin=OBJECT, numel=length, dtype="int64", detail=detail)
    if not sends and isinstance(objects, list):
        objects[:] = [Unknown("an object", True) for _ in objects]
    return [sizes, replace(sizes, numel=None, dtype="uint8")]


__all__ = ["Operation", "Work", "call", "operation", "started"]
