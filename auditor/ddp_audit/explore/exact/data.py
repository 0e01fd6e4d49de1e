"""Data sets, samplers and loaders of an interpreted run: how many batches each rank gets, and of which shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls
from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import Class, Function, Instance, Method, Native, Tensor, Unknown, error
from ddp_audit.knowledge import functions
from ddp_audit.machine.samplers import batches_per_rank, distributed_indices, samples_per_rank

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


@dataclass(slots=True, eq=False)
class DataSet:
    """A map-style data set of torch: `size` samples (an int, or Unknown), each like `sample`."""

    size: Any
    sample: Any

    def length(self, it: Interpreter) -> Any:
        """Number of samples."""
        return self.size

    def elements(self, it: Interpreter) -> Iterator[Any]:
        """The samples."""
        if not isinstance(self.size, int):
            yield from it.some(self.sample, None)
            return
        for _ in range(self.size):
            it.tick()
            yield self.sample

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute: nothing more is known."""
        return Unknown(name)

    def __getitem__(self, index: Any) -> Any:
        return self.sample


def dataset(it: Interpreter, kind: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A data set of torch.utils.data by the name of its class."""
    if kind == "TensorDataset":
        tensors = list(tensors_in(args))
        size = tensors[0].shape[0] if tensors and tensors[0].shape else Unknown("a length")
        return DataSet(size, tuple(Tensor(None if t.shape is None else t.shape[1:], t.dtype, frozenset(), True) for t in tensors))
    inner = args[0] if args else kwargs.get("dataset")
    if kind == "Subset":
        indices = args[1] if len(args) > 1 else kwargs.get("indices")
        return DataSet(calls.length(it, indices), sample_of(it, inner))
    if kind == "ConcatDataset" and isinstance(inner, (list, tuple)) and inner:
        sizes = [calls.length(it, part) for part in inner]
        known = all(isinstance(s, int) for s in sizes)
        return DataSet(sum(sizes) if known else Unknown("a length"), sample_of(it, inner[0]))
    return DataSet(Unknown("a length"), Unknown("a sample", True, quiet=True))


def random_split(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> list[DataSet]:
    """The parts of a data set, by lengths or by fractions."""
    whole = args[0] if args else kwargs.get("dataset")
    lengths = args[1] if len(args) > 1 else kwargs.get("lengths", [])
    total = calls.length(it, whole)
    sample = sample_of(it, whole)
    if not isinstance(lengths, (list, tuple)):
        return [DataSet(Unknown("a length"), sample) for _ in range(2)]
    if any(isinstance(part, float) for part in lengths) and isinstance(total, int):
        sizes = [int(total * part) for part in lengths]
        each, rest = divmod(max(0, total - sum(sizes)), len(sizes))
        return [DataSet(size + each + (i < rest), sample) for i, size in enumerate(sizes)]
    return [DataSet(part if isinstance(part, int) else Unknown("a length"), sample) for part in lengths]


def sample_of(it: Interpreter, data: Any) -> Any:
    """One sample of a data set."""
    if isinstance(data, DataSet):
        return data.sample
    if isinstance(data, Instance):
        method = data.cls.find("__getitem__")
        if isinstance(method, Function):
            return calls.call(it, Method(method, data), [0], {})
    if isinstance(data, (list, tuple)) and data:
        return data[0]
    if isinstance(data, range):
        return 0
    if isinstance(data, Tensor):
        return Tensor(data.shape[1:] if data.shape else None, data.dtype)
    return Unknown("a sample", True, quiet=True)


@dataclass(slots=True, eq=False)
class Sampler:
    """A sampler of torch. `shares` says that it deals the data out to the ranks."""

    kind: str
    size: Any  # samples of the data set, or what the sampler is set to draw
    replicas: int = 1
    rank: int = 0
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    epoch: int = 0

    def length(self, it: Interpreter) -> Any:
        """How many indices a rank gets."""
        if self.kind != "DistributedSampler" or not isinstance(self.size, int):
            return self.size
        return samples_per_rank(self.size, self.replicas, drop_last=self.drop_last)

    def elements(self, it: Interpreter) -> Iterator[Any]:
        """The indices."""
        count = self.length(it)
        if isinstance(self.size, int) and self.kind == "DistributedSampler" and self.size <= 20_000:
            options = {"shuffle": self.shuffle, "seed": self.seed, "epoch": self.epoch, "drop_last": self.drop_last}
            yield from distributed_indices(self.size, self.replicas, self.rank, **options)  # type: ignore[arg-type]
        elif isinstance(count, int):
            for index in range(count):
                yield index if self.kind == "SequentialSampler" else Unknown("an index", True)
        else:
            yield from it.some(Unknown("an index", True), None)

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute or a method of a sampler."""
        if name == "set_epoch":
            return Native(self._set_epoch)
        if name in ("num_samples", "total_size"):
            each = self.length(it)
            return each * (self.replicas if name == "total_size" else 1) if isinstance(each, int) else Unknown(name)
        return {"num_replicas": self.replicas, "rank": self.rank, "epoch": self.epoch, "seed": self.seed}.get(name, Unknown(name))

    def _set_epoch(self, epoch: Any) -> None:
        self.epoch = epoch if isinstance(epoch, int) else 0


def sampler(it: Interpreter, kind: str, args: list[Any], kwargs: dict[str, Any]) -> Sampler:
    """A sampler of torch.utils.data by the name of its class. Raises what DistributedSampler raises without a process group."""
    name = f"torch.utils.data.{kind}"
    given = functions.given(name, args, kwargs)
    size = calls.length(it, given.get(functions.parameters(name)[0]))
    if kind != "DistributedSampler":
        wanted = given.get("num_samples")
        return Sampler(kind, size if wanted is None else wanted)
    if not it.initialized and (given.get("num_replicas") is None or given.get("rank") is None):
        raise error("ValueError", "Default process group has not been initialized, please make sure to call init_process_group.")

    def number(name: str, fallback: int) -> int:
        value = given.get(name)
        return value if isinstance(value, int) else fallback

    replicas, rank = number("num_replicas", it.world_size), number("rank", it.rank)
    if not 0 <= rank < replicas:
        raise error("ValueError", f"Invalid rank {rank}, rank should be in the interval [0, {replicas - 1}]")
    shuffle, drop_last = given.get("shuffle", True) is not False, given.get("drop_last") is True
    return Sampler(kind, size, replicas, rank, shuffle, number("seed", 0), drop_last)


@dataclass(slots=True, eq=False)
class Batches:
    """A BatchSampler."""

    inner: Any
    batch_size: Any
    drop_last: bool

    def length(self, it: Interpreter) -> Any:
        """Number of batches."""
        return _batches(calls.length(it, self.inner), self.batch_size, self.drop_last)

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute of a batch sampler."""
        return self.inner if name == "sampler" else Unknown(name)


def _batches(samples: Any, size: Any, drop_last: bool) -> Any:
    if isinstance(samples, int) and isinstance(size, int) and size > 0:
        return batches_per_rank(samples, size, drop_last=drop_last)
    return Unknown("a length")


@dataclass(slots=True, eq=False)
class Loader:
    """A DataLoader."""

    given: dict[str, Any]

    @property
    def drop_last(self) -> bool:
        return self.given.get("drop_last") is True

    def length(self, it: Interpreter) -> Any:
        """Number of batches."""
        batches = self.given.get("batch_sampler")
        if batches is not None:
            return calls.length(it, batches)
        if self.given.get("batch_size", 1) is None:
            return self._samples(it)
        return _batches(self._samples(it), self.given.get("batch_size", 1), self.drop_last)

    def _samples(self, it: Interpreter) -> Any:
        chosen = self.given.get("sampler")
        return calls.length(it, self.given.get("dataset") if chosen is None else chosen)

    def elements(self, it: Interpreter) -> Iterator[Any]:
        """The batches, as shapes."""
        data = self.given.get("dataset")
        if isinstance(data, Instance) and isinstance(data.cls.find("__iter__"), Function) and _is_iterable_set(data.cls):
            yield from self._of_iterable(it, data)
            return
        count, size = self.length(it), self._batch_size
        if not isinstance(count, int):
            yield from it.some(self._batch(it, size), None)
            return
        samples = self._samples(it)
        whole = self._batch(it, size) if count else None
        for number in range(count):
            rest = samples - number * size if isinstance(samples, int) and isinstance(size, int) else None
            part = rest is not None and size is not None and rest < size and self.given.get("batch_sampler") is None
            yield self._batch(it, rest) if part else whole

    def _of_iterable(self, it: Interpreter, data: Instance) -> Iterator[Any]:
        size = self._batch_size
        gathered = 0
        last: Any = None
        for element in it.iterate(data):
            last, gathered = element, gathered + 1
            if size is not None and gathered == size:
                yield self._collated(it, last, gathered)
                gathered = 0
        if gathered and not self.drop_last:
            yield self._collated(it, last, gathered)

    @property
    def _batch_size(self) -> int | None:
        batches = self.given.get("batch_sampler")
        size = batches.batch_size if isinstance(batches, Batches) else self.given.get("batch_size", 1)
        return size if isinstance(size, int) else None

    def _batch(self, it: Interpreter, size: int | None) -> Any:
        return self._collated(it, sample_of(it, self.given.get("dataset")), size)

    def _collated(self, it: Interpreter, sample: Any, size: int | None) -> Any:
        chosen = self.given.get("collate_fn")
        if isinstance(chosen, (Function, Method)):
            return calls.call(it, chosen, [[sample] * min(size or 2, 64)], {})
        return _collate(sample, size)

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute of a loader."""
        return self.given.get(name, Unknown(name))


def _is_iterable_set(cls: Class) -> bool:
    return any(name.endswith("IterableDataset") for name in cls.outside_bases())


def _collate(sample: Any, size: int | None) -> Any:
    """What torch's default collate makes of equal samples."""
    match sample:
        case Tensor():
            known = sample.shape is not None and size is not None
            return Tensor((size, *sample.shape) if known and sample.shape is not None else None, sample.dtype)  # type: ignore[arg-type]
        case bool():
            return Tensor(None if size is None else (size,), "bool")
        case int():
            return Tensor(None if size is None else (size,), "int64")
        case float():
            return Tensor(None if size is None else (size,), "float64")
        case tuple() | list():
            return [_collate(part, size) for part in sample]
        case dict():
            return {key: _collate(part, size) for key, part in sample.items()}
    return Unknown("a batch", True, quiet=True)


def loader(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Loader:
    """`DataLoader(..)`. Raises what torch raises for a sampler together with shuffle."""
    given = functions.given("torch.utils.data.DataLoader", args, kwargs)
    if given.get("sampler") is not None and given.get("shuffle") is True:
        raise error("ValueError", "sampler option is mutually exclusive with shuffle")
    return Loader(given)
