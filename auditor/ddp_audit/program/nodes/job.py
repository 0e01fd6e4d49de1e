"""Nodes of the job around the training: processes that are started, the command line, the environment, long work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import Node
from ddp_audit.program.values import Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Spawn(Node):
    """`mp.spawn(f, ..)` or `Process(target=f)`; nodes in f carry the place in `calls`."""

    kind: ClassVar[str] = "spawn"
    nprocs: Value | None = None  # None for one process of its own


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class LocalRankOption(Node):
    """An argparse option for the local rank."""

    kind: ClassVar[str] = "local-rank-argument"
    default: Value
    name: str
    flags: Sequence[str]  # its spellings


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class ParseArguments(Node):
    """`parser.parse_args()` of the command line."""

    kind: ClassVar[str] = "parse-args"
    strict: bool  # an option that it does not know ends the program
    flags: Sequence[str]  # the options that it knows


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class EnvironmentSet(Node):
    """`os.environ[name] = value`."""

    kind: ClassVar[str] = "environ"
    name: str
    value: Value


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class LongWork(Node):
    """A call that may take minutes and that not all ranks make."""

    kind: ClassVar[str] = "long-work"
    what: str
    seconds: float | None  # None where it is not said
    first: bool  # under a context that lets the main process go first


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class UnfollowedCall(Node):
    """A call that the auditor could not follow."""

    kind: ClassVar[str] = "call"
    name: str

    @property
    def called(self) -> str:
        """What it is called, as a collective is by its operation."""
        return self.name
