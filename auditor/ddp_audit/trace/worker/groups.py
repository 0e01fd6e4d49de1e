"""Records the life of process groups: made, made for some ranks, destroyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from ddp_audit import events
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.tracer import Tracer, described


class Groups:
    """What stands around torch's functions for groups. `record` writes an event at the user's line, `safely` calls a part of the
    tracer whose error must not reach the program. `patches`: owner, name, what stands around it, and who else has it."""

    def __init__(self, tracer: Tracer, record: Callable[..., Any], safely: Callable[..., Any]) -> None:
        self._tracer = tracer
        self._record = record
        self._safely = safely
        self._told: set[str] = set()  # groups of meshes
        self.patches: list[tuple[Any, str, Callable[..., Any], tuple[Any, ...]]] = [
            (c10d, "init_process_group", self._init_group, (dist,)),
            (c10d, "new_group", self._new_group, (dist,)),
            (c10d, "destroy_process_group", self._destroy_group, (dist,)),
            (DeviceMesh, "__init__", self._make_mesh, ()),
        ]

    def _init_group(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self._safely(self._opened)
        return result

    def _opened(self) -> None:
        """The rank is known now: a process that torchrun did not start opens its file here."""
        tracer = self._tracer
        tracer.open(dist.get_rank(), dist.get_world_size())
        ranks = layout.pack_ranks(range(dist.get_world_size()))
        self._record(events.GROUP, action="init", name=events.DEFAULT_GROUP, ranks=ranks, backend=str(dist.get_backend()))
        tracer.group(c10d._get_default_group())

    def _new_group(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        self._safely(self._made_group, made, args, kwargs)
        return made

    def _made_group(self, made: Any, args: Any, kwargs: Any) -> None:
        if isinstance(made, dist.ProcessGroup):
            group = self._tracer.group(made)
            self._record(
                events.GROUP,
                group=group.name,
                action="new",
                name=group.name,
                ranks=layout.pack_ranks(group.ranks),
                backend=str(dist.get_backend(made)),
                **described(made),
            )
        else:  # this rank is not a member
            ranks = kwargs.get("ranks", args[0] if args else None)
            self._record(events.GROUP, action="new", name="", ranks=layout.pack_ranks([int(r) for r in ranks or ()]))

    def _make_mesh(self, original: Any, mesh: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Around the constructor of a DeviceMesh: it makes a group for each dimension."""
        original(mesh, *args, **kwargs)
        if self._tracer.on:
            self._safely(self._mesh_groups, mesh)

    def _mesh_groups(self, mesh: Any) -> None:
        try:
            groups = mesh.get_all_groups()
        except Exception:  # a part of another mesh, or one without groups
            return
        for made in groups:
            group = self._tracer.group(made)
            if group.name not in self._told and group.name != events.DEFAULT_GROUP:
                self._told.add(group.name)
                ranks = layout.pack_ranks(group.ranks)
                self._record(events.GROUP, group=group.name, action="new", name=group.name, ranks=ranks, **described(made))

    def _destroy_group(self, original: Any, group: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = events.DEFAULT_GROUP
        if group is not None:  # a rank that is not a member has no group to name
            name = self._tracer.group(group).name if isinstance(group, dist.ProcessGroup) else ""
        self._record(events.GROUP, group=name or events.DEFAULT_GROUP, action="destroy", name=name, ranks=[])
        result = original(group, *args, **kwargs)
        self._tracer.forget_groups()
        return result
