"""Launches in YAML and JSON: containers of Kubernetes jobs and of docker-compose, editors' launch files, steps of workflows.

JSON with comments is read as the YAML that it nearly is, so both come with the lines of what was found.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from ddp_audit.launch.command import read_command
from ddp_audit.launch.documents import script_launches
from ddp_audit.launch.model import ACCELERATE, KUBERNETES, PYTHON, TORCH_LAUNCH, TORCH_RUN, TORCHRUN, Launch, LaunchError
from ddp_audit.launch.shell import Setting
from ddp_audit.source import dependency_log
from ddp_audit.source.reading import read_text

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BYTES = 500_000
_MOST_NODES = 10_000  # of a document
_DEEPEST = 50  # mappings within each other
_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu")
_TORCH = (TORCHRUN, TORCH_RUN, TORCH_LAUNCH)


def manifest_launches(text: str, path: str) -> list[Launch]:
    """The launches of a YAML or JSON file, in order; those of a file that does not parse as far as it does."""
    found: list[Launch] = []
    for number, root in enumerate(_documents(text, path), 1):
        found += [replace(launch, block=number) for launch in _launches_of(root, path)]
    return sorted(found, key=lambda one: one.line or 0)


def config_values(path: Path) -> dict[str, tuple[Any, int]]:
    """The leaves of a YAML or JSON file by dotted name, each with its line; empty where it cannot be read."""
    dependency_log.content(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        text = read_text(path, _MAX_BYTES)
    except (OSError, ValueError):
        return {}
    found: dict[str, tuple[Any, int]] = {}

    asked = itertools.count()

    def walk(node: yaml.Node, start: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if next(asked) >= _MOST_NODES:
                    return
                name = f"{start}{key.value}" if isinstance(key, yaml.ScalarNode) else ""
                if name and isinstance(value, yaml.MappingNode) and start.count(".") < _DEEPEST:
                    walk(value, f"{name}.")
                elif name:
                    found[name] = (_constructed(value), key.start_mark.line + 1)

    for root in _documents(text, str(path)):
        walk(root, "")
        break
    return found


def with_accelerate_config(launch: Launch, folders: list[Path]) -> Launch:
    """A launch by accelerate with what the config file that it names says, where the command does not."""
    if launch.kind != ACCELERATE or launch.config_file is None:
        return launch
    file = next((folder / launch.config_file for folder in folders if dependency_log.is_file(folder / launch.config_file)), None)
    if file is None:
        return launch
    values = config_values(file)
    origins = dict(launch.origins)

    def pick(field: str, current: Any, key: str) -> Any:
        if origins.get(field, "").startswith("-") or key not in values:
            return current
        value, line = values[key]
        origins[field] = f"{key}: {value} ({launch.config_file}:{line})"
        return value

    nodes = pick("nnodes", launch.nnodes, "num_machines")
    total = pick("nproc_per_node", launch.world_size or launch.nproc_per_node, "num_processes")
    whole = isinstance(total, int) and isinstance(nodes, int) and nodes > 0
    gpu_ids = values.get("gpu_ids", ("all", 0))[0]
    counted = launch.given_gpus is None and bool(re.fullmatch(r"\d+(,\d+)*", str(gpu_ids)))
    return replace(
        launch,
        nnodes=nodes, nproc_per_node=total // nodes if whole else total, world_size=total if whole else None,
        node_rank=pick("node_rank", launch.node_rank, "machine_rank"),
        master_addr=pick("master_addr", launch.master_addr, "main_process_ip"),
        master_port=pick("master_port", launch.master_port, "main_process_port"),
        nnodes_stated=launch.nnodes_stated or "num_machines" in values, origins=origins,
        given_gpus=len(str(gpu_ids).split(",")) if counted else launch.given_gpus,
        gpus_from=f"gpu_ids: {gpu_ids} ({launch.config_file}:{values['gpu_ids'][1]})" if counted else launch.gpus_from,
    )  # fmt: skip


# ---- reading


def _documents(text: str, path: str) -> Iterator[yaml.Node]:
    if PurePosixPath(path).suffix.lower() == ".json":
        text = plain_json(text)
    try:
        for root in yaml.compose_all(text, _Loader):
            if root is not None:
                yield root
    except (yaml.YAMLError, RecursionError, ValueError):
        return


def plain_json(text: str) -> str:
    """JSON with comments and trailing commas as YAML reads it, character for character in its place."""
    out: list[str] = []
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|,(?=\s*(?://[^\n]*\s*)*[}\]])|\t|.|\n', text, re.DOTALL):
        part = token.group(0)
        if part.startswith(("//", "/*")):
            part = re.sub(r"[^\n]", " ", part)
        elif part.startswith('"'):
            part = part.replace("\\/", "/")
        elif part == "\t" or (part == "," and re.match(r"\s*(?://[^\n]*\s*)*[}\]]", text[token.end() :])):
            part = " "
        out.append(part)
    return "".join(out)


def _constructed(node: yaml.Node) -> Any:
    """The plain value of a node; None for one that holds much: with aliases a short text can stand for any number of values."""
    queue, count = [node], 0
    while queue:
        count += 1
        if count > _MOST_NODES:
            return None
        inner = queue.pop()
        for part in () if isinstance(inner, yaml.ScalarNode) else inner.value:
            queue += part if isinstance(part, tuple) else [part] if isinstance(part, yaml.Node) else []
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _get(node: yaml.Node | None, *keys: str) -> yaml.Node | None:
    """A node below others by their keys, None without one."""
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if isinstance(name, yaml.ScalarNode) and name.value == key), None)
    return node


def _pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _number(node: yaml.Node | None) -> int | None:
    text = _text(node)
    return int(text) if text.isdigit() else None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _place(node: yaml.Node, key: str, path: str) -> str:
    return f"{key}: {_text(node)} ({path}:{_line(node)})"


# ---- launches


def _launches_of(root: yaml.Node, path: str) -> list[Launch]:
    kind = _text(_get(root, "kind"))
    if isinstance(_get(root, "configurations"), yaml.SequenceNode):
        return list(_editor_launches(root, path))
    if kind in ("PyTorchJob", "TrainJob"):
        return _job_launches(root, kind, path)
    services = _get(root, "services")
    if isinstance(services, yaml.MappingNode):
        found = [launch for _, service in _pairs(services) for launch in _container_launches(service, path)]
        return found
    return list(_step_launches(root, path))


def _job_launches(root: yaml.Node, kind: str, path: str) -> list[Launch]:
    """The commands of a job's replicas. The operator tells torchrun the nodes and the processes where the command does not."""
    spec = _get(root, "spec")
    roles = _pairs(_get(spec, "pytorchReplicaSpecs"))
    replicas = [(role, _get(role, "replicas")) for _, role in roles]
    nodes: int | None = sum(_number(count) or 1 for _, count in replicas) if replicas else None
    said = " + ".join(f"{name} {_number(_get(role, 'replicas')) or 1}" for name, role in roles)
    nodes_from = f"replicas: {said} ({path}:{_line(roles[0][1])})" if roles else ""
    per_node = _get(spec, "nprocPerNode") or _get(spec, "trainer", "numProcPerNode")
    if (count := _get(spec, "trainer", "numNodes")) is not None:
        nodes, nodes_from = _number(count), _place(count, "numNodes", path)
    if (elastic := _get(spec, "elasticPolicy")) is not None:
        low, high = _text(_get(elastic, "minReplicas")), _text(_get(elastic, "maxReplicas"))
        if low and high and low != high:
            nodes, nodes_from = None, f"elasticPolicy {low}:{high} ({path}:{_line(elastic)})"
    containers = [c for _, role in roles for c in _containers(role)] or [_get(spec, "trainer")]
    found: list[Launch] = []
    for container in containers:
        for launch in _container_launches(container, path) if container is not None else ():
            found.append(_in_job(launch, kind, nodes, nodes_from, per_node, path))
    return found


