"""Evidence of two silent faults: what a rank's random stream gave before a forward, and how much one label weighs in a loss.

Both only read: the state of torch's CPU generator, and numbers that autograd keeps in the graph anyway. No tensor is changed, no
number is drawn, and nothing of torch is replaced for it.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch

_STATE = 5056  # bytes of the CPU generator's state: seed, left, seeded, next, 624 words of 8 bytes, the rest
_LEFT = slice(8, 12)  # one more than the words that are left of the block
_WORDS = slice(24, 24 + 624 * 8)
_AGREED = 2  # words of a single number, such as one that decides a way that all ranks must go together
_DEPTH = 24  # nodes of a loss's graph that are looked at
THROUGH = frozenset(
    ("AddBackward0", "SubBackward0", "ToCopyBackward0", "CloneBackward0", "AliasBackward0", "SqueezeBackward0", "_DDPSinkBackward")
)
_NLL = frozenset(("NllLossBackward0", "NllLoss2DBackward0"))
MEAN = 1  # torch's number for reduction="mean"


def is_sampled(count: int, every: int, first: int = 16) -> bool:
    """Whether the `count`-th of many is looked at."""
    return count < first or count % every == 0


class Draws:
    """What the script draws from torch's CPU stream between a batch and the forward with gradients that it is for.

    The stream's state is read when a batch has come, and where no loader gives batches, after an optimizer step; then again at
    the forward. What a loader, its samplers and transforms draw lies before, and what the module draws after.
    """

    def __init__(self) -> None:
        self.count = 0  # forwards with gradients so far
        self._state: bytes | None = None
        self._is_batch = False

    def after_batch(self) -> None:
        self._mark(True)

    def after_step(self) -> None:
        if self._state is None:
            self._mark(False)

    def after_seed(self) -> None:
        """A seed is not a draw."""
        if self._state is not None:
            self._state = _stream()

    def _mark(self, is_batch: bool) -> None:
        if is_sampled(self.count, 64):
            self._state, self._is_batch = _stream(), is_batch

    def at_forward(self, grad: bool, batch: int) -> int:
        """A fingerprint of what was drawn for a forward: 0 for nothing, a single number, or where it cannot be known.

        Without a loader what was drawn may be the places of samples in a rank's own share, which may well be equal, so there the
        batch is part of the fingerprint.
        """
        state, self._state = self._state, None
        self.count += grad
        if not grad or state is None or not (self._is_batch or batch):
            return 0
        now = _stream()
        if now is None or _drawn(state, now) <= _AGREED:
            return 0
        digest = hashlib.blake2b(state, digest_size=8)
        digest.update(now)
        if not self._is_batch:
            digest.update(batch.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little") or 1


def _stream() -> bytes | None:
    """The state of torch's CPU generator; None where it is not the one known here."""
    state = torch.default_generator.get_state()
    return ctypes.string_at(state.data_ptr(), _STATE) if state.numel() == _STATE else None


def _drawn(before: bytes, after: bytes) -> int:
    """How many 32-bit words were drawn between two states, at least."""
    start, end = int.from_bytes(before[_LEFT], "little"), int.from_bytes(after[_LEFT], "little")
    return start - end if before[_WORDS] == after[_WORDS] else start + 624 - end


def label_weight(loss: Any) -> tuple[int, float] | None:
    """How many labels a loss is the mean over, and the weight of one: its factor in the loss over their number.

    Followed are sums, and products and quotients with numbers, down to a mean of `nll_loss` or `cross_entropy` without weights
    of classes. None for any other loss. A loss that is scaled by the labels of all ranks has one weight on all.
    """
    if not isinstance(loss, torch.Tensor) or loss.dim() or loss.grad_fn is None:
        return None
    found: list[tuple[int, int, float]] = []
    waiting: list[tuple[Any, float]] = [(loss.grad_fn, 1.0)]
    for _ in range(_DEPTH):
        if not waiting:
            break
        node, factor = waiting.pop(0)
        name = node.name()
        if name in _NLL:
            mean = _mean_of(node)
            if mean is None:
                return None
            found.append((*mean, factor))
            continue
        scale = scale_of(node, name)
        if scale:
            waiting.extend((below, factor * scale) for below, _ in node.next_functions if below is not None)
    if not found:
        return None
    _, count, factor = max(found, key=lambda one: one[0])  # of several losses the one over most places
    return (count, abs(factor) / count) if count > 0 and factor else None


def scale_of(node: Any, name: str) -> float | None:
    """What a node multiplies gradients by; None where that is not a number, or where it cannot be known."""
    if name in THROUGH:
        return 1.0
    if name in ("MulBackward1", "DivBackward1"):  # by a number of C++
        other = getattr(node, "_saved_other", None)
        value = float(other) if isinstance(other, (int, float)) else None
    elif name in ("MulBackward0", "DivBackward0"):
        value = _number(node, "other")
        if value is None and name == "MulBackward0":
            value = _number(node, "self")
    else:
        return None
    return 1 / value if value and name.startswith("Div") else value


def _mean_of(node: Any) -> tuple[int, int] | None:
    """The places of a mean of nll_loss and how many of them have a label; None where it is not a plain mean."""
    if node._saved_reduction != MEAN or _saved(node, "weight") is not None:
        return None
    target, total = _saved(node, "target"), _saved(node, "total_weight")
    if target is None or total is None or total.numel() != 1:
        return None
    count = total.item()
    return (target.numel(), int(count)) if count == count else None


def _number(node: Any, name: str) -> float | None:
    """A number that the graph keeps. None for tensors of more elements."""
    value = _saved(node, name)
    return float(value.item()) if value is not None and value.numel() == 1 and not value.is_complex() else None


def _saved(node: Any, name: str) -> torch.Tensor | None:
    """A tensor that autograd keeps for a node. Hooks of saved tensors (offloading, checkpointing) are never made to run: where
    there is one, or where this cannot be known, the answer is None."""
    kept = getattr(node, f"_raw_saved_{name}", None)
    if kept is None or getattr(kept, "unpack_hook", kept) is not None:
        return None
    try:
        value = getattr(node, f"_saved_{name}")
    except RuntimeError:  # freed by an earlier backward pass
        return None
    return value if isinstance(value, torch.Tensor) else None
