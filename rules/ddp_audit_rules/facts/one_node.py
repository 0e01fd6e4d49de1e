"""Jobs on one node and on two, and what is for one node only: shared by the rules on ranks and samplers."""

from __future__ import annotations

from ddp_audit.launch.model import PYTHON, WORLD_SIZE, Launch
from ddp_audit.tree.nodes import EnvironmentSet, Init, Program
from ddp_audit.tree.values import MISSING, Const, World, constant, evaluate

ONE_NODE = [World(rank, 2, 2) for rank in range(2)]
TWO_NODES = [World(rank, 4, 2) for rank in range(4)]
_LOCAL = ("localhost", "127.0.0.1", "::1")  # addresses


def one_node_only(program: Program) -> bool:
    """Whether the script says itself that it runs on one node, or gives each process its own view of the devices."""
    for node in program.of(EnvironmentSet):
        value = constant(node.value)
        if node.name == "MASTER_ADDR" and value in _LOCAL:
            return True
        if node.name == "CUDA_VISIBLE_DEVICES":
            return True
    world = World(2, 4, 2)
    for init in program.of(Init):
        method = init.args.get("init_method")
        if isinstance(method, Const) and isinstance(method.value, str) and any(address in method.value for address in _LOCAL):
            return True
        for name, whole in (("rank", world.rank), ("world_size", world.world_size)):
            given = evaluate(init.args[name], world) if name in init.args else MISSING
            if isinstance(given, int) and given not in (whole, -1):
                return True
    return False


def starts_one_node(launch: Launch | None) -> bool:
    """Whether the launch that the user named says that the job has one node; a bare number of ranks says nothing of nodes."""
    return launch is not None and launch.nnodes == 1 and launch.kind not in (WORLD_SIZE, PYTHON)