def _in_job(launch: Launch, kind: str, nodes: int | None, nodes_from: str, per_node: yaml.Node | None, path: str) -> Launch:
    origins = dict(launch.origins)
    if launch.kind == PYTHON:
        origins.update(nnodes=nodes_from, nproc_per_node="one process a replica")
        return replace(
            launch, kind=KUBERNETES, nnodes=nodes or "elastic", nproc_per_node=1, world_size=nodes, origins=origins,
            nnodes_stated=True,
        )  # fmt: skip
    if launch.kind not in _TORCH:
        return launch
    nnodes: int | str = launch.nnodes
    nproc: int | str = launch.nproc_per_node
    if origins.get("nnodes", "").startswith("default"):
        nnodes, origins["nnodes"] = nodes or "elastic", nodes_from
    if origins.get("nproc_per_node", "").startswith("default") and per_node is not None:
        text = _text(per_node)
        nproc, origins["nproc_per_node"] = int(text) if text.isdigit() else text, _place(per_node, "nprocPerNode", path)
    world = nnodes * nproc if isinstance(nnodes, int) and isinstance(nproc, int) else None
    return replace(
        launch, nnodes=nnodes, nproc_per_node=nproc, world_size=world, origins=origins, nnodes_stated=True,
        given_nodes=nodes, nodes_from=nodes_from,
    )  # fmt: skip


