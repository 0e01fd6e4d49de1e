"""Nodes of files: what is saved, loaded, written and looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import CallNode, Node
from ddp_audit.program.values import Value


class FileTouch(CallNode):
    """A file or folder is touched; args: path, and what goes into it."""

    @property
    def touch(self) -> str:
        """What is done to it, in one word."""
        return self.kind


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Save(FileTouch):
    """`torch.save`; args: obj, path."""

    kind: ClassVar[str] = "save"
    content: Sequence[str] | None = None  # keys of a dict that is saved


class Load(FileTouch):
    """`torch.load`; args: path, map_location."""

    kind: ClassVar[str] = "load"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class FileAccess(FileTouch):
    """Any other call that touches a file or folder; args: path, content."""

    kind: ClassVar[str] = "file"
    what: str  # write, append, output, read, mkdir, ..
    safe: bool  # it is meant for several processes
    name: str  # of the function

    @property
    def touch(self) -> str:
        """What is done, as `what` says."""
        return self.what


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class FileContent(Node):
    """Something is written to an open file; the target is the file."""

    kind: ClassVar[str] = "file-content"
    content: Value | None = None
