"""The shared vocabulary: what one rank does, as a sequence of events.

Predicted sequences (`explore`), recorded sequences (`trace`) and the machine that turns calls into traffic (`machine`) all
speak in `Event`. A field that the producer cannot know is None, and None agrees with everything in a comparison.

This module is imported inside training processes: it uses the standard library only, and little of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ddp_audit.source.paths import place_of

# Kinds of event.
COLLECTIVE = "collective"  # anything that a process group carries, point to point included; detail: library that made it
FORWARD = "forward"  # a call of a DDP wrapper; detail: model, grad, training, sync, batch
BACKWARD = "backward"  # one backward pass; detail: buckets (number of bucket all-reduces it issued)
STEP = "step"  # an optimizer step; detail: optimizer, reduced
BATCH = "batch"  # a batch left a loader; detail: fingerprint
PARAMETERS = "parameters"  # a hash of a wrapper's parameters; detail: model, hash, step
WRAP = "wrap"  # a DDP constructor; detail: model, parameters, buffers, options
GROUP = "group"  # init_process_group, new_group, destroy_process_group; detail: action, name, ranks
SAVE = "save"  # torch.save; detail: path, buffers
SEED = "seed"  # torch.manual_seed; detail: seed
DRAWS = "draws"  # what was drawn between a batch and its forward; detail: model, forward, stream
LABELS = "labels"  # labels that the loss of a backward pass is the mean over; detail: model, backward, labels, weight
OUTSIDE = "outside"  # a hash of parameters other than a wrapper's in its optimizer, in no wrapper; detail: model, hash, step
GRADIENTS = "gradients"  # a hash of a wrapper's gradients before a step; detail: model, hash, step
OPTIMIZER = "optimizer"  # a hash of the optimizer's state of a wrapper's parameters; detail: model, hash, step
STATISTICS = "statistics"  # a hash of batch normalisation's running statistics in an evaluation; detail: model, hash, step
BUFFERS = "buffers"  # hashes of other buffers that an evaluation reads, or of those of a rank; detail: model, hashes, sent, step
FACTOR = "factor"  # what losses and reduced gradients were multiplied by for a step; detail: model, factors, ratio, step
PLACE = "place"  # the devices that a wrapper's parameters are on; detail: model, devices
LOADED = "loaded"  # load_state_dict with strict=False; detail: given, unexpected (numbers of keys)
READ = "read"  # torch.load; detail: path, devices (of its tensors)
CLIP = "clip"  # gradients were clipped; detail: cut (whether their norm was above the limit; None where that is not known)
UNSCALED = "unscaled"  # a GradScaler took its scale out of gradients; detail: scale (None where that is not known)
RECEIVED = "received"  # broadcast_object_list; detail: changed (whether what came is not what was held; None: not known)
UNFINISHED = "unfinished"  # a wait for an asynchronous collective that had not ended
SAMPLER = "sampler"  # DistributedSampler.set_epoch; detail: epoch
SAMPLES = "samples"  # hashes of samples of an epoch that a DistributedSampler shares out; detail: epoch, samples
MADE = "made"  # an optimizer's constructor; detail: optimizer, settings
SCHEDULER = "scheduler"  # steps of a scheduler so far; detail: scheduler, optimizer, steps, optimizer_steps, library
RESTORED = "restored"  # torch.set_rng_state; detail: state, before (hashes), own: it was read in this process
ORDER = "order"  # a fingerprint of the first batches of an epoch that a loader shuffles; detail: batches, order
DEVICE = "device"  # torch.cuda.set_device; detail: index
EXCEPTION = "exception"  # an exception that left the script; detail: type, text
START = "start"  # the rank's tracer began; detail: rank, world_size, pid, host
STACK = "stack"  # where the main thread stands, asked for when some rank waits too long; detail: request
WAIT = "wait"  # the wait for an asynchronous collective; detail: work (the number that the collective's own detail has)
EXIT = "exit"  # the interpreter left in order; detail: code

# Origins of a collective: what made it.
USER = "user"
DDP_CONSTRUCTOR = "ddp-constructor"
DDP_BUFFERS = "ddp-buffers"
DDP_BUCKET = "ddp-bucket"
DDP_REBUILD = "ddp-rebuild"
DDP_UNUSED_MAP = "ddp-unused-map"
DDP_JOIN = "ddp-join"
SYNC_BATCHNORM = "sync-batchnorm"
OBJECT = "object"
ORIGINS = {
    USER: "user call",
    DDP_CONSTRUCTOR: "DDP constructor",
    DDP_BUFFERS: "DDP buffer broadcast",
    DDP_BUCKET: "DDP bucket all-reduce",
    DDP_REBUILD: "DDP bucket rebuild",
    DDP_UNUSED_MAP: "DDP unused-parameter map",
    DDP_JOIN: "DDP join",
    SYNC_BATCHNORM: "SyncBatchNorm",
    OBJECT: "object collective",
}

# Operations, named as torch.distributed names its functions.
POINT_TO_POINT = frozenset({"send", "recv"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})

DEFAULT_GROUP = "default"

ASYNC: Mapping[str, Any] = MappingProxyType({"async": True})  # detail of a collective for which nobody waits


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's source. `path` is relative to the working directory with forward slashes where it can be."""

    path: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return place_of(self.path, self.line)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that one rank did or will do.

    `index` counts the collectives of one group from 0 (None for point to point and for other kinds). `numel` is the number
    of elements of the tensor that this rank brings; `dtype` is torch's name without `torch.`; `root` is a global rank;
    `reduce_op` is torch's name in lower case (`sum`, `max`). `site` is the user's line, `stack` the user's frames, innermost
    first. `time` is seconds since the epoch, 0.0 for a prediction. `detail` holds what only one kind has (see above).
    """

    kind: str
    op: str = ""
    group: str = DEFAULT_GROUP
    index: int | None = None
    origin: str = USER
    numel: int | None = None
    dtype: str | None = None
    root: int | None = None
    reduce_op: str | None = None
    site: Site | None = None
    stack: tuple[Site, ...] = ()
    time: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def toward(self) -> str:
        """The other rank of a message, ` to rank 1` or ` from any rank`; empty for all else and where it is not known."""
        if self.op not in POINT_TO_POINT or "peer" not in self.detail:
            return ""
        peer = self.detail["peer"]
        return f" {'to' if self.op == 'send' else 'from'} {'any rank' if peer is None else f'rank {peer}'}"

    @property
    def what(self) -> str:
        """The event in a few words: `broadcast of 64 float32 (DDP buffer broadcast)`."""
        if self.kind != COLLECTIVE:
            return self.kind
        size = "" if self.numel is None else f" of {self.numel:,} {self.dtype or 'elements'}"
        if self.op in ("barrier", "monitored_barrier"):
            size = ""
        return f"{self.op}{size}{self.toward} ({self.maker})"

    @property
    def maker(self) -> str:
        """What made a collective, in few words: `user call`, `DDP constructor`, or `by accelerate` for a library's own."""
        library = self.detail.get("library") if self.origin == USER else None
        return f"by {library}" if library else ORIGINS.get(self.origin, self.origin)
