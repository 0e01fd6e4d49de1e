"""Evidence of an epoch that repeats its order: a fingerprint of the first batches of each epoch that a loader shuffles.

DistributedSampler is left out: what it does in an epoch follows from its own events.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, NamedTuple

from torch.utils.data import RandomSampler

_BATCHES = 8  # of an epoch, that are compared
_LEAST = 6  # different batches of an epoch that has fewer: six come in the same order once in 720 times, if one sample each


class Order(NamedTuple):
    """How many batches an epoch's fingerprint is of, and the fingerprint."""

    batches: int
    value: int


class Orders:
    """The epochs of loaders that draw a random order, as far as their batches are trained on."""

    def __init__(self) -> None:
        self._epochs: weakref.WeakKeyDictionary[Any, tuple[int, list[int]]] = weakref.WeakKeyDictionary()

    def wants(self, iterator: Any) -> bool:
        """Whether the next batch counts: one of the first of an epoch in an order of chance."""
        known = self._epochs.get(iterator)
        return _is_random(iterator) if known is None else len(known[1]) < _BATCHES

    def after_batch(self, iterator: Any, fingerprint: int, forwards: int) -> Order | None:
        """Takes up a batch that counts. `forwards`: forwards with gradients so far. Answers when enough of an epoch is known."""
        first, found = self._epochs.setdefault(iterator, (forwards, []))
        found.append(fingerprint)
        return _order(found, forwards - first + 1) if len(found) == _BATCHES else None

    def after_last(self, iterator: Any, forwards: int) -> Order | None:
        """An epoch is over; the next of the same iterator is another."""
        first, found = self._epochs.pop(iterator, (0, []))
        return _order(found, forwards - first) if len(found) < _BATCHES else None


def _is_random(iterator: Any) -> bool:
    sampler = getattr(iterator, "_index_sampler", None)
    return isinstance(getattr(sampler, "sampler", sampler), RandomSampler)


def _order(found: list[int], forwards: int) -> Order | None:
    """`forwards` counts one for each batch that was trained on, the last one included."""
    if len(set(found) - {0}) < _LEAST or forwards < len(found):
        return None
    digest = hashlib.blake2b(b"".join(one.to_bytes(8, "little") for one in found), digest_size=8)
    return Order(len(found), int.from_bytes(digest.digest(), "little") or 1)
