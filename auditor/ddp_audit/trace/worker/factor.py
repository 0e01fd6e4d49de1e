"""Evidence of a wrong factor: what a loss is multiplied by before its backward pass, and its gradients between that and the step.

Read are numbers that autograd keeps in the graph anyway, and a few elements of each gradient. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ddp_audit.trace.worker.evidence import MEAN, THROUGH, scale_of

_DEPTH = 24  # nodes of a loss's graph that are looked at
_MEANS = frozenset(("MeanBackward0", "MeanBackward1"))
_ELEMENTS = 8  # of each gradient
_SAME = 0.02  # by how much the ratios of single elements may differ, which 16-bit gradients round
_FAINT = 1e-5  # elements below this share of the largest are left out


def multipliers(loss: Any) -> tuple[tuple[float, ...], bool] | None:
    """The numbers that a loss is multiplied by, the last one first, and whether what they multiply is one mean.

    Followed is the chain of products and quotients with numbers, as far as nothing is added. None for what is not a scalar loss.
    """
    if not isinstance(loss, torch.Tensor) or loss.dim() or loss.grad_fn is None:
        return None
    node: Any = loss.grad_fn
    found: list[float] = []
    for _ in range(_DEPTH):
        name = node.name()
        scale = scale_of(node, name)
        below = [one for one, _ in node.next_functions if one is not None]
        if not scale or len(below) != 1:
            return tuple(found), name in _MEANS or getattr(node, "_saved_reduction", None) == MEAN
        if name not in THROUGH:
            found.append(float(f"{scale:.6g}"))
        node = below[0]
    return tuple(found), False


def probe(gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """A few elements of each gradient, copied where they are: nothing waits for a device here."""
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return [None if one is None else _elements(one) for one in gradients]


def _elements(gradient: torch.Tensor) -> torch.Tensor | None:
    count = gradient.numel()
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided or not count:
        return None
    if not (gradient.is_contiguous() or (gradient.dim() == 4 and gradient.is_contiguous(memory_format=torch.channels_last))):
        return None
    taken = min(count, _ELEMENTS)
    return gradient.detach().as_strided((taken,), (count // taken,), gradient.storage_offset()).to(torch.float32, copy=True)


def common_ratio(before: Sequence[torch.Tensor | None], after: Sequence[torch.Tensor | None]) -> float:
    """What all elements of gradients were multiplied by between two probes; 0.0 where that is not one number."""
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None and a.shape == b.shape]
        old = [value for a, _ in pairs for value in a.tolist()]
        new = [value for _, b in pairs for value in b.tolist()]
    largest = max(map(abs, old), default=0.0)
    if not 0 < largest < float("inf"):
        return 0.0
    ratios = sorted(b / a for a, b in zip(old, new, strict=True) if abs(a) > _FAINT * largest)
    middle = ratios[len(ratios) // 2]
    is_one = len(ratios) > 1 and abs(ratios[-1] - ratios[0]) <= _SAME * abs(middle) < float("inf")
    return float(middle) if is_one else 0.0
