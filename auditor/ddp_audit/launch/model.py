"""What a launch command says: how many processes it starts where, and what it runs in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddp_audit.source.paths import place_of

# Launchers, as `Launch.kind` names them. `world-size` is not a command: the user gave the number of processes alone.
TORCHRUN = "torchrun"
TORCH_RUN = "torch.distributed.run"
TORCH_LAUNCH = "torch.distributed.launch"
ACCELERATE = "accelerate"
DEEPSPEED = "deepspeed"
LIGHTNING = "lightning run"
SRUN = "srun"
MPIRUN = "mpirun"
PYTHON = "python"
KUBERNETES = "PyTorchJob"  # a replica of a job is one process; where it runs a launcher, the launch is of that kind
SPAWN = "mp.spawn"  # the script starts its processes itself
WORLD_SIZE = "world-size"


class LaunchError(ValueError):
    """A command that is not a launch, or that its launcher would refuse. The message is one line for people."""


@dataclass(frozen=True, slots=True)
class ProseClaim:
    """What the sentence next to a command says about it: `gpus` and `nodes` as written, None where it names none."""

    gpus: int | None
    nodes: int | None
    line: int  # the line that holds the number, counted from 1
    text: str  # the sentence, on one line


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch command, read and not run.

    `nnodes` and `nproc_per_node` are numbers, or the text that stood there where it is not a number: `gpu`, `$N`, `1:4`, or
    `unstated` where the launcher would take it from a file or its surroundings. `world_size` is the number of processes that
    the whole job has, None where a part of it is open. A script of `is_module` is a dotted name.

    `path`, `line`, `end_line` and `column` say where the command was found, lines and columns from 1; all None for a command
    that the user gave. `origins` says where each number came from, under the name of its field: `--nnodes=2`, `default of
    torchrun`, `#SBATCH --nodes=2 (job.sh:3)`, `N=8 (run.sh:2)`.

    `tasks` is how many times a wrapping srun or mpirun starts the command, and `tasks_per_node` on each node. `config_file` is
    accelerate's own, `settings` what its other options say. `given_gpus` is the number of GPUs of a node that the surroundings
    give (CUDA_VISIBLE_DEVICES, SLURM, Kubernetes), with `gpus_from` saying which; so is `given_nodes`.
    """

    kind: str
    nnodes: int | str = 1
    nproc_per_node: int | str = 1
    world_size: int | None = None
    node_rank: int | str | None = None
    master_addr: str | None = None
    master_port: int | str | None = None
    script: str | None = None
    is_module: bool = False
    script_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    nnodes_stated: bool = False  # the command names the number of nodes; it is a default otherwise
    path: str | None = None
    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    prose: ProseClaim | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    rdzv_backend: str | None = None
    rdzv_id: str | None = None
    standalone: bool = False
    passes_local_rank: bool = False  # the launcher adds --local-rank (or --local_rank) to the script's arguments
    through: str = ""  # srun or mpirun, where that starts the launcher and not the script
    tasks: int | None = None
    tasks_per_node: int | None = None
    config_file: str | None = None
    given_gpus: int | None = None
    gpus_from: str = ""
    given_nodes: int | None = None
    nodes_from: str = ""
    folder: str = ""  # where a `cd` before the command leads, relative to the file's folder
    block: int = 0  # commands of one file that stand in one block of text share this number

    @property
    def named(self) -> bool:
        """The user gave it, on the command line or by tracing a command; it was not found in a file."""
        return self.path is None

    @property
    def symbolic(self) -> list[str]:
        """What the command leaves open, as `nproc_per_node=gpu`; empty where the world size is known."""
        if self.world_size is not None:
            return []
        parts = [("nnodes", self.nnodes), ("nproc_per_node", self.nproc_per_node)]
        return [f"{name}={value}" for name, value in parts if isinstance(value, str)] or ["the number of processes"]

    def describe_world(self) -> str:
        """How the world size comes about: `2 x 8 = 16 processes`, `4 processes`, or what is open about it."""
        if self.world_size is None:
            return "an open number of processes (" + ", ".join(self.symbolic) + ")"
        noun = "process" if self.world_size == 1 else "processes"
        if isinstance(self.nnodes, int) and isinstance(self.nproc_per_node, int) and self.nnodes > 1:
            return f"{self.nnodes} x {self.nproc_per_node} = {self.world_size} {noun}"
        return f"{self.world_size} {noun}"

    def origin(self, name: str) -> str:
        """Where a number came from, empty where that is not known."""
        return self.origins.get(name, "")

    def where(self) -> str:
        """`train.py:13`, or what the user typed it as."""
        if self.path is not None:
            return place_of(self.path, self.line or 1)
        if self.kind == PYTHON and self.world_size == 1:
            return "a run without a launcher"
        return f"--world-size {self.world_size}" if self.kind == WORLD_SIZE else "the named launch"
