"""Devices that are chosen by the global rank, seeds that are made of the local one, and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import DeviceChoice, Node, Program, Seed, Spawn
from ddp_audit.tree.questions import first_of_each_place, has_line, lines_with
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
    for where, number, code in lines_with(program, r"^\s*\w*local_rank\w*\s*=[^=]"):
        name = code.split("=")[0].strip()
        uses = sum(len(re.findall(rf"\b{name}\b", line)) for line in program.sources[path])
        if where == path and uses == 1 and "argument" not in code:
            yield name, Span(path, number, len(code) - len(code.lstrip()) + 1, number, len(code.rstrip()) + 1)


def has_local_rank(program: Program) -> bool:
    """Whether torchrun starts the job, which sets LOCAL_RANK; what spawns its ranks, or SLURM, does not."""
    others = r"SLURM_|OMPI_|PMI_RANK|environ\[.(RANK|WORLD_SIZE|LOCAL_RANK).\]\s*=[^=]"
    by_others = has_line(program, others) or program.has(Spawn)
    return not by_others and not program.frameworks


def assigned(program: Program, node: Node, name: str) -> list[tuple[str, int, str]]:
    """The last assignment before the node of the variable that holds the rank, in the node's file, with its source."""
    variable = re.search(r"[A-Za-z_]\w*$", name)
    if variable is None:
        return []
    pattern = rf"^\s*([\w.]+,\s*)*(\w+\.)?{variable.group()}\s*(,[^=]*)?=[^=].*(RANK|rank)"
    before = [(path, line, code.strip()) for path, line, code in lines_with(program, pattern) if path == node.span.path]
    return [item for item in before if item[1] < node.span.line][-1:] or before[:1]
