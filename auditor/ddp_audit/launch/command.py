"""Reads one launch command: its launcher, the processes that it starts, the script and the script's own arguments.

The launchers' options are those of their own parsers: `torch.distributed.run.get_args_parser` (torch 2.13),
`accelerate.commands.launch`, `deepspeed.launcher.runner`, srun(1) and mpirun(1). Nothing is run and no variable is expanded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ddp_audit.launch import launchers
from ddp_audit.launch.model import PYTHON, TORCH_LAUNCH, TORCH_RUN, WORLD_SIZE, Launch, LaunchError
from ddp_audit.launch.words import segments, split_words
from ddp_audit.lazy_regex import lazy_compile

_ASSIGNMENT = lazy_compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = lazy_compile(r"python(\d+(\.\d+)*)?(\.exe)?$|\$\{?PYTHON\w*\}?$")

# Commands that run another command; each with the options of its own that take a value in the next word.
_WRAPPERS: dict[str, set[str]] = {
    "env": {"-u", "-C"},
    "nohup": set(),
    "time": set(),
    "exec": set(),
    "sudo": {"-u", "-g"},
    "stdbuf": set(),
    "setsid": set(),
    "nice": {"-n"},
    "numactl": set(),
    "coverage": set(),
    "uv": {"--with", "--extra", "--group", "-p", "--python"},
    "poetry": set(),
    "pipenv": set(),
    "pixi": {"-e", "--environment"},
    "conda": {"-n", "-p", "--name", "--prefix"},
    "mamba": {"-n", "-p", "--name", "--prefix"},
    "micromamba": {"-n", "-p"},
    "singularity": {"-B", "--bind"},
    "apptainer": {"-B", "--bind"},
}
_WRAPPER_VERBS = {"run", "exec"}
_SHELLS = {"bash", "sh", "zsh"}


def read_command(command: str | Sequence[str], path: str | None = None, line: int | None = None) -> Launch:
    """Reads a command as a shell would hand it over.

    `command` is a line of shell (continuations, comments, redirections, `a && b` and prompts are understood) or a list of
    words.
    `path` and `line` say where it stood. Raises `LaunchError` where no launcher starts a script in it.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    words = split_words(command) if isinstance(command, str) else list(command)
    if not words:
        raise LaunchError("the launch command is empty")
    env: dict[str, str] = {}
    first_error: LaunchError | None = None
    best: Launch | None = None
    for segment in segments(words):
        if segment[0] == "export":
            env.update(_assignments(segment[1:]))
            continue
        try:
            launch = _read_segment(segment, env)
        except LaunchError as error:
            first_error = first_error or error
            continue
        if best is None or (best.kind == PYTHON and launch.kind != PYTHON):
            best = launch
    if best is None:
        raise first_error or LaunchError(f"no launch command in {_short(text)}")
    one_line = " ".join(re.sub(r"\\\s*\n", " ", text).split())
    return replace(best, text=one_line, path=path, line=line, end_line=line, column=None if line is None else 1)


def world_launch(world_size: int) -> Launch:
    """The launch of `--world-size N`: N processes, on one node as far as is known. Raises `LaunchError` below 1."""
    if world_size < 1:
        raise LaunchError(f"a world size of {world_size} is not possible: it starts at 1")
    return Launch(
        WORLD_SIZE, nnodes="unstated", nproc_per_node="unstated", world_size=world_size, text=f"--world-size {world_size}"
    )


def _assignments(words: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if _ASSIGNMENT.match(word))


def _read_segment(words: Sequence[str], exported: dict[str, str]) -> Launch:
    env = dict(exported)
    rest = list(words)
    while rest:
        name = PurePosixPath(rest[0]).name
        if _ASSIGNMENT.match(rest[0]):
            env.update(_assignments(rest[:1]))
            rest = rest[1:]
        elif name in _WRAPPERS:
            rest = _unwrap(rest, _WRAPPERS[name])
        else:
            break
    if not rest:
        raise LaunchError(f"no launch command in {_short(shlex.join(words))}")
    launch = _read_launcher(rest, env)
    return _with_devices(replace(launch, env={**env, **launch.env}))


