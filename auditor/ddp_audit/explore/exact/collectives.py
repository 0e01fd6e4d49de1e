"""torch.distributed in an interpreted run: groups, collectives, object collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.events import COLLECTIVE, USER, Event
from ddp_audit.explore.exact import messages, totals
from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import Lib, Native, Tensor, Unknown, error
from ddp_audit.folding import count_of
from ddp_audit.knowledge import functions
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.machine.process_group import ProcessGroup

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_TORCH = "torch.distributed."
FOLDED = {name.removeprefix(_TORCH): op for name, op in functions.named("collective").items()}  # to what goes over the wire
_MOST_RANKS = 100_000  # of a group


@dataclass(slots=True, eq=False)
class Group:
    """A process group; `handle` is None where this rank is not a member."""

    name: str
    members: tuple[int, ...]
    handle: ProcessGroup | None

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method of a group."""
        if name == "size":
            return Native(lambda: len(self.members))
        if name == "rank":
            return Native(lambda: self.members.index(it.rank) if it.rank in self.members else -1)
        return Unknown(name)


def default_group(it: Interpreter) -> Group:
    """The group of all ranks."""
    return Group(it.groups.default.name, tuple(range(it.world_size)), it.groups.default)


def call(it: Interpreter, op: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.distributed.<op>(..)`."""
    known = _CALLS.get(op)
    if known is not None:
        return known(it, args, kwargs)
    name = f"{_TORCH}{op}"
    given = functions.given(name, args, kwargs)
    if name in functions.named("message"):
        return _message(it, op, given)
    if op not in FOLDED:
        if any(word in op for word in ("gather", "reduce", "broadcast", "scatter", "all_to_all")):
            it.bound(f"torch.distributed.{op} is not followed")
        return Unknown(op)
    _need_group(it)
    group = _group(it, given)
    if group is None:
        it.bound(f"{op} over a group that is not known")
        return Unknown(op)
    described = functions.described()[name]
    payload = given.get(described.get("sends", ""))
    is_async = it.known_truth(given.get("async_op")) is True
    made = [] if group.handle is None else _events(it, op, given, group, payload)
    work = messages.started(it, made) if is_async and group.handle is not None else None
    if work is None:
        it.emit(made)
    if "equal" in described:
        _make_equal(given.get(described["equal"]), objects="sends" not in described)
    if "in-place" in described:
        totals.reduced(it, op, payload, made)
    return work


def _message(it: Interpreter, op: str, given: dict[str, Any]) -> Any:
    """A message between two ranks, or a batch of them."""
    if op != "batch_isend_irecv":
        _need_group(it)
        group = _group(it, given)
        if group is None:
            it.bound(f"{op} over a group that is not known")
            return Unknown(op)
        return messages.call(it, op, given, group)
    operations = given.get("p2p_op_list")
    if not isinstance(operations, list) or not all(isinstance(one, messages.Operation) for one in operations):
        it.bound("batch_isend_irecv of operations that are not known")
        return Unknown(op)
    works = [_message(it, one.op, one.given) for one in operations]
    return [work for work in works if work is not None]


def _events(it: Interpreter, op: str, given: dict[str, Any], group: Group, payload: Any) -> list[Event]:
    handle = group.handle
    assert handle is not None
    root = given.get("src", given.get("dst"))
    root = root if isinstance(root, int) else None if isinstance(root, Unknown) else group.members[0]
    for relative in ("group_src", "group_dst"):
        if isinstance(given.get(relative), int):
            root = group.members[given[relative]]
    if op == "barrier":
        return handle.barrier()
    if op == "monitored_barrier":
        return [Event(COLLECTIVE, op=op, group=group.name, origin=USER)]
    if op == "all_gather_object":
        return handle.all_gather_object()
    if op == "gather_object":
        return handle.gather_object(root=root)
    if op == "broadcast_object_list":
        objects = given.get("object_list")
        return handle.broadcast_object_list(len(objects) if isinstance(objects, list) else None, root=root)
    if op == "scatter_object_list":
        return [Event(COLLECTIVE, op="broadcast", group=group.name, root=root), Event(COLLECTIVE, op="scatter", group=group.name)]
    tensors = [payload] if isinstance(payload, Tensor) else list(tensors_in(payload))
    sizes = [t.numel for t in tensors]
    numel = sum(s for s in sizes if s is not None) if sizes and None not in sizes else None
    dtype = tensors[0].dtype if tensors else None
    folded = FOLDED.get(op, op)
    reduces = is_kind(folded, "takes-operation")
    rooted = folded in ("broadcast", "reduce", "gather", "scatter")
    return [
        Event(
            COLLECTIVE, op=folded, group=group.name, origin=USER, numel=numel, dtype=dtype, root=root if rooted else None,
            reduce_op=reduce_name(given.get("op")) if reduces else None,
        )
    ]  # fmt: skip


def reduce_name(value: Any) -> str | None:
    """torch's reduce operation in lower case; sum where none is given."""
    if value is None:
        return "sum"
    return value.name.rsplit(".", 1)[-1].lower() if isinstance(value, Lib) else None


def _make_equal(written: Any, objects: bool) -> None:
    """What a collective leaves: equal values on all ranks, in tensors or in a list of objects."""
    if objects:
        if isinstance(written, list):
            written[:] = [Unknown("an object") for _ in written]
        return
    for tensor in tensors_in(written):
        tensor.local = False


def _need_group(it: Interpreter) -> None:
    if not it.initialized:
        it.asked_early += 1
        raise error("ValueError", "Default process group has not been initialized, please make sure to call init_process_group.")


def _group(it: Interpreter, given: dict[str, Any]) -> Group | None:
    group = given.get("group")
    if group is None or (isinstance(group, Lib) and group.name.endswith("WORLD")):
        return default_group(it)
    return group if isinstance(group, Group) else None


def _init(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
    if it.initialized:
        raise error("ValueError", "trying to initialize the default process group twice!")
    it.initialized = it.grouped = True


def _is_initialized(it: Interpreter) -> bool:
    it.asked_early += not it.initialized
    return it.initialized


def _destroy(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
    if not args or args[0] is None:
        it.initialized = False


def _rank(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    group = _group(it, {"group": args[0] if args else kwargs.get("group")})
    _need_group(it)
    if group is None:
        return Unknown("a rank", True)
    return group.members.index(it.rank) if it.rank in group.members else -1


def _size(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    group = _group(it, {"group": args[0] if args else kwargs.get("group")})
    _need_group(it)
    return Unknown("a size") if group is None else len(group.members)


def _new_group(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    given = args[0] if args else kwargs.get("ranks")
    ranks: tuple[int, ...] | None = None
    if given is not None:
        few = isinstance(given, (list, tuple, range, set)) and count_of(given) <= _MOST_RANKS
        found: list[Any] = list(given) if few else [None]
        if not all(isinstance(r, int) for r in found):
            it.bound("a group of ranks that are not known")
            return Unknown("a group")
        ranks = tuple(found)
        if ranks and max(ranks) >= it.world_size:
            it.wanted = max(it.wanted, max(ranks) + 1)
            raise error("ValueError", "the new group's rank should be within the world_size set by init_process_group")
    made, handle = it.groups.new_group(ranks, use_local_synchronization=kwargs.get("use_local_synchronization") is True)
    if not made:
        return None  # what torch gives a rank that is not a member of such a group; as `group=None` it means the default one
    it.emit(made)
    name = str(made[0].group)
    return Group(name, it.groups.members[name], handle)


_CALLS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "init_process_group": _init, "destroy_process_group": _destroy, "get_rank": _rank, "get_world_size": _size,
    "new_group": _new_group, "is_initialized": lambda it, a, k: _is_initialized(it),
    "get_node_local_rank": lambda it, a, k: it.rank,
    "is_nccl_available": lambda it, a, k: Unknown("whether NCCL is there"),
    "P2POp": lambda it, a, k: messages.operation(it, a, k),
    "get_backend": lambda it, a, k: Unknown("a backend"),
}  # fmt: skip
