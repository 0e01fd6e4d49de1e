"""Nodes of a module other than its passes: what is changed in it, what its forward touches, and checkpoints of activations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from ddp_audit.program.nodes.base import CallNode, Node
from ddp_audit.program.values import Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class RequiresGrad(Node):
    """requires_grad of parameters is set; the target is their module or wrapper."""

    kind: ClassVar[str] = "requires-grad"
    value: Value
    part: bool  # only of some


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ModuleChange(Node):
    """A module or parameter is put into a wrapped module, or changed there; the target is its owner."""

    kind: ClassVar[str] = "change"
    what: str  # added, replaced, reparametrised, ..
    name: str
    value: Value | None = None
    old: Value | None = None


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Move(Node):
    """`.to(..)`, `.cuda()`, `.half()` and their like; the target is the module or wrapper."""

    kind: ClassVar[str] = "move"
    name: str
    where: Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ParameterWrite(Node):
    """Values of parameters are drawn again or written in place; the target is their module."""

    kind: ClassVar[str] = "write"
    what: str  # drawn, written


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class MissingAttribute(Node):
    """An attribute is read on a wrapper that no wrapper has; the target is the wrapper."""

    kind: ClassVar[str] = "attribute"
    name: str
    sure: bool  # there can be no other object


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ModuleUse(Node):
    """The forward of a wrapped model touches a module or parameter; only in a look inside the model."""

    kind: ClassVar[str] = "use"
    whole: bool  # with all that is inside it
    listed: bool  # as one of a ModuleList or its like


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Checkpoint(Node):
    """torch.utils.checkpoint runs a part of the forward; only in a look inside the model. The target is the function."""

    kind: ClassVar[str] = "checkpoint"
    use_reentrant: Value
    modules: Collection[tuple[Any, ...]]  # keys of those that it touches
    first: int  # number of the first node inside it


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class LoadState(CallNode):
    """`x.load_state_dict(state)`; the target is x, args: state, strict, assign."""

    kind: ClassVar[str] = "load-state"
    unused: bool = False  # nobody looks at the result


class RenamedKeys(Node):
    """A key of a dict is computed and set, or its prefix taken off; the target is the dict."""

    kind: ClassVar[str] = "renamed-keys"
