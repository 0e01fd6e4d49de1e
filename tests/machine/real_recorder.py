"""Records the collectives of real ranks, with the arguments that the machine predicts."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

NAMES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "recv_any_source_": "recv",
}
ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
PAYLOADS = {"scatter_": ("output_tensors",)}  # its input stands on the root alone
PAYLOAD = ("input_tensors", "tensors", "input_tensor", "input")

OBJECTS = {
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
}
JOIN = {
    "notify_join_context",
    "_find_common_rank",
    "_check_global_requires_backward_grad_sync",
    "_get_num_nonjoined_procs",
    "_notify_procs_to_terminate",
    "main_hook",
    "post_hook",
}


class Recorder:
    """Records the c10d operations of every rank's thread, with the arguments that the machine predicts."""

    REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

    def __init__(self) -> None:
        self.lists: dict[int, list[dict[str, Any]]] = {}
        self.ranks: dict[int, int] = {}
        self.stream: Any = None  # where every event is written at once, if anywhere
        self.groups_before: dict[int, int] = {}  # groups that earlier programs of the process have counted

    def begin(self, rank: int) -> None:
        import torch.distributed as dist

        self.ranks[threading.get_ident()] = rank
        self.lists[rank] = []
        self.groups_before[rank] = dist.distributed_c10d._world.group_count - 1

    def take(self, rank: int) -> list[dict[str, Any]]:
        events, self.lists[rank] = self.lists[rank], []
        return events

    def events_of(self, rank: int) -> list[dict[str, Any]]:
        return list(self.lists.get(rank, ()))

    def install(self) -> None:
        import torch
        from torch import library

        key = torch._C.DispatchKey.BackendSelect
        after = torch._C._dispatch_keyset_full_after(key)
        self.registration = library.Library("c10d", "IMPL")
        for schema in torch._C._jit_get_all_schemas():
            short = schema.name.removeprefix("c10d::")
            if short == schema.name or not any(a.name == "process_group" for a in schema.arguments):
                continue
            handle = getattr(torch.ops.c10d, short).default._handle
            names = [a.name for a in schema.arguments]

            def kernel(keys: Any, *arguments: Any, op: str = short, names: Any = names, handle: Any = handle) -> Any:
                self.record(op, dict(zip(names, arguments, strict=False)))
                return handle.redispatch_boxed(keys & after, *arguments)

            self.registration.impl(short, kernel, "BackendSelect", with_keyset=True)

    def record(self, op: str, arguments: dict[str, Any]) -> None:
        rank = self.ranks.get(threading.get_ident())
        if rank is None:
            return
        payload = next((n for n in PAYLOADS.get(op, PAYLOAD) if n in arguments), "")
        flat = flatten(arguments.get(payload, []))
        name = NAMES.get(op, op.rstrip("_"))
        barrier = name == "barrier"
        event = {
            "op": name,
            "group": self.group(rank, arguments["process_group"]),
            "numel": None if barrier else sum(t.numel() for t in flat),
            "dtype": None if barrier or not flat else str(flat[0].dtype).removeprefix("torch."),
            "root": self.root(name, arguments),
            "reduce_op": self.reduce_op(arguments.get("reduce_op")) if name in REDUCING else None,
            "origin": origin(flat),
        }
        self.lists[rank].append(event)
        if self.stream is not None:
            self.stream.write(json.dumps(event) + "\n")

    def group(self, rank: int, script_object: Any) -> str:
        """The group's name as the machine counts: `default`, then 1, 2, ..; a hashed name as it is."""
        import torch.distributed as dist

        name = str(dist.ProcessGroup.unbox(script_object).group_name)
        if not name.isdigit():
            return name
        return "default" if name == "0" else str(int(name) - self.groups_before[rank])

    def root(self, name: str, arguments: dict[str, Any]) -> int | None:
        """The root or the peer as a global rank; the dispatcher has its number in the group."""
        import torch.distributed as dist

        if name not in ROOTED or (name == "recv" and "src" not in arguments):
            return None  # a receive from any rank
        number = next((arguments[n] for n in ("root_rank", "dst", "src") if n in arguments), 0)
        return dist.get_global_rank(dist.ProcessGroup.unbox(arguments["process_group"]), number)

    def reduce_op(self, value: Any) -> str:
        number = value.op() if value is not None and hasattr(value, "op") else 0
        return self.REDUCE_OPS[int(number)]


def flatten(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flatten(v)]
    return [value]


def origin(tensors: list[Any]) -> str:
    """The origin of a collective, by the functions of torch that are on the stack."""
    frame = sys._getframe(2)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    if "_engine_run_backward" in names:
        return "ddp-unused-map" if str(tensors[0].dtype) == "torch.int32" else "ddp-bucket"
    if "_distributed_broadcast_coalesced" in names:
        return "ddp-buffers"
    if names & JOIN:
        return "ddp-join"
    if names & {"_register_delay_all_reduce_hook", "_verify_param_shape_across_processes", "_sync_params_and_buffers"}:
        return "ddp-constructor"
    if "_pre_forward" in names:
        return "ddp-rebuild"
    if names & OBJECTS:
        return "object"
    return "user"
