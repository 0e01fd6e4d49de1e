"""Processes that a script starts itself: `torch.multiprocessing.spawn(main, nprocs=4)`."""

from __future__ import annotations

from ddp_audit.launch.model import SPAWN, Launch
from ddp_audit.program.model import Program, first_of_each_place
from ddp_audit.program.nodes import Init, Spawn
from ddp_audit.program.values import MISSING, Const, Value, World, defaults_in, evaluate


def spawned_launches(program: Program) -> list[Launch]:
    """One launch for each place that spawns processes. A number that rests on a default or the devices stays as it is written."""
    spawns = first_of_each_place(program.of(Spawn))
    return [_launch(program, node, node.nprocs) for node in spawns if node.nprocs is not None]


def _launch(program: Program, node: Spawn, nprocs: Value) -> Launch:
    number = _number(nprocs)
    nodes = _nodes(program, nprocs)
    text = nprocs.text or "nprocs"
    return Launch(
        SPAWN,
        nnodes=nodes,
        nproc_per_node=number if number is not None else text,
        world_size=number * nodes if number is not None and isinstance(nodes, int) else None,
        script=program.entry,
        text=node.text,
        path=node.span.path,
        line=node.span.line,
        end_line=node.span.end_line,
        column=node.span.column,
        origins={"nproc_per_node": f"nprocs={text if number is None else number}", "nnodes": "the script starts one node itself"},
    )


def _number(value: Value) -> int | None:
    """A number that no user sets and no machine decides."""
    if isinstance(value, Const) and not any(default.open for default in defaults_in(value)):
        return value.value if type(value.value) is int and value.value > 0 else None
    return None


def _nodes(program: Program, nprocs: Value) -> int | str:
    """1 where the group is as large as what is spawned, else what the world size is said to be."""
    for node in program.of(Init):
        size = node.args.get("world_size")
        if size is None:
            continue
        same = size == nprocs or (size.text and size.text == nprocs.text)
        world = World(0, 4, 4)
        values = evaluate(size, world), evaluate(nprocs, world)
        return 1 if same or (values[0] is not MISSING and values[0] == values[1]) else "unstated"
    return 1
