"""Subscripts, unpacking and iteration: what an index or a for loop takes out of a value."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program import imports, lists, names
from ddp_audit.program.changes import element_of_parameters, replace_layer
from ddp_audit.program.contracts_records import as_items
from ddp_audit.program.functions import keep_written
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.meaning import says
from ddp_audit.program.nodes import EnvironmentSet, Iterate, RenamedKeys
from ddp_audit.program.operations import bounded, decided_by, operation
from ddp_audit.program.shared_memory import write_through
from ddp_audit.program.state import merge_value
from ddp_audit.program.uses import element_of, is_container
from ddp_audit.program.values import (
    DATA,
    UNIFORM,
    Alt,
    Const,
    Expr,
    Ext,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    join_deps,
    join_taint,
    leaf,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


_MOST_KEYS = 8  # of a dict display that is asked for one of them


def item(value: Value, index: int) -> Value:
    """Element `index` of an unpacked value."""
    if isinstance(value, Items) and value.keys is None and index < len(value.items) and not value.many:
        return value.items[index]
    if isinstance(value, Alt):
        found = [item(o, index) for o in value.options]
        if any(isinstance(f, Obj) for f in found):
            return next(f for f in found if isinstance(f, Obj))
        if any(isinstance(o, Items) and o.keys is None and not o.many for o in value.options):
            if all(f == found[0] for f in found):
                return found[0]
            return Alt(options=tuple(found), choice=value.choice, taint=value.taint, deps=join_deps(*found), text=value.text)
    filled = [o for o in options(value) if isinstance(o, Items) and o.many and o.keys is None]
    part = _of_one_place(value) if filled else bool(value.deps)  # of what a loop filled in one way, or a forward gives
    by = Made("[]", (value, Const(value=index))) if part else None
    return Unknown(taint=value.taint, deps=value.deps, by=by)


def parts(value: Value, targets: Sequence[ast.expr]) -> list[Value]:
    """What each target of an unpacking gets; one with a star gets the list of those that the others leave."""
    star = next((n for n, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if star is None or not isinstance(value, Items) or value.keys is not None or value.many:
        return [item(value, n) for n in range(len(targets))]
    after = len(targets) - star - 1
    end = max(len(value.items) - after, star)
    rest = value.items[star:end]
    taint = value.taint if value.filled else join_taint(*rest)
    starred = Items(items=rest, kind="list", taint=taint, deps=join_deps(*rest), filled=value.filled and bool(rest))
    return [*(item(value, n) for n in range(star)), starred, *(item(value, end + n) for n in range(after))]


def _of_one_place(value: Value) -> bool:
    """Whether all elements of a list that a loop fills were made at one place, so that each tells what any of them is."""
    lists = [o for o in options(value) if isinstance(o, Items) and o.keys is None]
    places = {(element.text, operation_of(element)) for one in lists for element in one.items}
    return len(lists) == len(options(value)) and len(places) == 1


def environment(variable: str, default: Value | None = None) -> Value:
    """An environment variable, as every worker of a distributed run sees it."""
    kind = names.ENVIRONMENT.get(variable)
    return leaf(kind) if kind else Unknown(text=f"os.environ[{variable!r}]", taint=UNIFORM if default is None else default.taint)


def subscript(lw: Lowering, node: ast.Subscript, owner: Value, index: Value) -> Value:
    """`owner[index]`."""
    text = lw.text(node)
    owner = as_items(lw, owner)
    if isinstance(owner, Ext) and owner.name == "os.environ" and isinstance(index, Const):
        return environment(str(index.value))
    if isinstance(owner, Items) and isinstance(index, Const):
        if owner.keys is not None:
            for key, value in zip(reversed(owner.keys), reversed(owner.items), strict=True):
                if isinstance(key, Const) and key.value == index.value:
                    return value
        elif isinstance(index.value, int) and -len(owner.items) <= index.value < len(owner.items):
            return owner.items[index.value]
    if isinstance(owner, Alt) and isinstance(index, Const) and all(isinstance(option, Items) for option in options(owner)):
        first, *others = (subscript(lw, node, option, index) for option in options(owner))
        for other in others:
            first = merge_value(Unknown(taint=decided_by(owner)) if owner.choice is None else owner.choice, first, other)
        return first
    chosen = _chosen(owner, index, text)
    if chosen is not None:
        return chosen
    if isinstance(owner, Items) and owner.keys is not None and owner.items:
        return owner.items[0] if len(owner.items) == 1 else Unknown(taint=owner.taint | index.taint, deps=owner.deps, text=text)
    module = the_object(owner, "python-module")
    if module is not None and isinstance(index, Const) and isinstance(index.value, str):
        return imports.module_attribute(lw, module, index.value)
    layer = lw.program.modules.layer(the_object(owner, "module"), index)
    if layer is not None and lw.looking is None:
        return layer
    if isinstance(index, Const) and isinstance(index.value, str):
        guess = names.by_name(index.value)
        if guess is not None and not owner.deps:
            return guess
        if lw.overrides and isinstance(owner, Unknown) and not owner.deps:
            from ddp_audit.program.contracts_config import loaded

            known = loaded(lw, index.value, node)
            if known is not None:
                return known
    if isinstance(owner, Ext):
        return owner
    container = is_container(owner) if lw.looking is not None else None
    if container is not None:
        return element_of(lw, container)
    return Unknown(taint=owner.taint | index.taint, deps=owner.deps, text=text, by=Made("[]", (owner, index)))


def _chosen(owner: Value, index: Value, text: str) -> Value | None:
    """An element of a display at a place that is computed: `[3, 1][rank % 2]`, `{0: "train", 1: "valid"}[rank]`."""
    if not isinstance(owner, Items) or owner.many or not isinstance(index, Expr) or index.op == "slice":
        return None
    plain = all(isinstance(part, (Const, Expr)) for part in owner.items)
    if owner.keys is None and plain:
        return operation("[]", owner, index, text=text)
    keys = owner.keys if owner.keys is not None else tuple(Const(value=place) for place in range(len(owner.items)))
    if not owner.items or len(owner.items) > _MOST_KEYS or not all(isinstance(key, Const) for key in keys):
        return None
    if not plain and len(owner.items) != 2:  # of functions and objects one of two
        return None
    result = owner.items[-1]
    for key, value in zip(keys[-2::-1], owner.items[-2::-1], strict=True):
        test = operation("==", index, key)
        result = operation("ifexp", test, value, result) if plain else merge_value(test, value, result)
    return result


def assign_item(lw: Lowering, node: ast.Subscript, owner_node: ast.expr, index: Value, value: Value) -> None:
    """`owner[index] = value`."""
    lw.effects += 1
    owner = lw.eval(owner_node)
    if isinstance(owner, Unknown) and not isinstance(index, Const):
        lw.emit(node, RenamedKeys(target=owner))
    if isinstance(owner, Ext) and owner.name == "os.environ" and isinstance(index, Const):
        lw.emit(node, EnvironmentSet(value=value, name=str(index.value)))
    elif (made := _with_item(owner, index, value)) is not None:
        keep_written(lw, owner_node, made)
    elif isinstance(owner_node, (ast.Name, ast.Attribute)) and (some := lists.with_some(lw, owner)) is not None:
        keep_written(lw, owner_node, replace(some, taint=some.taint | value.taint) if isinstance(owner, Unknown) else some)
    elif the_object(owner, "module") is not None:
        replace_layer(lw, node, owner, index, value)
    elif isinstance(owner, Unknown) and value.deps and not owner.deps and _was_gathered(owner):
        # The rank's own part is put back into what was gathered, and with it the way to its gradient.
        restored = Unknown(taint=owner.taint, deps=value.deps, text=owner.text, by=Made("own part", (value,)))
        write_through(lw, owner, lambda held: replace(restored, text=held.text))
        lw.assign(owner_node, restored)
    elif operation_of(value) == "own part" and (
        filled := [o for o in options(owner) if isinstance(o, Items) and o.items and o.keys is None]
    ):
        # Each list in a list gets its rank's own part, as a rule: one that has it speaks for the others.
        lw.assign(owner_node, replace(filled[-1], items=(value,) * len(filled[-1].items), deps=value.deps))
    elif isinstance(owner_node, (ast.Name, ast.Attribute)) and isinstance(owner, Unknown) and _marks_out(index, value):
        # `labels[mask] = -100`: elements that a loss may leave out.
        by = Made("[]=", (owner, index, value))
        lw.assign(owner_node, Unknown(taint=owner.taint | value.taint | index.taint, deps=owner.deps, text=owner.text, by=by))
    elif isinstance(owner_node, (ast.Name, ast.Attribute)) and isinstance(owner, Unknown) and not value.taint <= owner.taint:
        lw.assign(owner_node, replace(owner, taint=owner.taint | value.taint))


def _with_item(owner: Value, index: Value, value: Value) -> Value | None:
    """A display, or one of several, in which one place holds another value; None where the place is not known."""
    if isinstance(owner, Alt):
        changed = [_with_item(option, index, value) for option in owner.options]
        known = tuple(option for option in changed if option is not None)
        return replace(owner, options=known, taint=owner.taint | value.taint) if len(known) == len(changed) and known else None
    if not isinstance(owner, Items) or owner.many or not isinstance(index, Const):
        return None
    if owner.keys is None:
        at = index.value
        if owner.kind != "list" or type(at) is not int or not -len(owner.items) <= at < len(owner.items):
            return None
        items, keys = list(owner.items), None
        items[at] = value
    else:
        pairs = zip(owner.keys, owner.items, strict=True)
        kept = [(k, v) for k, v in pairs if not (isinstance(k, Const) and k.value == index.value)]
        keys, items = (*(k for k, _ in kept), index), [*(v for _, v in kept), value]
    taint, deps = join_taint(*items), join_deps(*items)
    return bounded(Items(items=tuple(items), keys=keys, kind=owner.kind, taint=taint, deps=deps))


def _was_gathered(owner: Value) -> bool:
    """Whether a value without a gradient came from what all_gather wrote."""
    return any(operation_of(part).startswith("all_gather") for part in behind(owner, lambda part: bool(part.deps)) if not part.deps)


def _marks_out(index: Value, value: Value) -> bool:
    """Whether a negative number is put where an index selects by content: not at a position, and not in a slice."""
    parts = index.items if isinstance(index, Items) else (index,)
    fixed = all(isinstance(part, Const) or (isinstance(part, Expr) and part.op == "slice") for part in parts)
    return isinstance(value, Const) and type(value.value) is int and value.value < 0 and not fixed


def iterate(lw: Lowering, node: ast.expr, over: Value) -> tuple[Value, Value | None, Taint]:
    """What a for loop over a value yields: the element, the number of iterations where known, why that can differ by rank."""
    over = as_items(lw, over)
    target = the_object(over)
    if target is not None:
        match target.kind:
            case "range":
                return _position(node, *target.cls), target.info, target.info.taint
            case "enumerate":
                inner, count, taint = iterate(lw, node, target.info)
                return Items(items=(_position(node, target.cls), inner), kind="tuple", taint=inner.taint), count, taint
            case "zip":
                parts = [iterate(lw, node, part) for part in target.info]
                elements = tuple(p[0] for p in parts)
                return Items(items=elements, kind="tuple", taint=join_taint(*elements)), _common([p[1] for p in parts]), UNIFORM
            case "module" if lw.looking is not None and is_container(target) is not None:
                return element_of(lw, target), None, UNIFORM
            case "parameters":
                return element_of_parameters(target), None, UNIFORM
            case "generator":
                source, element = target.info
                lw.emit(node, Iterate(target=source))
                return element, None, UNIFORM
            case "loader" | "dataset" | "iterable-dataset":
                lw.emit(node, Iterate(target=target))
                count = Unknown(text=f"len({over.text})")
                return Unknown(taint=frozenset({DATA}), text="batch"), count, UNIFORM
    if isinstance(over, Items):
        elements = over.keys if over.keys is not None else over.items
        count = over.count if over.many else Const(value=len(elements))
        taint = UNIFORM if not over.many else over.taint if count is None else count.taint
        if not elements:
            return Unknown(), count, taint
        merged = elements[0]
        for element in elements[1:]:
            merged = merge_value(Unknown(), merged, element)
        return (Unknown(taint=over.taint) if isinstance(merged, Const) and len(elements) > 1 else merged), count, taint
    taint = over.taint | (frozenset({DATA}) if says(over, "gives-batches") else UNIFORM)
    by = over.by if isinstance(over, Unknown) and over.by is not None and is_kind(over.by.name, "from-network") else None
    return Unknown(taint=taint, deps=over.deps, by=by), None, over.taint - {DATA}


def _common(counts: Sequence[Value | None]) -> Value | None:
    """The number of iterations that several iterables share, None where one is not known or has another."""
    first = counts[0] if counts else None
    shared = all(isinstance(one, Const) and isinstance(first, Const) and one.value == first.value for one in counts)
    return first if shared else None


def _position(node: ast.expr, start: Value, step: Value | None = None) -> Value:
    """The index of a loop over range() or enumerate(): a leaf that counts iterations from 0, with what the call makes of it."""
    index: Value = Expr(op=f"loop:{getattr(node, 'lineno', 0):d}:{getattr(node, 'col_offset', 0)}", text="index")
    if step is not None and not (isinstance(step, Const) and step.value == 1):
        index = operation("*", index, step, text="index")
    return index if isinstance(start, Const) and start.value == 0 else operation("+", start, index, text="index")
