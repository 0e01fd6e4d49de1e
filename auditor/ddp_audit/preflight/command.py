"""The launch command of a job, with the probe in place of its script."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ddp_audit.launch import Launch, LaunchError, named_launch, read_command
from ddp_audit.launch.model import PYTHON

BOOT = Path(__file__).resolve().parent / "boot"
PROBE = "ddp_audit_probe"


def read_launch(command: Sequence[str]) -> Launch:
    """What a command says, together with torchrun's variables (PET_NNODES, ..) of this environment. Raises LaunchError."""
    pet = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PET_")]
    launch = read_command([*pet, *command])
    world = os.environ.get("WORLD_SIZE", "")
    if launch.kind == PYTHON and "RANK" in os.environ and world.isdecimal() and int(world) > 1:
        # Something else starts a Python for each rank, and this is one of them.
        return replace(launch, nnodes="unstated", nproc_per_node="unstated", world_size=int(world))
    if launch.config_file is not None:  # accelerate's own
        import shlex

        launch = named_launch(shlex.join(command))
    return launch


def with_probe(command: Sequence[str], launch: Launch, settings: str) -> list[str]:
    """COMMAND with the probe and `settings`, one word, in place of the script.

    The script's arguments stay: the ranks compare them. Raises LaunchError where the script does not stand in COMMAND.
    """
    words, tail = list(command), list(launch.script_args)
    at = len(words) - len(tail) - 1
    if launch.script is None or at < 1 - _is_script(launch) or words[at] != launch.script or words[at + 1 :] != tail:
        raise LaunchError("the script does not stand in the command itself; give the launcher's own command after --")
    head = words[:at]
    if launch.is_module:
        return [*head, PROBE, settings, *tail]
    if _no_python(head, launch):
        head.append(sys.executable)
    return [*head, str(BOOT / f"{PROBE}.py"), settings, *tail]


def spawning(launch: Launch, settings: str) -> list[str]:
    """The command that starts as many probes as a script starts processes of its own."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(launch.world_size)]
    return [*start, str(BOOT / f"{PROBE}.py"), settings, *launch.script_args]


def wrapped_at(command: Sequence[str], launch: Launch) -> int | None:
    """Where the launcher stands that srun or mpirun starts on each node; None where it is not a word of the command."""
    for at in range(1, len(command)) if launch.through else ():
        try:
            inner = read_command(command[at:])
        except LaunchError:
            continue
        if not inner.through and (inner.kind, inner.script) == (launch.kind, launch.script):
            return at
    return None


def on_each_node(command: Sequence[str], at: int, options: Sequence[str]) -> list[str]:
    """The command with a preflight on each node in place of the launcher there, which then meets the others."""
    return [*command[:at], sys.executable, "-m", "ddp_audit", "preflight", *options, "--", *command[at:]]


def probe_environment() -> dict[str, str]:
    """The environment in which Python processes find the probe."""
    environment = dict(os.environ)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(BOOT) + (os.pathsep + before if before else "")
    return environment


def _is_script(launch: Launch) -> bool:
    """Whether the script may be the first word: `./train.py`."""
    return launch.kind == PYTHON and not launch.is_module


def _no_python(head: Sequence[str], launch: Launch) -> bool:
    """Whether no Python starts the script there: `torchrun --no-python`, or a script that runs by itself."""
    if any(word in ("--no-python", "--no_python") for word in head):
        return True
    if any(PurePosixPath(word).name.startswith("python") for word in head):
        return False
    return launch.kind in (PYTHON, "srun", "mpirun")
