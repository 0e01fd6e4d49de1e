"""Checkpoints that become the state of a module or optimizer: which load feeds what, from where they are saved, and their fix."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddp_audit.findings import Fix, Span
from ddp_audit.tree.nodes import Guard, Load, LoadState, Move, Node, Program, Save
from ddp_audit.tree.questions import assigned_at, code_at, every, function_at, unwrapped
from ddp_audit.tree.values import Const, Expr, Items, Made, Obj, Unknown, Value, behind, constant, defaults_in, operation_of


def load_number(by: Made) -> int | None:
    """The number of the load node that gave a value made by `torch.load`; None where that is not known."""
    number = by.argument("number")
    return number.value if isinstance(number, Const) and isinstance(number.value, int) else None


def loaded_states(program: Program) -> dict[int, LoadState]:
    """The place where each load becomes the state of something, by the number of the load."""
    found: dict[int, LoadState] = {}
    for node in program.of(LoadState):
        for value in behind(node.args["state"]) if "state" in node.args else ():
            if isinstance(value, Unknown) and value.by is not None and value.by.name == "torch.load":
                number = load_number(value.by)
                if number is not None:
                    found.setdefault(number, node)
    return found


def has_state(save: Save) -> bool:
    """Whether the state of a model or optimizer is saved."""
    content = save.args.get("obj")
    return content is not None and any(operation_of(value) == "state_dict" for value in behind(content))


def is_from_cpu(program: Program, save: Save) -> bool:
    """Whether a state that is saved was brought to the CPU before, with its model or by itself."""
    return any(_is_on_cpu(program, save, list(behind(part))) for part in _state_parts(save.args["obj"]))


def _state_parts(saved: Value) -> Iterator[Value]:
    """The parts of what is saved that hold a state; a score among them does not say where they are."""
    if isinstance(saved, Items) and not saved.many:
        for item in saved.items:
            yield from _state_parts(item)
    elif any(operation_of(value) == "state_dict" for value in behind(saved)):
        yield saved


def _is_on_cpu(program: Program, save: Save, values: list[Value]) -> bool:
    if any(operation_of(value) == "cpu" for value in values):
        return True
    saved = {_inner(value).key for value in values if isinstance(value, Obj)}
    moved = [
        n
        for n in program.of(Move)
        if n.number < save.number and n.object is not None and (_inner(n.object).key in saved or _wraps_one(n.object, values))
    ]
    places = [_named(n.where) if n.name == "to" else n.name for n in moved if n.name in ("to", "cpu", "cuda")]
    return bool(places) and places[-1] == "cpu"


def _wraps_one(wrapper: Obj, values: list[Value]) -> bool:
    """Whether a wrapper wraps one of these values, and nothing else is known of the value."""
    return wrapper.kind == "ddp" and isinstance(wrapper.info, Unknown) and bool(wrapper.info.text) and wrapper.info in values


def _named(place: Value) -> object:
    """The name of a device that is given as text or as `torch.device(..)`; None where it is not written."""
    return constant(place.args[0] if isinstance(place, Expr) and place.op == "device" and place.args else place)


def _inner(module: Obj) -> Obj:
    """The module in a wrapper, which moves with it."""
    return unwrapped(module) or module


def unless_resumed(node: Load, used: LoadState, saves: list[Save]) -> tuple[list[Guard], str]:
    """The guards of a load but for those that ask for its own path, and the option that is the path.

    The default is not a path, and nothing is loaded. What is given instead is taken to be what the script saves where
    the part that is used of it is one that the script puts there.
    """
    state = used.args["state"]
    made = state.by if isinstance(state, Unknown) and operation_of(state) == "[]" else None
    part = made.args[1].value if made is not None and isinstance(made.args[1], Const) else None
    options = {default.name for default in defaults_in(node.args["path"])} if "path" in node.args else set()
    if part is None or len(options) != 1 or not any(part in (save.content or ()) for save in saves):
        return list(node.guards), ""
    asks = [g for g in node.guards if g.against_default and {default.name for default in defaults_in(g.test)} == options]
    return [guard for guard in node.guards if guard not in asks], options.pop() if asks else ""


def to_cpu(program: Program, node: Node) -> Fix | None:
    """The load to the CPU; none where parameters would stay there."""
    if any("assign" in use.args for use in program.of(LoadState)):
        return None
    only = _load_state_dict_alone(program, node.span)
    return Fix("safe" if only else "unsafe", "load to the CPU (`map_location='cpu'`); load_state_dict copies from there")


def _load_state_dict_alone(program: Program, load: Span) -> bool:
    """Whether load_state_dict alone uses what a call at a place returns: as its argument, or by a name that nothing else uses."""
    call = code_at(program, load, ast.Call)
    if call is None:
        return False
    tree = program.files[load.path].tree
    scope = function_at(program, load.path, load.line) or tree
    calls = [n for n in every(scope) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "load_state_dict"]
    inside = {id(part) for one in calls for argument in one.args for part in every(argument)}
    if id(call) in inside:
        return True
    name = assigned_at(program, load)
    uses = [n for n in every(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    is_global = scope is tree and any(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in every(tree))
    return bool(uses) and not is_global and all(id(use) in inside for use in uses)
