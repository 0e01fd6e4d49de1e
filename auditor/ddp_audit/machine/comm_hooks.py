"""Communication hooks: what replaces the all-reduce of a bucket, and what that leaves of the gradients.

With a hook DDP does not divide by the world size (torch/nn/parallel/distributed.py, the warning at `register_comm_hook`): the
hook has to. The hooks here are those of torch/distributed/algorithms/ddp_comm_hooks that keep to one collective a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommHook:
    """A hook that all-reduces the bucket as `dtype` (None: as it is), or with `sends` false keeps the local gradients.

    `divides` says whether it divides by the world size; one that does not leaves gradients that many times too large.
    """

    name: str
    sends: bool = True
    divides: bool = True
    dtype: str | None = None


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
