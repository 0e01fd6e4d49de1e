"""The option tables of the launchers, and how each says the number of its processes.

Options are kept under their dashed names: both `--nproc_per_node` and `--nproc-per-node` are found under `nproc-per-node`, as
the launchers themselves take both. An option that no table knows is taken to have a value in the next word unless that word is
an option or a Python file; so a newer launcher does not hide the script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddp_audit.launch.model import (
    ACCELERATE,
    DEEPSPEED,
    LIGHTNING,
    MPIRUN,
    PYTHON,
    SRUN,
    TORCH_LAUNCH,
    TORCHRUN,
    Launch,
    LaunchError,
)
from ddp_audit.launch.shell import gpus_in
from ddp_audit.lazy_regex import lazy_compile

Inner = Callable[[Sequence[str]], Launch]
UNSTATED = "unstated"

# Words that torch.distributed.run takes for the number of processes a node (determine_local_world_size, torch 2.13).
_DEVICE_WORDS = {"gpu", "cpu", "auto", "xpu"}

# A whole word that the shell replaces: `$ARGS`, `${ARGS}`, `${ARGS[@]}`.
_VARIABLE = lazy_compile(r"\$\w+|\$\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class Options:
    """The options that have no value, those that have one (short names lead to long ones), and those with two."""

    flags: frozenset[str]
    values: frozenset[str]
    short: dict[str, str] = field(default_factory=dict)
    pairs: frozenset[str] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TORCHRUN = Options(
    flags=_names("standalone module no-python run-path use-env virtual-local-rank help"),
    values=_names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method"
        " event-log-handler role log-dir redirects tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters"
        " node-rank master-addr master-port local-addr logs-specs numa-binding signals-to-handle shutdown-timeout"
    ),
    short={"m": "module", "r": "redirects", "t": "tee", "h": "help"},
)

_ACCELERATE = Options(
    flags=_names(
        "quiet cpu multi-gpu tpu ipex use-deepspeed use-fsdp use-megatron-lm use-xpu use-parallelism-config same-network"
        " enable-cpu-affinity dynamo-use-fullgraph dynamo-use-dynamic dynamo-use-regional-compilation module no-python"
        " tpu-cluster no-tpu-cluster tpu-use-sudo downcast-bf16 debug use-mps-device help"
    ),
    values=_names(
        "config-file mixed-precision num-processes num-machines num-cpu-threads-per-process dynamo-backend dynamo-mode gpu-ids"
        " machine-rank main-process-ip main-process-port tee log-dir role rdzv-backend rdzv-conf max-restarts monitor-interval"
        " vm env main-training-function deepspeed-config-file zero-stage gradient-accumulation-steps gradient-clipping"
        " deepspeed-hostfile deepspeed-multinode-launcher offload-optimizer-device offload-param-device"
    ),
    short={"m": "module", "q": "quiet", "t": "tee", "h": "help"},
)

_DEEPSPEED = Options(
    flags=_names(
        "module no-python no-local-rank no-ssh-check no-ssh force-multi save-pid elastic-training bind-cores-to-rank help"
    ),
    values=_names(
        "hostfile include exclude num-nodes num-gpus num-accelerators min-elastic-nodes max-elastic-nodes master-port"
        " master-addr node-rank launcher launcher-args enable-each-rank-log autotuning bind-core-list venv-script"
    ),
    short={"H": "hostfile", "i": "include", "e": "exclude", "h": "help"},
)

_LIGHTNING = Options(
    flags=_names("help"),
    values=_names("accelerator strategy devices num-nodes node-rank main-address main-port precision"),
)

_SRUN = Options(
    flags=_names(
        "label unbuffered pty exclusive overcommit overlap verbose quiet no-kill contiguous multi-prog disable-status help"
        " wait-for-children"
    ),
    values=_names(
        "nodes ntasks ntasks-per-node gpus gpus-per-node gpus-per-task gres cpus-per-task partition account time job-name"
        " output error chdir nodelist exclude qos constraint mem mem-per-cpu mpi cpu-bind export container-image"
        " container-mounts kill-on-bad-exit jobid reservation input"
    ),
    short={
        **{"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "p": "partition", "A": "account", "t": "time"},
        **{"J": "job-name", "o": "output", "e": "error", "D": "chdir", "w": "nodelist", "x": "exclude", "q": "qos"},
        **{"C": "constraint", "l": "label", "u": "unbuffered", "v": "verbose", "Q": "quiet", "K": "no-kill", "k": "no-kill"},
        **{"s": "overcommit", "O": "overcommit", "i": "input"},
    },
)

_MPIRUN = Options(
    flags=_names("allow-run-as-root oversubscribe tag-output report-bindings verbose v bind-to-core bynode start-timeout-off help"),
    values=_names(
        "np host hosts hostfile machinefile map-by bind-to rank-by x npernode ppn perhost N env genvlist wdir display"
        " output-filename network-interface start-timeout"
    ),
    short={"n": "np", "c": "np", "H": "host", "f": "hostfile", "x": "x", "N": "npernode", "p": "ssh-port"},
    pairs=_names("mca gmca genv"),
)


@dataclass(slots=True)
class _Read:
    """The options of a launcher by name, in order of appearance where repeated, and what follows them."""

    given: dict[str, list[str]]
    rest: list[str]
    hidden: str | None = None  # a variable that stands where options do, as in `torchrun $ARGS train.py`
    spelled: dict[str, str] = field(default_factory=dict)  # each option as it was typed last

    def last(self, name: str) -> str | None:
        values = self.given.get(name)
        return values[-1] if values else None

    def origins(self, launcher: str, **options: str) -> dict[str, str]:
        """Where each field came from: the option as it was typed, or the launcher's default. Options by the field's name."""
        found: dict[str, str] = {}
        for name, candidates in options.items():
            typed = [self.spelled[option] for option in candidates.split() if option in self.spelled]
            found[name] = typed[0] if typed else f"in {self.hidden}" if self.hidden else f"default of {launcher}"
        return found


def _read_options(words: Sequence[str], table: Options) -> _Read:
    """Reads options up to the first word that is none: the script, or the command of a wrapping launcher."""
    given: dict[str, list[str]] = {}
    hidden: str | None = None
    spelled: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if _VARIABLE.fullmatch(word) and any(later.endswith(".py") or later == "-m" for later in words[at + 1 :]):
            hidden = hidden or word
            at += 1
            continue
        if not word.startswith("-") or word == "-":
            break
        name, value, used = _read_option(words, at, table)
        given.setdefault(name, []).append(value)
        spelled[name] = " ".join(words[at : at + used])
        at += used
    return _Read(given, list(words[at:]), hidden, spelled)


def _read_option(words: Sequence[str], at: int, table: Options) -> tuple[str, str, int]:
    """The option at `at`: its name, its value (empty for a flag) and the number of words it takes."""
    word = words[at]
    body, equals, value = word.partition("=")
    dashes = len(body) - len(body.lstrip("-"))
    name = body.lstrip("-")
    attached = table.short.get(name[:1])  # -N2; but -np is a long name of mpirun
    if dashes == 1 and name not in table.short and attached in table.values and not _long_name(name, table):
        return attached, name[1:] + equals + value, 1
    name = table.short.get(name, name) if dashes == 1 else name
    name = _long_name(name, table) or name.replace("_", "-")
    if equals:
        return name, value, 1
    if name in table.pairs:
        return name, " ".join(words[at + 1 : at + 3]), 3
    if name in table.flags:
        return name, "", 1
    following = words[at + 1] if at + 1 < len(words) else None
    if name in table.values:
        if following is None:
            raise LaunchError(f"{word} has no value")
        return name, following, 2
    if following is None or following.startswith("-") or following.endswith(".py"):
        return name, "", 1
    return name, following, 2


def _long_name(name: str, table: Options) -> str | None:
    """The option that a long name or its unambiguous beginning stands for, None where it stands for none."""
    name = name.replace("_", "-")
    known = table.flags | table.values | table.pairs
    if name in known:
        return name
    matches = [candidate for candidate in known if candidate.startswith(name)] if len(name) > 3 else []
    return matches[0] if len(matches) == 1 else None


def _number(text: str | None, default: int, option: str, *, words: set[str] | frozenset[str] = frozenset()) -> int | str:
    """A count of at least 1, or the text of a variable, a placeholder or one of `words`."""
    if text is None:
        return default
    if re.fullmatch(r"[+-]?\d+", text):
        if int(text) < 1:
            raise LaunchError(f"{option} is {text}: it starts at 1")
        return int(text)
    if text in words or _is_placeholder(text):
        return text
    raise LaunchError(f"{option} is {text!r}: no number" + (f", and none of {', '.join(sorted(words))}" if words else ""))


def _is_placeholder(text: str) -> bool:
    """`$N`, `${N:-8}`, `$(nproc)`, `<gpus>`, `{n}`, `[n]`, `N`, `NUM_GPUS`, `%d`: to be filled in by someone."""
    return bool(re.search(r"[$`<{\[%]", text) or re.fullmatch(r"[A-Z][A-Z0-9_]*", text))


def _nodes(text: str | None) -> int | str:
    """`--nnodes`: a count, or a range `1:4` that stays as it is. `2:2` is 2 (parse_min_max_nnodes, torch 2.13)."""
    parts = text.split(":") if text else []
    if len(parts) == 2 and all(part.isdigit() for part in parts) and text is not None:
        low, high = int(parts[0]), int(parts[1])
        if low < 1 or high < low:
            raise LaunchError(f"--nnodes is {text}: a range runs from at least 1 to no less than its start")
        return low if low == high else text
    return _number(text, 1, "--nnodes")


def _integer(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


def _product(nnodes: int | str, nproc: int | str) -> int | None:
    return nnodes * nproc if isinstance(nnodes, int) and isinstance(nproc, int) else None


def _script(read: _Read, launcher: str) -> tuple[str, bool, tuple[str, ...]]:
    if not read.rest or not read.rest[0].strip():
        raise LaunchError(f"the {launcher} command names no script")
    return read.rest[0], "module" in read.given, tuple(read.rest[1:])


def read_torchrun(words: Sequence[str], inner: Inner, kind: str = TORCHRUN) -> Launch:
    """torchrun, `python -m torch.distributed.run` and `.launch`: `--nnodes` times `--nproc-per-node`, both 1 by default."""
    read = _read_options(words, _TORCHRUN)
    script, is_module, args = _script(read, kind)
    nnodes = _nodes(read.last("nnodes") or read.hidden)
    nproc = _number(read.last("nproc-per-node") or read.hidden, 1, "--nproc-per-node", words=_DEVICE_WORDS)
    address, port = read.last("master-addr"), _integer(read.last("master-port"))
    if (endpoint := read.last("rdzv-endpoint")) and address is None:
        address, _, text = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
        port = _integer(text) if text else port
    rank = _integer(read.last("node-rank"))
    origins = read.origins(
        kind, nnodes="nnodes", nproc_per_node="nproc-per-node", node_rank="node-rank", master_addr="master-addr rdzv-endpoint",
        master_port="master-port rdzv-endpoint",
    )  # fmt: skip
    return Launch(
        kind, nnodes, nproc, _product(nnodes, nproc), rank, address, port, script, is_module, args,
        nnodes_stated="nnodes" in read.given, origins=origins, rdzv_backend=read.last("rdzv-backend"), rdzv_id=read.last("rdzv-id"),
        standalone="standalone" in read.given, passes_local_rank=kind == TORCH_LAUNCH and "use-env" not in read.given,
    )  # fmt: skip


def read_accelerate(words: Sequence[str], inner: Inner) -> Launch:
    """`accelerate launch`: `--num_processes` is the total over all machines; without it a config file decides."""
    read = _read_options(words, _ACCELERATE)
    script, is_module, args = _script(read, ACCELERATE)
    machines = _number(read.last("num-machines") or read.hidden, 1, "--num_machines")
    total = _number(read.last("num-processes"), 1, "--num_processes") if "num-processes" in read.given else UNSTATED
    nproc: int | str = total
    if isinstance(total, int) and isinstance(machines, int):
        if total < machines:
            raise LaunchError(f"--num_processes {total} is the total of all machines and is less than their number, {machines}")
        nproc = total // machines  # as accelerate.utils.launch.prepare_multi_gpu_env does
    origins = read.origins(
        "accelerate", nnodes="num-machines", nproc_per_node="num-processes", node_rank="machine-rank",
        master_addr="main-process-ip", master_port="main-process-port",
    )  # fmt: skip
    if "num-processes" not in read.given:
        origins["nproc_per_node"] = "accelerate's own configuration"
    gpu_ids = read.last("gpu-ids")
    counted = gpu_ids is not None and bool(re.fullmatch(r"\d+(,\d+)*", gpu_ids))
    return Launch(
        ACCELERATE, machines, nproc, _product(machines, nproc), _integer(read.last("machine-rank")),
        read.last("main-process-ip"), _integer(read.last("main-process-port")), script, is_module, args,
        nnodes_stated="num-machines" in read.given, origins=origins, config_file=read.last("config-file"),
        given_gpus=len((gpu_ids or "").split(",")) if counted else None,
        gpus_from=read.spelled.get("gpu-ids", "") if counted else "",
    )  # fmt: skip


def read_deepspeed(words: Sequence[str], inner: Inner) -> Launch:
    """`deepspeed`: `--num_gpus` a node times `--num_nodes`, or the slots of `--include`; all that there are by default."""
    read = _read_options(words, _DEEPSPEED)
    script, is_module, args = _script(read, DEEPSPEED)
    gpus = read.last("num-gpus") or read.last("num-accelerators")
    nproc = _number(gpus, 1, "--num_gpus") if gpus not in (None, "-1") else read.hidden or UNSTATED
    one_host = not read.given.keys() & {"hostfile", "num-nodes", "include"}
    nodes_text = read.last("num-nodes")
    nnodes = _nodes(nodes_text) if nodes_text else (1 if one_host and not read.hidden else UNSTATED)
    world = _product(nnodes, nproc)
    if include := read.last("include"):
        slots = [host.partition(":")[2] for host in include.split("@")]
        if all(slots):
            counts = [len(host.split(",")) for host in slots]
            nnodes, world = len(counts), sum(counts)
            nproc = counts[0] if len(set(counts)) == 1 else UNSTATED
    origins = read.origins(
        DEEPSPEED, nnodes="include num-nodes hostfile", nproc_per_node="include num-gpus num-accelerators", node_rank="node-rank",
        master_addr="master-addr", master_port="master-port",
    )  # fmt: skip
    return Launch(
        DEEPSPEED, nnodes, nproc, world, _integer(read.last("node-rank")), read.last("master-addr"),
        _integer(read.last("master-port")), script, is_module, args, nnodes_stated="num-nodes" in read.given or bool(include),
        origins=origins, passes_local_rank="no-local-rank" not in read.given,
    )  # fmt: skip


def read_lightning(words: Sequence[str], inner: Inner) -> Launch:
    """`lightning run model` and `fabric run`: `--devices` a node times `--num-nodes`, both 1 by default."""
    read = _read_options(words, _LIGHTNING)
    script, is_module, args = _script(read, LIGHTNING)
    nnodes = _number(read.last("num-nodes") or read.hidden, 1, "--num-nodes")
    given = read.last("devices") or read.hidden
    listed = given is not None and bool(re.fullmatch(r"\d+(,\d+)+,?", given))
    nproc: int | str = UNSTATED if given == "-1" else _number(given, 1, "--devices", words=_DEVICE_WORDS) if not listed else 0
    if listed and given is not None:
        nproc = len(given.strip(",").split(","))
    origins = read.origins(
        LIGHTNING, nnodes="num-nodes", nproc_per_node="devices", node_rank="node-rank", master_addr="main-address",
        master_port="main-port",
    )  # fmt: skip
    return Launch(
        LIGHTNING, nnodes, nproc, _product(nnodes, nproc), _integer(read.last("node-rank")), read.last("main-address"),
        _integer(read.last("main-port")), script, is_module, args, nnodes_stated="num-nodes" in read.given, origins=origins,
    )  # fmt: skip


def read_srun(words: Sequence[str], inner: Inner) -> Launch:
    """`srun`: one task runs a whole inner launcher, or each task is a rank. Numbers that only sbatch knows stay open."""
    read = _read_options(words, _SRUN)
    if not read.rest:
        raise LaunchError("the srun command names no script")
    launch = inner(read.rest)
    nodes_given = read.last("nodes")
    nodes: int | str = _number(nodes_given, 1, "--nodes") if nodes_given and "-" not in nodes_given else nodes_given or UNSTATED
    tasks = _number(read.last("ntasks"), 1, "--ntasks") if "ntasks" in read.given else UNSTATED
    per_node = _number(read.last("ntasks-per-node"), 1, "--ntasks-per-node") if "ntasks-per-node" in read.given else UNSTATED
    if isinstance(tasks, int):
        world: int | None = tasks
        if per_node == UNSTATED and isinstance(nodes, int) and tasks % nodes == 0:
            per_node = tasks // nodes
        elif nodes == UNSTATED and isinstance(per_node, int) and tasks % per_node == 0:
            nodes = tasks // per_node
    else:
        world = _product(nodes, per_node)
    if launch.kind != PYTHON:  # each task runs a launcher of its own
        each = per_node if isinstance(per_node, int) else None
        return replace(launch, through=SRUN, tasks=world, tasks_per_node=each, **_gpus_of(read))
    origins = read.origins("srun", nnodes="nodes", nproc_per_node="ntasks-per-node ntasks")
    return replace(
        launch, kind=SRUN, nnodes=nodes, nproc_per_node=per_node, world_size=world, nnodes_stated="nodes" in read.given,
        origins={**launch.origins, **origins}, **_gpus_of(read),
    )  # fmt: skip


def _gpus_of(read: _Read) -> dict[str, Any]:
    """The GPUs of a node that srun's own options ask for."""
    for name in ("gpus-per-node", "gres"):
        count = gpus_in(read.last(name))
        if count is not None:
            return {"given_gpus": count, "gpus_from": read.spelled[name]}
    return {}