def _with_devices(launch: Launch) -> Launch:
    """The launch with the number of GPUs that CUDA_VISIBLE_DEVICES leaves to each node."""
    visible = launch.env.get("CUDA_VISIBLE_DEVICES", "")
    if not re.fullmatch(r"\d+(,\d+)*", visible) or launch.given_gpus is not None:
        return launch
    return replace(launch, given_gpus=len(visible.split(",")), gpus_from=f"CUDA_VISIBLE_DEVICES={visible}")


def _from_environment(words: list[str], env: Mapping[str, str]) -> list[str]:
    """torchrun's words with the options that PET_ variables give; an option that is typed goes before its variable."""
    found = [f"--{name[4:].lower().replace('_', '-')}={value}" for name, value in env.items() if name.startswith("PET_")]
    return [*found, *words]


def _unwrap(words: list[str], with_value: set[str]) -> list[str]:
    """The command that a wrapper such as `uv run` or `conda run -n env` runs."""
    at = 1
    if at < len(words) and words[at] in _WRAPPER_VERBS:
        at += 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in with_value else 1
    return words[at:]


def _read_launcher(words: list[str], env: Mapping[str, str]) -> Launch:
    name = PurePosixPath(words[0]).name
    if name == "torchrun":
        words = [words[0], *_from_environment(words[1:], env)]
    if name in launchers.BY_NAME:
        return launchers.BY_NAME[name](words[1:], _inner)
    if name == "accelerate" and len(words) > 1:
        if words[1] != "launch":
            raise LaunchError(f"accelerate {words[1]} starts no training; accelerate launch does")
        return launchers.read_accelerate(words[2:], _inner)
    if name in ("lightning", "fabric") and words[1:2] == ["run"]:
        return launchers.read_lightning(words[3:] if words[2:3] == ["model"] else words[2:], _inner)
    if _PYTHON.match(name):
        return _read_python(words[1:], env)
    if name in _SHELLS and len(words) > 2 and re.fullmatch(r"-[a-z]*c", words[1]):
        return read_command(words[2])
    if words[0].endswith(".py"):
        return Launch(PYTHON, 1, 1, 1, script=words[0], script_args=tuple(words[1:]))
    known = "torchrun, accelerate launch, deepspeed, srun, mpirun, python"
    raise LaunchError(f"{_short(words[0])} is not a known launcher ({known})")


def _inner(words: Sequence[str]) -> Launch:
    """The command that srun or mpirun starts in each task."""
    return _read_segment(words, {})


# Options of the interpreter with a value in the next word.
_PYTHON_VALUES = {"-W", "-X", "--check-hash-based-pycs"}


def _read_python(words: list[str], env: Mapping[str, str]) -> Launch:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-c" or words[at] == "-":
            raise LaunchError("a python command without a script file says nothing about a launch")
        if words[at] == "-m":
            if at + 1 == len(words):
                raise LaunchError("python -m names no module")
            return _read_module(words[at + 1], words[at + 2 :], env)
        at += 2 if words[at] in _PYTHON_VALUES else 1
    if at == len(words):
        raise LaunchError("the launch command names no script")
    return Launch(PYTHON, 1, 1, 1, script=words[at], script_args=tuple(words[at + 1 :]))


def _read_module(module: str, rest: list[str], env: Mapping[str, str]) -> Launch:
    if module in ("torch.distributed.run", "torch.distributed.launch"):
        return launchers.read_torchrun(_from_environment(rest, env), _inner, TORCH_RUN if module.endswith("run") else TORCH_LAUNCH)
    if module in ("accelerate.commands.launch", "accelerate.launch"):
        return launchers.read_accelerate(rest, _inner)
    if module == "deepspeed.launcher.runner":
        return launchers.read_deepspeed(rest, _inner)
    return Launch(PYTHON, 1, 1, 1, script=module, is_module=True, script_args=tuple(rest))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
