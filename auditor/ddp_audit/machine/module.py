"""What the machine knows of a wrapped module: its parameters, its buffers and its SyncBatchNorm layers."""

from __future__ import annotations

from dataclasses import dataclass, field

# Bytes of one element, by torch's name of the dtype. DDP's bucket capacities are in bytes.
ELEMENT_SIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}

FLOATING = frozenset({"float64", "float32", "float16", "bfloat16"})


def is_floating(dtype: str | None) -> bool:
    """Whether `.to(dtype)` and `.half()` change a tensor of this dtype; complex ones, which `.to` also changes, are left out."""
    return dtype in FLOATING


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter. What the source does not tell is None; `ndim` counts its dimensions, `rows` is the size of the first."""

    name: str
    numel: int | None = None
    dtype: str | None = "float32"
    requires_grad: bool = True
    ndim: int | None = None
    rows: int | None = None

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, or None where it is not known."""
        return byte_size(self.numel, self.dtype)


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer, persistent or not: DDP broadcasts both kinds."""

    name: str
    numel: int | None = None
    dtype: str | None = "float32"

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, or None where it is not known."""
        return byte_size(self.numel, self.dtype)


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """A module as DDP sees it, in registration order, shared parameters listed once.

    `buffers` may be given as (name, numel, dtype). `sync_batchnorm` counts SyncBatchNorm layers, in the order of the forward
    pass; `sync_batchnorm_channels` gives their channels where known. `exact` is False where parameters or buffers stand for
    an unknown number of them: one event then stands for one or more of the same origin.
    """

    params: tuple[ParamSpec, ...]
    buffers: tuple[BufferSpec, ...] = ()
    sync_batchnorm: int = 0
    sync_batchnorm_channels: tuple[int, ...] = ()
    exact: bool = field(default=True)

    def __post_init__(self) -> None:
        buffers = tuple(b if isinstance(b, BufferSpec) else BufferSpec(*b) for b in self.buffers)
        object.__setattr__(self, "buffers", buffers)
        names = [p.name for p in self.params]
        if len(set(names)) != len(names):
            raise ValueError("parameter names of a module must differ; list a shared parameter once")

    def sync_batchnorm_sizes(self, extra: int) -> list[int | None]:
        """Elements of two vectors and `extra` numbers for each SyncBatchNorm layer, None where its channels are not known."""
        channels = self.sync_batchnorm_channels
        return [2 * c + extra for c in channels] if channels else [None] * self.sync_batchnorm

    @classmethod
    def unknown(cls, buffers: bool = False, sync_batchnorm: int = 0) -> ModuleSpec:
        """A module of which only this is known: it has parameters, and whether it has buffers."""
        return cls(
            params=(ParamSpec("*", None, None),),
            buffers=(BufferSpec("*", None, None),) if buffers else (),
            sync_batchnorm=sync_batchnorm,
            exact=False,
        )


def byte_size(numel: int | None, dtype: str | None) -> int | None:
    """Bytes of `numel` elements of `dtype`, or None where either is not known."""
    if numel is None or dtype is None or dtype not in ELEMENT_SIZE:
        return None
    return numel * ELEMENT_SIZE[dtype]
