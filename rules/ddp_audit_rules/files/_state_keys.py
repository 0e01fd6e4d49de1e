"""What the keys of a saved state begin with, and whether they fit what the state is loaded into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.findings import Option
from ddp_audit.tree.nodes import Load, LoadState, Node, Program, RenamedKeys, Save
from ddp_audit.tree.questions import default_values, is_kind, unwrapped
from ddp_audit.tree.values import (
    Const,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    World,
    behind,
    defaults_in,
    evaluate,
    option_leaf,
    options,
    path_key,
)
from ddp_audit_rules.facts.loaded_states import load_number
from ddp_audit_rules.facts.writers import path_of

WRAPPER, COMPILED = "module.", "_orig_mod."


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A save whose keys do not fit: what its keys begin with and what those of the module do, whether the path is that of the load.

    `option` is what has to be set for it, None where the defaults show it. `part` is the dotted name of the module inside whose
    keys do not fit, empty where none does.
    """

    save: Node
    saved: str
    wanted: str
    same_path: bool
    option: Option | None
    part: str = ""


def mismatch(program: Program, node: LoadState) -> Mismatch | None:
    """The save whose keys differ from those of what is loaded; None where some save fits or that is not known."""
    read = _read(node.args.get("state"))
    if read is None or node.target is None:
        return None
    key, number = read
    if any(number in _loads(other.target) for other in program.of(RenamedKeys)):
        return None
    load = program.node(number)
    path = path_of(load) if isinstance(load, Load) else None
    at = None if path is None else path_key(path)
    found: list[tuple[Node, Value, bool]] = []
    for save in program.of(Save):
        of = _saved(save, key)
        place = path_of(save)
        if of is not None:
            found.append((save, of, at is not None and place is not None and path_key(place) == at))
    found = [entry for entry in found if entry[2]] or found
    if not found:
        return None
    target = node.target
    for option in (None, *_switches([target, *(of for _, of, _ in found)])):
        atoms = {} if option is None else {option_leaf(option.name): option.value}
        world = World(0, 2, 2, atoms)
        faults = [_fault(program, node, of, world) for _, of, _ in found]
        if faults[0] is not None and None not in faults:
            part, saved, wanted = faults[0]
            return Mismatch(found[0][0], saved, wanted, found[0][2], option, part)
    return None


def _fault(program: Program, node: LoadState, of: Value, world: World) -> tuple[str, str, str] | None:
    """The part whose keys do not fit, "" for the whole, and what they begin with in the file and in the module; None if all fit."""
    target = node.target
    saved, wanted = _prefix(of, world), None if target is None else _prefix(target, world)
    if saved is None or wanted is None:
        return None
    if saved != wanted:
        return "", saved, wanted
    theirs = _parts(of)
    for name, part in _parts(target).items():
        inner = unwrapped(part)
        if name not in theirs or inner is None or not program.modules.has_parameters(inner.key):
            continue
        before, after = _prefix(theirs[name], world), _prefix(part, world)
        if before is not None and after is not None and before != after and not _loaded_alone(program, node, inner):
            return name, f"{name}.{before}", f"{name}.{after}"
    return None


def _parts(value: Value | None) -> dict[str, Obj]:
    """The modules inside a module or wrapper; none where it may be one of several."""
    return dict(value.parts) if isinstance(value, Obj) else {}


def _loaded_alone(program: Program, node: LoadState, part: Obj) -> bool:
    """Whether another load sets a part: then the first one may well leave it out."""
    others = [load.target for load in program.of(LoadState) if load is not node and load.target is not None]
    return any(isinstance(o, Obj) and unwrapped(o) == part for target in others for o in options(target))


def _switches(values: list[Value]) -> Iterator[Option]:
    """The other value of each open option with two values that decides whether a module is compiled."""
    reported: set[str] = set()
    for value in values:
        for view in _views(value):
            for default in () if view.compiled is None else defaults_in(view.compiled):
                now = next(default_values(view.compiled, default.name), None) if view.compiled is not None else None
                if default.open and default.name not in reported and isinstance(now, bool):
                    reported.add(default.name)
                    yield Option(default.name, now, not now)


def _views(value: Value) -> Iterator[Obj]:
    """The modules and wrappers that a value may be, with those inside."""
    for option in options(value):
        if isinstance(option, Obj):
            yield option
            for _, part in option.parts:
                yield from _views(part)
            if option.kind == "ddp" and isinstance(option.info, Value):
                yield from _views(option.info)


def _prefix(value: Value, world: World) -> str | None:
    """What the keys of the state of a module or wrapper begin with in a job; None where that is not one thing."""
    found = {_prefix_of(option, world) for option in options(value)}
    return found.pop() if len(found) == 1 else None


def _prefix_of(value: Value, world: World) -> str | None:
    if not isinstance(value, Obj) or value.kind not in ("ddp", "module"):
        return None
    compiled = False if value.compiled is None else evaluate(value.compiled, world)
    if not isinstance(compiled, bool):
        return None
    inner: str | None = ""
    if value.kind == "ddp":
        known = isinstance(value.info, Value) and any(isinstance(option, Obj) for option in options(value.info))
        inner = _prefix(value.info, world) if known else ""
        inner = None if inner is None else WRAPPER + inner
    return None if inner is None else COMPILED * compiled + inner


def _read(state: Value | None) -> tuple[str | None, int] | None:
    """The key under which a state stands in a file that was loaded, and the number of the load; None where it was changed since."""
    key: str | None = None
    while isinstance(state, Unknown) and state.by is not None:
        by: Made = state.by
        if by.name == "torch.load":
            number = load_number(by)
            return None if number is None else (key, number)
        if not is_kind(by.name, "element") or key is not None or len(by.args) < 2:
            return None
        index = by.args[1]
        if not isinstance(index, Const) or not isinstance(index.value, str):
            return None
        key, state = index.value, by.args[0]
    return None


def _loads(value: Value | None) -> set[int | None]:
    """The loads that a value comes from."""
    made = (inner.by for inner in behind(value) if isinstance(inner, Unknown)) if value is not None else ()
    return {load_number(by) for by in made if by is not None and by.name == "torch.load"}


def _saved(save: Save, key: str | None) -> Value | None:
    """The module or wrapper whose state a save holds under a key."""
    content = save.args.get("obj")
    if isinstance(content, Items) and content.keys is not None:
        pairs = zip(content.keys, content.items, strict=True)
        content = next((v for k, v in pairs if isinstance(k, Const) and k.value == key), None) if key is not None else None
    elif key is not None:
        return None
    return next(_states(content), None) if content is not None else None


def _states(value: Value) -> Iterator[Value]:
    for inner in behind(value):
        if isinstance(inner, Unknown) and inner.by is not None and inner.by.name == "state_dict":
            of = inner.by.args[0]
            if any(isinstance(option, Obj) and option.kind in ("ddp", "module") for option in options(of)):
                yield of
