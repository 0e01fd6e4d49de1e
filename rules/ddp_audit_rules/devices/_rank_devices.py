"""Devices that are chosen by the global rank, seeds that are made of the local one, and what stands around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import DeviceChoice, Node, Program, Seed, Spawn
from ddp_audit.tree.questions import dotted, first_of_each_place, mentions, names_in, speaks_of, written
from ddp_audit_rules.devices._device_numbers import is_device, ranks_past_the_end, repeats_on_nodes


def devices_by_rank(program: Program) -> list[list[DeviceChoice]]:
    """Devices whose index is the global rank, those that a function uses in one way together."""
    found = [node for node in first_of_each_place(program.of(DeviceChoice)) if ranks_past_the_end(node.index)]
    if any(node.via == "torch.device" for node in found):  # said once, where the device is made
        found = [n for n in found if n.via == "torch.device" or not is_device(n.index)]
    groups: dict[tuple[str, str, str], list[DeviceChoice]] = {}
    for node in found:
        groups.setdefault((node.span.path, node.function, node.via), []).append(node)
    return list(groups.values())


def seeds_by_local_rank(program: Program) -> list[list[Seed]]:
    """Seeds that ranks of another node have again, those of a function together."""
    groups: dict[tuple[str, str], list[Seed]] = {}
    for node in first_of_each_place(program.of(Seed)):
        if repeats_on_nodes(node.seed):
            groups.setdefault((node.span.path, node.function), []).append(node)
    return list(groups.values())


def unused_local_ranks(program: Program, path: str) -> Iterator[tuple[str, Span]]:
    """Variables of a file that get the local rank and are never used, with their assignments."""
    for one in written(program, ast.Assign, "local_rank", path=path):
        names = [target.id for target in one.node.targets if isinstance(target, ast.Name) and "local_rank" in target.id]
        declares = any("argument" in name for name in names_in(one.node.value))
        if len(one.node.targets) == 1 and names and not declares and len(mentions(program, *names, path=path)) == 1:
            yield names[0], one.whole_line


def has_local_rank(program: Program) -> bool:
    """Whether torchrun starts the job, which sets LOCAL_RANK; what spawns its ranks, or SLURM, does not."""
    by_others = speaks_of(program, "SLURM_", "OMPI_", "PMI_RANK") or program.has(Spawn)
    sets = any(_sets_rank(target) for one in written(program, ast.Assign, "environ") for target in one.node.targets)
    return not (by_others or sets) and not program.frameworks


def _sets_rank(target: ast.expr) -> bool:
    """`os.environ["RANK"] = ..`."""
    if not isinstance(target, ast.Subscript) or not dotted(target.value).endswith("environ"):
        return False
    return isinstance(target.slice, ast.Constant) and target.slice.value in ("RANK", "WORLD_SIZE", "LOCAL_RANK")


def assigned(program: Program, node: Node, name: str) -> list[tuple[str, int, str]]:
    """The last assignment before the node of the variable that holds the rank, in the node's file, with its source."""
    variable = name.rpartition(".")[2]
    found = [one for one in written(program, ast.Assign, path=node.span.path) if _gives_rank(one.node, variable)]
    before = [(one.path, one.line, one.code) for one in found]
    return [item for item in before if item[1] < node.span.line][-1:] or before[:1]


def _gives_rank(assignment: ast.Assign, variable: str) -> bool:
    targets = [part for target in assignment.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    stored = any(isinstance(t, (ast.Name, ast.Attribute)) and dotted(t).rpartition(".")[2] == variable for t in targets)
    return stored and any("rank" in word or "RANK" in word for word in names_in(assignment.value))
