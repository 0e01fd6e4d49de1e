"""Nodes of the data: samplers, loaders, passes over them, random numbers and their seeds."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import CallNode, Node
from ddp_audit.program.values import Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class SamplerMade(CallNode):
    """`DistributedSampler(..)` or its like; the target is the sampler, args: dataset, num_replicas, rank, shuffle and others."""

    kind: ClassVar[str] = "sampler"
    cls: str  # name of its class
    custom: bool  # a class of the project


class LoaderMade(CallNode):
    """`DataLoader(..)`; the target is the loader, args: dataset, sampler, shuffle, batch_size and the others."""

    kind: ClassVar[str] = "loader"


class SetEpoch(CallNode):
    """`sampler.set_epoch(epoch)`; the target is the sampler, where it is known."""

    kind: ClassVar[str] = "set-epoch"


class Iterate(Node):
    """A for loop over a loader, or `next` of one; the target is the loader."""

    kind: ClassVar[str] = "iterate"


class IteratorMade(Node):
    """`iter(loader)`, where workers begin to fetch; the target is the loader."""

    kind: ClassVar[str] = "iterator"


class Split(CallNode):
    """`random_split(..)`; the target is the data set, args: dataset, lengths, generator."""

    kind: ClassVar[str] = "split"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Prepare(CallNode):
    """Loaders are handed to Accelerate or Fabric; the target is its object, args what was handed over."""

    kind: ClassVar[str] = "prepare"
    framework: str


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Seed(Node):
    """`torch.manual_seed` and its like."""

    kind: ClassVar[str] = "seed"
    seed: Value
    streams: Set[str]  # of torch, cuda, numpy, random those that it starts, or the name of a generator


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class RandomStateRestored(Node):
    """`torch.set_rng_state` and its like."""

    kind: ClassVar[str] = "random-state"
    state: Value
    stream: str  # torch, cuda, numpy or random


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Drawing(CallNode):
    """Something random is drawn."""

    what: str  # the function, as it is written
    stream: str  # whose generator: torch, numpy, random, or the name of a generator of the program's own


class Draw(Drawing):
    """Random indices are drawn from a whole set."""

    kind: ClassVar[str] = "draw"


class OwnDraw(Drawing):
    """The same from a generator of the program's own; `library` is the name of its stream."""

    kind: ClassVar[str] = "own-draw"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class RandomNumbers(Drawing):
    """Numbers from a process's own generator, or a transform that draws them."""

    kind: ClassVar[str] = "random"
    augments: bool  # a transform