def _containers(node: yaml.Node) -> list[yaml.Node]:
    listed = _get(node, "template", "spec", "containers")
    return list(listed.value) if isinstance(listed, yaml.SequenceNode) else []


def _container_launches(container: yaml.Node, path: str) -> list[Launch]:
    """What a container runs: its entry point or command with its arguments, under its environment."""
    env = _environment(container, path)
    parts = [node for name in ("entrypoint", "command", "args") if (node := _get(container, name)) is not None]
    if not parts:
        return []
    words: list[str] = []
    for part in parts:
        if isinstance(part, yaml.SequenceNode):
            words += [_text(item) for item in part.value]
        elif _text(part):
            words += _split(_text(part))
    words = [re.sub(r"\$\((\w+)\)", r"${\1}", word).replace("$${", "${") for word in words]
    gpus = next((n for name in _GPU_RESOURCES if (n := _get(container, "resources", "limits", name)) is not None), None)
    first, last = _line(parts[0]), int(parts[-1].end_mark.line) + (0 if parts[-1].end_mark.column == 0 else 1)
    found: list[Launch] = []
    if len(words) > 2 and PurePosixPath(words[0]).name in ("bash", "sh", "zsh") and re.fullmatch(r"-[a-z]*c", words[1]):
        nodes = [n for part in parts for n in (part.value if isinstance(part, yaml.SequenceNode) else [part])]
        script = nodes[2] if len(nodes) > 2 else parts[-1]
        found = _scalar_launches(script, words[2], path, env)
    else:
        text = shlex.join(words)
        text = re.sub(r"'(\$\{?\w+\}?)'", r"\1", text)
        found = script_launches(text, path, env, first)
        found = [replace(launch, line=first, end_line=max(first, last), column=1) for launch in found]
    plain = {name: setting.text for name, setting in env.items() if setting.text is not None}
    if gpus is not None and (count := _number(gpus)) is not None:
        found = [replace(launch, given_gpus=count, gpus_from=_place(gpus, "GPUs", path)) for launch in found]
    found = [replace(launch, env={**plain, **launch.env}) for launch in found]
    return [_with_pet(launch, plain) for launch in found]


