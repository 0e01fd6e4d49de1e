"""Communication hooks: what replaces the all-reduce of a bucket, and what that leaves of the gradients.

With a hook DDP does not divide by the world size (torch/nn/parallel/distributed.py, the warning at `register_comm_hook`): the
hook has to. The hooks here are those of torch/distributed/algorithms/ddp_comm_hooks that keep to one collective a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ddp_audit.events import Event


@dataclass(frozen=True, slots=True)
class CommHook:
    """A hook that all-reduces the bucket as `dtype` (None: as it is), or with `sends` false keeps the local gradients.

    `divides` says whether it divides by the world size; one that does not leaves gradients that many times too large. `made`
    gives what a hook of a program's own issues for a bucket: its number, elements and dtype, and whether it is the last.
    """

    name: str
    sends: bool = True
    divides: bool = True
    dtype: str | None = None
    made: Callable[[int, int | None, str | None, bool], list[Event]] | None = field(default=None, compare=False)


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
