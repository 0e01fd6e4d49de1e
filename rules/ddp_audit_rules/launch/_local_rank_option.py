"""The option --local_rank: where the code reads it, which launches pass it, and what its default makes of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddp_audit.launch.model import DEEPSPEED, Launch
from ddp_audit.tree.nodes import Node, Program
from ddp_audit.tree.questions import lines_with
from ddp_audit.tree.values import MISSING

ENVIRONMENT = (
    r"LOCAL_RANK['\"]|SLURM_LOCALID|LOCAL_PROCESS|MPI_LOCALRANKID|get_node_local_rank|local_process_index|get_local_rank\("
)
READ = r"\.local_rank\b(?!\s*=[^=])|\[['\"]local_rank['\"]\]"
ASSIGNED = r"\.local_rank\s*=[^=]|\[['\"]local_rank['\"]\]\s*=[^=]"


def code_with(program: Program, pattern: str) -> Iterable[tuple[str, int, str]]:
    """Lines of code that a pattern is found in, without those that only declare the option."""
    declares = re.compile(r"add_argument\((?!.*(?:environ|getenv))")
    return (found for found in lines_with(program, pattern) if not declares.search(found[2]))


def handed_over(launches: Sequence[Launch], flags: Sequence[str]) -> bool:
    """Whether every launch of several processes that is known passes the argument in a spelling that the parser knows."""
    if not launches:
        return False
    return all(one.passes_local_rank and ("--local_rank" if one.kind == DEEPSPEED else "--local-rank") in flags for one in launches)


def gives(launch: Launch) -> bool:
    """Whether the command passes the argument to the script itself."""
    return any(re.match(r"--local[-_]rank", word) for word in launch.script_args)


def consequence(default: object, node: Node) -> str:
    """What the default makes of a run of several processes."""
    if "required=True" in node.text:
        return "the parser ends every process"
    if default == -1:
        return "it stays -1, and every process trains alone or fails on the device"
    if default is MISSING:
        return "it keeps its default in every process"
    if default is None:
        return "it stays None in every process, which is not a device"
    return f"it stays {default}, so all ranks of a node use device {default}"
