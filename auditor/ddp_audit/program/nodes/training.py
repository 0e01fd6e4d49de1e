"""Nodes of a training step: the wrapper, its passes, the optimizer, and what switches the reduction of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import CallNode, Node
from ddp_audit.program.nodes.communication import Traffic
from ddp_audit.program.values import Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Wrap(Traffic):
    """`DistributedDataParallel(..)` or its like; the target is the wrapper, args: module, device_ids and the others."""

    kind: ClassVar[str] = "wrap"
    style: str  # ddp, apex, fsdp

    @property
    def called(self) -> str:
        """The constructor, as reports name it."""
        return "DDP constructor"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Forward(CallNode):
    """A call of a wrapper, or of its inner module; the target is the wrapper, args the inputs by number or name."""

    kind: ClassVar[str] = "forward"
    through: str  # wrapper or module
    method: str = ""  # of the module, where one is called by its name
    part: str = ""  # the module inside of it that is called, where it is taken apart


class Backward(CallNode):
    """`loss.backward()`; the target is the loss, whose `deps` are forwards; args: engine, Accelerate's object that does it."""

    kind: ClassVar[str] = "backward"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Step(CallNode):
    """`optimizer.step()` or `scaler.step(optimizer)`; the target is the optimizer."""

    kind: ClassVar[str] = "step"
    scaler: bool = False  # a scaler does it


class ZeroGrad(Node):
    """`optimizer.zero_grad()`; the target is the optimizer or module."""

    kind: ClassVar[str] = "zero-grad"


class Unscale(Node):
    """`scaler.unscale_(optimizer)`; the target is the optimizer."""

    kind: ClassVar[str] = "unscale"


class Clip(Node):
    """Gradients are clipped; the target is what they belong to."""

    kind: ClassVar[str] = "clip"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class SyncFlag(Node):
    """`wrapper.require_backward_grad_sync = value`; the target is the wrapper."""

    kind: ClassVar[str] = "sync-flag"
    value: Value


class NoSyncBlock(Node):
    """A `no_sync()` block is entered; the nodes inside carry it in `no_sync`. The target is the wrapper."""

    kind: ClassVar[str] = "no-sync"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Scale(Node):
    """Gradients or a loss are scaled: `p.grad /= n`, `p.grad.mul_(x)`, `loss / world_size`; the target is what is scaled."""

    kind: ClassVar[str] = "scale"
    by: Value
    op: str  # / or *


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class OptimizerMade(Node):
    """An optimizer is made; the target is the optimizer."""

    kind: ClassVar[str] = "optimizer"
    params: Value | None = None
    lr: Value | None = None


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class SchedulerMade(CallNode):
    """A learning-rate scheduler is made; the target is the scheduler, args: T_max, total_steps and the others."""

    kind: ClassVar[str] = "scheduler"
    name: str  # of its class


class ScheduleStep(CallNode):
    """A scheduler is stepped; the target is the scheduler."""

    kind: ClassVar[str] = "schedule-step"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ScalerCall(CallNode):
    """`GradScaler(..)` or `scaler.update()`; the target is the scaler, args: init_scale, enabled and the others."""

    kind: ClassVar[str] = "scaler"
    what: str  # made, update


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ReportedValue(CallNode):
    """A value of local data is printed, logged, given to a scheduler, or compared with the best so far (`choice`)."""

    kind: ClassVar[str] = "report"
    what: str
