"""Cheap hashes of tensors: fingerprints of batches and exact hashes of parameters.

Memory of contiguous CPU tensors is read directly, so that no operator of torch runs, no mode of the user's sees one and nothing
is copied. Other tensors cost a few small copies. No function here changes a tensor or draws a random number.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
from collections.abc import Iterable
from typing import Any

import torch

_LEAVES = 8  # tensors of a batch that count
_DEPTH = 4
_ITEMS = 64  # items of a container that are looked at
_PIECES = 8
_PIECE = 64  # bytes
_AT_ONCE = 1 << 13  # bytes of a tensor that are read in one piece, to be cut afterwards
WHOLE = 64 << 20  # bytes of parameters that are hashed whole; more are sampled
_SAMPLE = 1 << 16  # bytes a tensor where they are sampled
_STATE_SAMPLE = 3 << 10  # bytes a tensor of an optimizer's state: what sets it apart on a rank reaches the parameters a step later


def _memory(tensor: torch.Tensor, offset: int, size: int) -> bytes:
    return ctypes.string_at(tensor.data_ptr() + offset, size)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements lie in this process's memory one after the other."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.data_ptr() != 0
    )


def _sample(tensor: torch.Tensor) -> bytes:
    """Up to 512 bytes spread over a tensor."""
    if not _is_plain(tensor):
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            flat = tensor.detach()
            while flat.dim() > 1:  # rows spread over the first dimension keep the copy small for any strides
                flat = torch.cat([flat[i] for i in _spread(flat.shape[0], 4)]) if flat.shape[0] > 4 else flat.flatten(0, 1)
            if flat.dim() == 0:
                flat = flat.reshape(1)
            if flat.shape[0] > 128:
                flat = flat[:: flat.shape[0] // 128][:128]
            tensor = flat.contiguous().cpu()
    size = tensor.numel() * tensor.element_size()
    if size <= _PIECES * _PIECE:
        return _memory(tensor, 0, size)
    if size <= _AT_ONCE:
        data = _memory(tensor, 0, size)
        return b"".join([data[start : start + _PIECE] for start in _spread(size - _PIECE, _PIECES)])
    return b"".join([_memory(tensor, start, _PIECE) for start in _spread(size - _PIECE, _PIECES)])


@functools.lru_cache(256)
def _spread(count: int, pieces: int) -> list[int]:
    """Up to `pieces` different whole numbers from 0 to count - 1, the first and the last among them."""
    if count <= pieces:
        return list(range(count))
    return [i * (count - 1) // (pieces - 1) for i in range(pieces)]


def _is_constant(data: bytes, width: int) -> bool:
    return data == data[:width] * (len(data) // width)


def leaves(value: Any) -> list[Any]:
    """The first tensors of a batch, and what else tells samples apart: numpy arrays, texts and numbers."""
    found: list[Any] = []
    _collect(value, 0, found)
    return found


def _collect(value: Any, depth: int, found: list[Any]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        if hasattr(value, "__array_interface__") or isinstance(value, (str, int, float, bytes)):
            found.append(value)
        elif hasattr(value, "__dict__") and depth < _DEPTH:
            _collect(vars(value), depth + 1, found)
        return
    if depth < _DEPTH:
        for item in itertools.islice(value, _ITEMS):
            _collect(item, depth + 1, found)
            if len(found) >= _LEAVES:
                del found[_LEAVES:]
                return


def are_on_device(found: list[Any]) -> bool:
    """Whether some of a batch's leaves are not in this process's memory."""
    return any(isinstance(leaf, torch.Tensor) and not leaf.is_cpu for leaf in found)


@functools.lru_cache(256)
def about(shape: torch.Size, dtype: torch.dtype) -> bytes:
    """What a fingerprint has of a tensor in addition to its elements."""
    return f"{tuple(shape)}{dtype}".encode()


def of_batch(value: Any) -> int:
    """The fingerprint of a batch; see `of_leaves`."""
    return of_leaves(leaves(value))


def of_leaves(found: list[Any]) -> int:
    """A 64-bit fingerprint of the tensors (and numpy arrays, texts, numbers) of a batch; 0 where there is nothing to tell by.

    Equal samples in equal order give equal fingerprints. A tensor whose sampled elements are all alike (padding, a dummy input)
    says nothing about samples; when there is no other, the answer is 0.
    """
    digest = hashlib.blake2b(digest_size=8)
    telling = False
    for leaf in found:
        if isinstance(leaf, torch.Tensor):
            if leaf.numel() == 0 or leaf.is_sparse or leaf.is_meta:
                continue
            data = _sample(leaf)
            digest.update(about(leaf.shape, leaf.dtype))
            telling = telling or not _is_constant(data, leaf.element_size())
        elif hasattr(leaf, "__array_interface__"):
            if leaf.dtype.hasobject:
                continue
            data = leaf.ravel()[:: max(1, leaf.size // 64)].tobytes()
            telling = telling or not _is_constant(data, max(1, leaf.itemsize))
        else:
            data = repr(leaf)[:512].encode()
            telling = telling or isinstance(leaf, (str, bytes))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little") or 1 if telling else 0


def of_parameters(parameters: Iterable[torch.Tensor], sample: int = 0) -> int:
    """A 64-bit hash of the bits of parameters, the same on two ranks exactly when the hashed bits are.

    Up to `WHOLE` bytes of CPU parameters are hashed whole. Of more, the first, middle and last pieces of each tensor, and so where
    `sample` says how many bytes of each are enough. Of tensors on other devices, a sum over the bits of each and a sample.
    """
    tensors = [p.detach() for p in parameters]
    whole = not sample and sum(t.numel() * t.element_size() for t in tensors) <= WHOLE
    most = sample or _SAMPLE
    digest = hashlib.sha1(usedforsecurity=False)  # many processors have instructions for it
    for tensor in tensors:
        digest.update(_shape(tensor.shape))
        size = tensor.numel() * tensor.element_size()
        if size == 0 or tensor.device.type == "meta":
            continue
        if _is_plain(tensor):
            if whole or size <= most:
                digest.update((ctypes.c_char * size).from_address(tensor.data_ptr()))
            else:
                part = most // 3
                for start in (0, (size - part) // 2, size - part):
                    digest.update((ctypes.c_char * part).from_address(tensor.data_ptr() + start))
        else:
            digest.update(_sample(tensor))
            digest.update(str(_bit_sum(tensor)).encode())
    return int.from_bytes(digest.digest()[:8], "little") or 1


@functools.lru_cache(256)
def _shape(shape: torch.Size) -> bytes:
    return str(tuple(shape)).encode()


def of_gradients(parameters: Iterable[torch.Tensor]) -> int:
    """A hash of dense gradients, as `of_parameters` gives one of parameters."""
    gradients = (p.grad for p in parameters)
    return of_parameters(g for g in gradients if g is not None and g.layout is torch.strided)


def of_optimizer(optimizer: Any, parameters: Iterable[torch.Tensor]) -> tuple[int, int]:
    """A hash of samples of an optimizer's state of some parameters, and one of what state there is: names and shapes, and of which.

    Where ranks keep the state of different parameters, or settings of different names, the second differs.
    """
    chosen = {id(p) for p in parameters}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    kinds, texts, tensors = [], [], []
    for number, parameter in enumerate(held):
        state: Any = optimizer.state.get(parameter) if id(parameter) in chosen else None
        for name in sorted(state, key=str) if isinstance(state, dict) else ():
            value = state[name]
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                tensors.append(value)
                kinds.append(f"{number} {name} {tuple(value.shape)} {value.dtype}")
            elif isinstance(value, (bool, int, float)):
                texts.append(f"{number} {name} {value!r}")
                kinds.append(f"{number} {name}")
    layout = hashlib.blake2b("\n".join(kinds).encode(), digest_size=8)
    if not kinds:
        return 0, int.from_bytes(layout.digest(), "little")
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8)
    digest.update(of_parameters(tensors, _STATE_SAMPLE).to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little") or 1, int.from_bytes(layout.digest(), "little")


def settings_of(optimizer: Any, parameters: Iterable[torch.Tensor]) -> tuple[str, ...]:
    """The numbers that an optimizer's groups with some parameters are set to, such as `lr 0.1`; those in tensors are left out."""
    chosen = {id(p) for p in parameters}
    found = dict.fromkeys(
        f"{name} {value!r}"
        for group in optimizer.param_groups
        if any(id(p) in chosen for p in group["params"])
        for name, value in sorted(group.items())
        if isinstance(value, (bool, int, float)) or (isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value))
    )
    return tuple(found)[:_ITEMS]


def _bit_sum(tensor: torch.Tensor) -> int:
    """The sum of a dense tensor's elements read as whole numbers: exact, and without a copy of the tensor."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size())
    if width is None or tensor.layout is not torch.strided:
        return 0
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return int(tensor.view(width).sum(dtype=torch.int64).item())
