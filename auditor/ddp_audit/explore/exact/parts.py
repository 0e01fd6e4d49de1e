"""The parts that a tensor is cut into: split, chunk and unbind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import tensors
from ddp_audit.explore.exact.values import Tensor, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_MOST_CHUNKS = 4_096  # of a tensor that is split


def of(it: Interpreter, tensor: Tensor, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """split, chunk and unbind: as many parts as can be known."""
    first = args.pop(0) if args and name != "unbind" else None
    dim = kwargs.get("dim", args[0] if args else 0)
    wanted = kwargs.get("split_size_or_sections", kwargs.get("split_size", kwargs.get("chunks", first)))
    if name == "chunk" and isinstance(wanted, int) and not 0 < wanted <= _MOST_CHUNKS:
        return Unknown("chunks", tensor.local)
    shape = tensor.shape
    if not shape or not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        if name == "chunk" and isinstance(wanted, int):
            return tuple(tensors.like(it, tensor, shape=None) for _ in range(wanted))
        return tensors.like(it, tensor, shape=None)
    at, size = dim % len(shape), shape[dim]
    if name == "unbind":
        few = size <= _MOST_CHUNKS
        return (
            tuple(tensors.like(it, tensor, shape=(*shape[:at], *shape[at + 1 :])) for _ in range(size)) if few else Unknown("parts")
        )
    sizes = _sizes(size, wanted, name == "chunk")
    if sizes is None:
        return tensors.like(it, tensor, shape=None)
    return tuple(tensors.like(it, tensor, shape=(*shape[:at], part, *shape[at + 1 :])) for part in sizes)


def _sizes(size: int, wanted: Any, by_number: bool) -> list[int] | None:
    """The sizes of the parts that a dimension is cut into: by their number, by the size of each, or as they are listed."""
    if isinstance(wanted, (list, tuple)):
        return list(wanted) if all(isinstance(part, int) for part in wanted) and len(wanted) <= _MOST_CHUNKS else None
    if not isinstance(wanted, int) or wanted <= 0:
        return None
    each = max(1, -(-size // wanted)) if by_number else wanted
    if size // each > _MOST_CHUNKS:
        return None
    return [min(each, size - start) for start in range(0, size, each)] or [0]