def read_mpirun(words: Sequence[str], inner: Inner) -> Launch:
    """`mpirun`, `mpiexec`, `horovodrun`: `-np` is the total; `-H a:4,b:4` names the nodes; `-x NAME=VALUE` sets variables."""
    read = _read_options(words, _MPIRUN)
    if not read.rest:
        raise LaunchError("the mpirun command names no script")
    launch = inner(read.rest)
    env = dict(pair.split("=", 1) for pair in read.given.get("x", []) if "=" in pair)
    env.update({pair.split(" ", 1)[0]: pair.split(" ", 1)[1] for pair in read.given.get("genv", []) if " " in pair})
    total = _number(read.last("np"), 1, "-np") if "np" in read.given else UNSTATED
    if launch.kind != PYTHON:
        return replace(launch, env={**env, **launch.env}, through=MPIRUN, tasks=total if isinstance(total, int) else None)
    per_node: int | str = UNSTATED
    for name in ("npernode", "ppn", "perhost"):
        if name in read.given:
            per_node = _number(read.last(name), 1, f"-{name}")
    hosts = read.last("host") or read.last("hosts")
    nodes: int | str = len(hosts.split(",")) if hosts and not _is_placeholder(hosts) else UNSTATED
    world = total if isinstance(total, int) else _product(nodes, per_node)
    if hosts is None and "hostfile" not in read.given and "machinefile" not in read.given and per_node == UNSTATED:
        nodes, per_node = 1, total  # without a list of hosts, mpirun starts all of them here
    elif isinstance(total, int) and isinstance(nodes, int) and per_node == UNSTATED and total % nodes == 0:
        per_node = total // nodes
    elif isinstance(total, int) and isinstance(per_node, int) and nodes == UNSTATED and total % per_node == 0:
        nodes = total // per_node
    return replace(
        launch, kind=MPIRUN, nnodes=nodes, nproc_per_node=per_node, world_size=world, env={**env, **launch.env},
        nnodes_stated=isinstance(nodes, int) and hosts is not None,
        origins={
            **launch.origins,
            **read.origins("mpirun", nnodes="host hosts hostfile", nproc_per_node="npernode ppn perhost np"),
        },
    )  # fmt: skip


BY_NAME: dict[str, Callable[[Sequence[str], Inner], Launch]] = {
    "torchrun": read_torchrun,
    "deepspeed": read_deepspeed,
    "srun": read_srun,
    "mpirun": read_mpirun,
    "mpiexec": read_mpirun,
    "mpiexec.hydra": read_mpirun,
    "orterun": read_mpirun,
    "horovodrun": read_mpirun,
    "accelerate-launch": read_accelerate,
}
