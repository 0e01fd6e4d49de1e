"""How torch groups tensors into buckets: by dtype, in order, closing a bucket once it has reached its limit.

Mirrors `_compute_bucket_assignment_by_size` of torch (torch/csrc/distributed/c10d/reducer.cpp), which DDP uses three times:
for the coalesced broadcasts, for the buckets of the first iteration, and for the rebuilt buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

MIB = 1024 * 1024
FIRST_BUCKET_BYTES = MIB  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
DEFAULT_BUCKET_CAP_MB = 25
BROADCAST_BUCKET_BYTES = 250 * MIB  # DistributedDataParallel.broadcast_bucket_size
UNLIMITED = 2**63 - 1


class Sized(Protocol):
    """A parameter or a buffer."""

    @property
    def numel(self) -> int | None: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def nbytes(self) -> int | None: ...


def assign_buckets(tensors: Sequence[Sized], limits: Sequence[int], *, keep_order: bool = False) -> list[list[int]]:
    """Buckets as lists of positions in `tensors`.

    `limits` are bytes: the first bucket of a dtype gets the first limit, and so on; the last limit serves all that follow. A
    bucket may exceed its limit by the tensor that closed it. The buckets are sorted by their smallest position, except with
    `keep_order` (the gradient-ready order of a rebuild), where they stand in the order in which they were closed and the
    unclosed ones come last, the dtype that appeared last before the others: torch keeps them in a hash map, which libstdc++
    walks from the newest key. A tensor of unknown size adds nothing, so that unknown modules keep one bucket.
    """
    result: list[list[int]] = []
    members: dict[str | None, list[int]] = {}
    sizes: dict[str | None, int] = {}
    limit_at: dict[str | None, int] = {}
    for position, tensor in enumerate(tensors):
        dtype = tensor.dtype
        members.setdefault(dtype, []).append(position)
        sizes[dtype] = sizes.get(dtype, 0) + (tensor.nbytes or 0)
        at = limit_at.get(dtype, 0)
        if sizes[dtype] >= limits[at]:
            result.append(members[dtype])
            members[dtype], sizes[dtype] = [], 0
            limit_at[dtype] = min(at + 1, len(limits) - 1)
    result.extend(unclosed for unclosed in reversed(members.values()) if unclosed)
    if not keep_order:
        result.sort(key=min)
    return result


def total(tensors: Sequence[Sized]) -> tuple[int | None, str | None]:
    """Elements and dtype of some tensors flattened into one; elements are None where one of them is not known."""
    numels = [t.numel for t in tensors]
    numel = None if any(n is None for n in numels) else sum(n for n in numels if n is not None)
    return numel, tensors[0].dtype if tensors else None
