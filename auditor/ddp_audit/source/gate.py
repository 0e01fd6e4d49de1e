"""The cheap test on bytes that tells which files can matter, before anything is parsed."""

from __future__ import annotations

# Names, not stems: the stem "distributed" stands in most licence headers. Substring tests run at gigabytes per second, a
# regular expression over bytes about a hundred times slower.
_NAMES = (
    b"DistributedDataParallel",
    b"DistributedSampler",
    b"init_process_group",
    b"torch.distributed",
    b"torch import distributed",
    b"no_sync",
    b"require_backward_grad_sync",
    b"SyncBatchNorm",
    b"Accelerator(",
)


def matters(data: bytes) -> bool:
    """Whether a file's bytes name something of distributed training."""
    return b"torch" in data and any(name in data for name in _NAMES)
