"""The program as a tree: the kinds of nodes, the conditions and loops around them, and what holds them.

`Program.of` gives the nodes of a kind in the order of execution.
"""

from __future__ import annotations

from ddp_audit.program.guards import Guard, Loop, NoSync
from ddp_audit.program.model import Branch, BufferSite, BufferWrite, CallItem, Caught, Inside, Item, LoopItem, Program, TryItem
from ddp_audit.program.nodes import *  # noqa: F403  the kinds of nodes, all of them
from ddp_audit.program.nodes import __all__ as _kinds

__all__ = [
    "Branch", "BufferSite", "BufferWrite", "CallItem", "Caught", "Guard", "Inside", "Item", "Loop", "LoopItem", "NoSync", "Program",
    "TryItem",
]  # fmt: skip
__all__ += _kinds
