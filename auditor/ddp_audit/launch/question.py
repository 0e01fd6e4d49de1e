"""A script read for `ddp-audit batch`: its launches, and its update under any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_audit.entries import documented_of, launch_overrides, spawned_launches
from ddp_audit.launch.model import PYTHON, SPAWN, Launch
from ddp_audit.launch.overrides import Override
from ddp_audit.launch.scaling import Job, starts
from ddp_audit.launch.update import Update, update_of
from ddp_audit.program import Program, lower
from ddp_audit.source.files import SourceError, SourceFile
from ddp_audit.source.project import Project


@dataclass(slots=True)
class Script:
    """One script with the settings of the question, lowered again for each launch that sets values of its own."""

    project: Project
    entry: SourceFile
    explicit: Mapping[str, Override] = field(default_factory=dict)

    def program(self, launch: Launch | None) -> Program:
        """The program under a launch: its arguments and config files set values, and `explicit` ones after them."""
        size = None if launch is None else launch.world_size
        overrides = {**launch_overrides(launch, self.entry), **self.explicit}
        return lower(self.project, self.entry, overrides=overrides, world_size=size)

    def update(self, launch: Launch) -> tuple[Program, Update | None]:
        """The program under a launch and what one update of it is made of."""
        program = self.program(launch)
        return program, update_of(Job(program, launch))

    def as_started(self, launch: Launch) -> Launch:
        """The launch with the processes that the script starts itself, where a plain python command starts it."""
        spawned = spawned_launches(self.program(launch)) if launch.kind == PYTHON else []
        if len(spawned) != 1 or spawned[0].world_size is None:
            return launch
        one = spawned[0]
        return replace(launch, nnodes=one.nnodes, nproc_per_node=one.nproc_per_node, world_size=one.world_size, origins=one.origins)

    def launches(self) -> list[Launch]:
        """The documented launches of this script that start several processes, or an open number of them."""
        found, _ = documented_of(self.project, self.entry, self.program(None))
        own = [one for one in found if starts(one, self.entry.path)]
        return [one for one in own if one.kind not in (PYTHON, SPAWN) or (one.kind == SPAWN and one.world_size != 1)]


def read_script(path: str, explicit: Mapping[str, Override]) -> Script:
    """A script that a question is about. Raises SourceError."""
    if Path(path).is_dir():
        raise SourceError(path, None, "is a directory, and a script is needed")
    project = Project([path])
    if project.errors or not project.entries:
        raise project.errors[0] if project.errors else SourceError(path, None, "cannot be read")
    return Script(project, project.entries[0], explicit)
