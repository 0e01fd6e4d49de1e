"""FSDP2 (`torch.distributed.fsdp.fully_shard`), as far as needed to say what is different from DDP.

Nothing that this package says of a DDP wrapper holds for such a module. Sources: torch/distributed/fsdp/_fully_shard of torch
2.13, `_fsdp_param_group.py` (`post_backward`) for the flag and `_fully_shard.py` for the methods that set it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, Event


@dataclass(frozen=True, slots=True)
class Difference:
    """One question and both answers."""

    topic: str
    ddp: str
    fsdp2: str


DIFFERENCES = (
    Difference("where the synchronization flag is read", "in the forward", "in the backward"),
    Difference("how it is set", "no_sync(), which restores it", "set_requires_gradient_sync(), which stays"),
    Difference(
        "what a forward without gradients sends",
        "buffers, if the forward before was synchronized",
        "its parameters, unless they are gathered still",
    ),
    Difference("a forward on one rank alone", "hangs in some cases only", "hangs, unless its parameters are gathered still"),
    Difference("parameters at the wrap", "broadcast from rank 0", "each rank keeps its shard of its own"),
    Difference("buffers", "broadcast from rank 0", "never sent"),
    Difference("what a backward sends", "an all-reduce a bucket", "a reduce-scatter a group of parameters"),
    Difference("clip_grad_norm_ and state_dict", "send nothing", "full_tensor() and get_model_state_dict() are collective"),
)


class FullyShard:
    """One root module that `fully_shard` was called on, its parameters in one group of `numel` elements a rank (padded).

    A root keeps its parameters after a forward, so that neither its backward nor a further forward gathers any; the groups of
    other modules are gathered in every forward, and again in its backward.
    """

    def __init__(self, numel: int | None = None, dtype: str | None = "float32", world_size: int = 2) -> None:
        self.numel = numel
        self.dtype = dtype
        self.world_size = world_size
        self.requires_gradient_sync = True
        self._gathered = False

    def set_requires_gradient_sync(self, value: bool) -> None:
        """Sticky, and read when a backward ends."""
        self.requires_gradient_sync = value

    def forward(self, *, grad: bool = True) -> list[Event]:
        """An all-gather of the parameters, with or without gradients, unless they are still there from a forward before."""
        events = [] if self._gathered else [self._event("all_gather", self.numel)]
        self._gathered = True
        return events

    def backward(self) -> list[Event]:
        """A reduce-scatter of the gradients, if the flag says so NOW; then the parameters are sharded again."""
        self._gathered = False
        if not self.requires_gradient_sync:
            return []
        whole = None if self.numel is None else self.numel * self.world_size
        return [self._event("reduce_scatter", whole)]

    def _event(self, op: str, numel: int | None) -> Event:
        return Event(COLLECTIVE, op=op, group=DEFAULT_GROUP, numel=numel, dtype=self.dtype)