def _with_pet(launch: Launch, env: dict[str, str]) -> Launch:
    """A torchrun with what PET_ variables of its container say; the words of a command do not repeat them."""
    if launch.kind not in _TORCH or not any(name.startswith("PET_N") for name in env):
        return launch
    try:
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items() if name.startswith("PET_"))
        again = read_command(f"{assignments} {launch.text}", launch.path, launch.line)
    except LaunchError:
        return launch
    return replace(
        launch, nnodes=again.nnodes, nproc_per_node=again.nproc_per_node, world_size=again.world_size, node_rank=again.node_rank,
        master_addr=again.master_addr, master_port=again.master_port, origins=again.origins, nnodes_stated=again.nnodes_stated,
    )  # fmt: skip


def _environment(container: yaml.Node, path: str) -> dict[str, Setting]:
    """The variables of a container: `env` of Kubernetes, `environment` of compose; open where no value stands there."""
    found: dict[str, Setting] = {}
    listed = _get(container, "env") or _get(container, "environment")
    if isinstance(listed, yaml.SequenceNode):
        for item in listed.value:
            if isinstance(item, yaml.MappingNode):
                name, value = _text(_get(item, "name")), _get(item, "value")
            else:
                name, _, text = _text(item).partition("=")
                value = item if text else None
            given = None if value is None else _text(value).partition("=")[2] if value is item else _text(value)
            found[name] = Setting(given, f"{path}:{_line(item)}", name, given or "")
    for name, value in _pairs(listed):
        found[name] = Setting(_text(value) or None, f"{path}:{_line(value)}", name, _text(value))
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _scalar_launches(node: yaml.Node, text: str, path: str, env: dict[str, Setting]) -> list[Launch]:
    """The launches of a scalar that holds a script, in its lines."""
    block = getattr(node, "style", None) in ("|", ">")
    return script_launches(text, path, env, _line(node) + (1 if block else 0))


def _step_launches(root: yaml.Node, path: str) -> Iterator[Launch]:
    """Launches in any other file: containers wherever they are, and scalars that hold a command."""
    if isinstance(root, yaml.MappingNode):
        has_command = _get(root, "command") is not None or isinstance(_get(root, "args"), yaml.SequenceNode)
        own = _container_launches(root, path) if has_command else []
        yield from own
        for key, value in _pairs(root):
            if not (own and key in ("command", "args", "entrypoint")):
                yield from _step_launches(value, path)
    elif isinstance(root, yaml.SequenceNode):
        for item in root.value:
            yield from _step_launches(item, path)
    elif isinstance(root, yaml.ScalarNode) and len(root.value) > 12 and " " in root.value:
        yield from _scalar_launches(root, root.value, path, {})


def _editor_launches(root: yaml.Node, path: str) -> Iterator[Launch]:
    """The configurations of an editor's launch file that start Python."""
    configurations = _get(root, "configurations")
    assert isinstance(configurations, yaml.SequenceNode)
    for one in configurations.value:
        module, program = _text(_get(one, "module")), _text(_get(one, "program"))
        listed = _get(one, "args")
        args = [_text(item) for item in listed.value] if isinstance(listed, yaml.SequenceNode) else _split(_text(listed))
        words = ["python", "-m", module, *args] if module else [program, *args]
        if program.endswith(".py"):
            known = re.search(r"torch/distributed/(run|launch)\.py$", program)
            words = ["python", "-m", f"torch.distributed.{known.group(1)}", *args] if known else ["python", program, *args]
        words = [re.sub(r"\$\{(?:workspaceFolder|workspaceRoot|fileWorkspaceFolder)(?::\w+)?\}/?", "", word) for word in words]
        if not words[0]:
            continue
        env = {name: _text(value) for name, value in _pairs(_get(one, "env"))}
        try:
            launch = read_command([*(f"{name}={value}" for name, value in env.items()), *words], path, _line(one))
        except LaunchError:
            continue
        yield replace(launch, end_line=int(one.end_mark.line) + 1, column=int(one.start_mark.column) + 1)
