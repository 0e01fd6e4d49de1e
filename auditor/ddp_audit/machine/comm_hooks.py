"""Communication hooks: what replaces the all-reduce of a bucket, and what that leaves of the gradients.

With a hook DDP does not divide by the world size (torch/nn/parallel/distributed.py, the warning at `register_comm_hook`): the
hook has to. The hooks here are those of torch/distributed/algorithms/ddp_comm_hooks that keep to one collective a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DEFAULT_GROUP, Event
from ddp_audit.machine.buckets import total
from ddp_audit.machine.module import ParamSpec


@dataclass(frozen=True, slots=True)
class CommHook:
    """A hook that all-reduces the bucket as `dtype` (None: as it is), or with `sends` false keeps the local gradients.

    `divides` says whether it divides by the world size; one that does not leaves gradients that many times too large. `made`
    gives what a hook issues for a bucket that is not simply one all-reduce: its number, its parameters, and whether it is the last.
    """

    name: str
    sends: bool = True
    divides: bool = True
    dtype: str | None = None
    made: Callable[[int, Sequence[ParamSpec], bool], list[Event]] | None = field(default=None, compare=False)


SUM_HOOK = CommHook("a hook that sums and does not divide", divides=False)
HOOKS = {
    hook.name: hook
    for hook in (
        CommHook("allreduce_hook"),
        CommHook("fp16_compress_hook", dtype="float16"),
        CommHook("bf16_compress_hook", dtype="bfloat16"),
        CommHook("noop_hook", sends=False, divides=False),
    )
}


@dataclass(slots=True)
class PowerSgd:
    """The state of `powerSGD_hook` (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py).

    For the first `start` iterations it all-reduces whole buckets. From then on it sends three all-reduces a bucket: the gradients
    that are not worth compressing, then the two factors of those that are. The last two are issued by callbacks, so that with
    several buckets their order is a race, which `ordered` says. It is the same on all ranks with one bucket only.
    """

    rank: int = 1
    start: int = 1_000
    least_rate: float = 2
    iteration: int = 0
    ordered: bool = True

    def hook(self, group: str = DEFAULT_GROUP) -> CommHook:
        """The hook for a wrapper on this group."""
        return CommHook("powerSGD_hook", made=lambda index, params, last: self._made(group, index, params, last))

    def _made(self, group: str, index: int, params: Sequence[ParamSpec], last: bool) -> list[Event]:
        whole, dtype = total(params)
        sizes: list[int | None] = [whole]
        if self.iteration >= self.start:
            self.ordered = self.ordered and last and index == 0
            sizes = self._factors(params)
        self.iteration += last
        event = Event(COLLECTIVE, op="all_reduce", group=group, origin=DDP_BUCKET, dtype=dtype, reduce_op="sum")
        return [replace(event, numel=size) for size in sizes]

    def _factors(self, params: Sequence[ParamSpec]) -> list[int | None]:
        uncompressed, rows, columns = 0, 0, 0
        for param in params:
            if param.numel is None or not param.rows:
                return [None, None, None]
            others = param.numel // param.rows
            rank = min(param.rows, others, self.rank)
            if (param.rows + others) * rank * self.least_rate < param.numel:
                rows, columns = rows + param.rows * rank, columns + others * rank
            else:
                uncompressed += param.numel
        return [uncompressed, rows, columns]
