"""Fingerprints of single samples of the first epochs that a DistributedSampler shares out among the ranks.

A batch is not enough: where the data set is in another order on each rank, ranks share samples, and no batch of theirs is equal.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint

_EPOCHS = 2  # of each loader
_MOST = 2048  # samples of an epoch
_PIECE = 64  # in one record
_BYTES = 4096  # of a tensor's sample
_LEAST = 2  # numbers that a sample has


class _Epoch:
    __slots__ = ("count", "digests", "number", "share")

    def __init__(self, number: int, share: int) -> None:
        self.number = number
        self.share = share
        self.count = 0
        self.digests: list[str] = []


class Samples:
    """The samples of one rank. `record` writes an event at the user's line."""

    def __init__(self, record: Callable[..., Any]) -> None:
        self._record = record
        self._epochs: weakref.WeakKeyDictionary[Any, _Epoch | None] = weakref.WeakKeyDictionary()  # by iterator
        self._begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # by sampler

    def wants(self, iterator: Any) -> bool:
        """Whether the samples of an iterator's next batch count."""
        if iterator not in self._epochs:
            self._epochs[iterator] = self._begin(iterator)
        return self._epochs[iterator] is not None

    def _begin(self, iterator: Any) -> _Epoch | None:
        sampler = getattr(iterator, "_index_sampler", None)
        sampler = getattr(sampler, "sampler", sampler)
        if not isinstance(sampler, DistributedSampler) or sampler.num_replicas < 2:
            return None
        begun = self._begun.get(sampler, 0)
        self._begun[sampler] = begun + 1
        return _Epoch(begun, sampler.rank) if begun < _EPOCHS else None

    def after_batch(self, iterator: Any, batch: Any) -> None:
        """Takes up a batch of CPU tensors whose samples count."""
        epoch = self._epochs[iterator]
        if epoch is None:
            return
        try:
            found = _digests(batch)
        except (RuntimeError, TypeError, ValueError):  # a kind of tensor whose bytes cannot be had
            found = []
        if not found:
            self._epochs[iterator] = None
            return
        epoch.digests += found[: _MOST - epoch.count]
        epoch.count += len(found)
        if len(epoch.digests) >= _PIECE or epoch.count >= _MOST:
            self._write(epoch)
        if epoch.count >= _MOST:
            self._epochs[iterator] = None

    def after_last(self, iterator: Any) -> None:
        """An epoch is over."""
        epoch = self._epochs.pop(iterator, None)
        if epoch is not None:
            self._write(epoch)

    def leave(self) -> None:
        """Writes what is left of epochs that were not iterated to their end."""
        for epoch in list(self._epochs.values()):
            if epoch is not None:
                self._write(epoch)

    def _write(self, epoch: _Epoch) -> None:
        if epoch.digests:
            self._record(events.SAMPLES, epoch=epoch.number, share=epoch.share, samples=" ".join(epoch.digests))
            epoch.digests = []


def _digests(batch: Any) -> list[str]:
    """A short hash of each sample: of all tensors whose first dimension is that of the first one."""
    tensors = [leaf for leaf in fingerprint.leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.is_cpu]
    if not tensors or tensors[0].layout is not torch.strided:
        return []
    count = tensors[0].shape[0]
    columns = []
    numbers = 0
    for tensor in tensors:
        if tensor.shape[0] == count and tensor.layout is torch.strided and tensor.numel():
            row = tensor.numel() // count
            numbers += row
            size = tensor.element_size()
            rows = tensor.detach().reshape(count, row)[:, : max(1, _BYTES // size)].contiguous()
            columns.append((bytes(rows.view(torch.uint8).numpy().data), rows.shape[1] * size))
    if numbers < _LEAST or not columns:
        return []
    return [
        hashlib.blake2b(b"".join(data[at * size : (at + 1) * size] for data, size in columns), digest_size=6).hexdigest()
        for at in range(count)
    ]
