"""The launch that a user names: a command, or a shell or batch script that holds one."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from ddp_audit.launch.command import read_command
from ddp_audit.launch.documents import documented_launches
from ddp_audit.launch.model import ACCELERATE, PYTHON, Launch, LaunchError
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source.reading import read_text

_SCRIPTED = lazy_compile(r"\s*(?:(?:sbatch|bash|sh|source|\.)\s+(?:-\S+\s+)*)?(\S+\.(?:sh|bash|slurm|sbatch|job))\b")


def named_launch(command: str) -> Launch:
    """Reads a command, or the one launch of the script that it runs: `sbatch job.slurm`. Raises `LaunchError`."""
    scripted = _SCRIPTED.match(command)
    if scripted is not None and Path(scripted.group(1)).is_file():
        return _of_file(scripted.group(1))
    launch = read_command(command)
    if launch.kind == ACCELERATE and launch.config_file is not None:
        from ddp_audit.launch.manifests import with_accelerate_config

        return with_accelerate_config(launch, [Path.cwd()])
    return launch


def _of_file(name: str) -> Launch:
    try:
        text = read_text(name)
    except (OSError, ValueError):
        raise LaunchError(f"{shlex.quote(name)} cannot be read") from None
    found = [one for one in documented_launches(text, name) if one.kind != PYTHON]
    if not found:
        raise LaunchError(f"no launch command in {name}")
    first = found[0]
    if any((one.world_size, one.script, one.script_args) != (first.world_size, first.script, first.script_args) for one in found):
        lines = ", ".join(str(one.line) for one in found)
        raise LaunchError(f"{name} holds several launches (lines {lines}); name one of their commands")
    return replace(first, path=None, line=None, end_line=None, column=None, prose=None)
