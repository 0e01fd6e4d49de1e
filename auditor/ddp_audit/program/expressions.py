"""The lowering of expressions: names, attributes, operators, displays, subscripts, iteration."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.program import names
from ddp_audit.program.attributes import MODULE_ATTRIBUTES, TENSOR_FACTS, WRAPPER_ATTRIBUTES
from ddp_audit.program.model import Branch, Guard, Item, Loop
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo, Yielded, merge_value
from ddp_audit.program.values import (
    DATA,
    RANDOM,
    RANK,
    UNIFORM,
    Alt,
    Bound,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Obj,
    Taint,
    Unknown,
    Value,
    World,
    defaults_in,
    join_deps,
    join_taint,
    leaf,
    named,
    operation,
    options,
    the_object,
)
from ddp_audit.program.values import evaluate as compute

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_LOADER_NAME = ("loader", "dataloader", "data_iter", "train_iter", "batches")


def evaluate(lw: Lowering, node: ast.expr) -> Value:
    """The value of an expression; nodes that it brings are emitted on the way."""
    from ddp_audit.program.calls import call

    match node:
        case ast.Constant(value=value):
            return Const(value=value)
        case ast.Name():
            return name(lw, node)
        case ast.Attribute(value=owner, attr=attr):
            return attribute(lw, lw.eval(owner), attr, node)
        case ast.Call():
            return call(lw, node)
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(lw, node, lw.eval(left), names.OPERATORS.get(type(op), "?"), lw.eval(right))
        case ast.BoolOp(op=op, values=parts):
            return _logic(lw, node, names.OPERATORS[type(op)], parts)
        case ast.UnaryOp(op=op, operand=operand):
            return operation(names.OPERATORS.get(type(op), "?"), lw.eval(operand), text=lw.text(node))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compare(lw, node, lw.eval(left), ops, [lw.eval(c) for c in comparators])
        case ast.IfExp():
            return _conditional(lw, node)
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            kind = type(node).__name__.lower()
            values = tuple(lw.eval(e.value if isinstance(e, ast.Starred) else e) for e in elts)
            return Items(items=values, kind=kind, taint=join_taint(*values), deps=join_deps(*values))
        case ast.Dict(keys=keys, values=values):
            return _dict(lw, keys, [lw.eval(v) for v in values])
        case ast.JoinedStr(values=parts):
            pieces = tuple(lw.eval(p.value) if isinstance(p, ast.FormattedValue) else lw.eval(p) for p in parts)
            return Expr(op="format", args=pieces, taint=join_taint(*pieces), text=lw.text(node))
        case ast.Subscript(value=owner, slice=index):
            return subscript(lw, node, lw.eval(owner), lw.eval(index))
        case ast.Lambda():
            return Func(definition=FunctionInfo("<lambda>", node, lw.here))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return _comprehension(lw, node)
        case ast.NamedExpr(target=target, value=inner):
            assigned = lw.eval(inner)
            lw.assign(target, assigned)
            return assigned
        case ast.Starred(value=inner) | ast.Await(value=inner) | ast.YieldFrom(value=inner):
            result = lw.eval(inner)
            if isinstance(node, ast.YieldFrom):
                _yielded(lw, result, whole=True)
            return result
        case ast.Yield(value=inner):
            _yielded(lw, lw.eval(inner))
            return Unknown()
        case ast.Slice(lower=lower, upper=upper, step=step):
            bounds = tuple(lw.eval(b) for b in (lower, upper, step))
            return Expr(op="slice", args=bounds, taint=join_taint(*bounds), text=lw.text(node))
    return Unknown()


# ---- names and attributes


def name(lw: Lowering, node: ast.Name) -> Value:
    """A variable: of the running function, of the functions around it, of its module, or a builtin."""
    from ddp_audit.program.imports import force, from_stars

    frame: Frame | None = lw.here
    while frame is not None:
        value = lw.state.get((frame.id, node.id))
        if value is not None:
            return _by_name_if_unknown(force(lw, value), node.id)
        frame = frame.parent
    value = lw.state.get((lw.here.top.id, node.id))
    if value is not None:
        return _by_name_if_unknown(force(lw, value), node.id)
    starred = from_stars(lw, lw.here.top, node.id)
    if starred is not None:
        return starred
    guess = names.by_name(node.id)
    return guess if guess is not None else Ext(name=f"builtins.{node.id}", text=node.id)


def _by_name_if_unknown(value: Value, text: str) -> Value:
    if isinstance(value, Unknown) and not value.taint and not value.deps:
        guess = names.by_name(text)
        if guess is not None:
            return guess
    return value if value.text or isinstance(value, Const) else named(value, text)


def attribute(lw: Lowering, owner: Value, attr: str, node: ast.AST) -> Value:
    """`owner.attr`."""
    if isinstance(owner, Ext):
        return Ext(name=canonical(f"{owner.name}.{attr}"), text=attr)
    target = the_object(owner, "ddp") or the_object(owner)
    if target is None:
        for option in options(owner):
            if isinstance(option, (Ext, Func)):
                return attribute(lw, option, attr, node) if isinstance(option, Ext) else Unknown(text=attr)
        guess = names.by_name(attr)
        if guess is not None and not isinstance(owner, Const):
            return guess
        text = f"{owner.text}.{attr}" if owner.text else attr
        if attr in TENSOR_FACTS:
            return Unknown(taint=owner.taint - {DATA, RANDOM}, text=text)
        return Bound(receiver=owner, name=attr, taint=owner.taint, deps=owner.deps, text=text)
    if target.kind == "ddp":
        return _wrapper_attribute(lw, target, attr, node)
    return object_attribute(lw, target, attr, node, owner)


def object_attribute(lw: Lowering, target: Obj, attr: str, node: ast.AST, owner: Value | None = None) -> Value:
    """An attribute of an object: its slot, a method or a property of its class, an option of a namespace, or nothing known."""
    from ddp_audit.program.functions import call_function
    from ddp_audit.program.imports import module_attribute

    if target.kind == "python-module":
        return module_attribute(lw, target, attr)
    slot = lw.state.get((target.key, attr))
    if slot is not None:
        return _by_name_if_unknown(slot, attr)
    info = target.cls
    if isinstance(info, ClassInfo):
        found = info.find(attr)
        if found is not None:
            holder, method = found
            function = FunctionInfo(attr, method, holder.frame, holder)
            kinds = {ast.unparse(d).split("(")[0].split(".")[-1] for d in method.decorator_list}
            if kinds & {"property", "cached_property"}:
                return call_function(lw, function, [], {}, node, receiver=target)
            if "staticmethod" in kinds:
                return Func(definition=function, text=attr)
            return Func(definition=function, receiver=target, text=attr)
        value = class_attribute(lw, info, attr)
        if value is not None:
            return value
    guess = names.by_name(attr)
    if guess is not None and target.kind in ("namespace", "instance", "parser"):
        return guess
    text = f"{target.text}.{attr}" if target.text else attr
    return Bound(receiver=owner if owner is not None else target, name=attr, taint=target.taint, text=text)


def class_attribute(lw: Lowering, info: ClassInfo, attr: str) -> Value | None:
    """A class variable, here or in a base of the project."""
    value = lw.state.get((("class", info.frame.source.path, info.name), attr))
    if value is not None:
        return value
    for base in info.bases:
        if isinstance(base, Obj) and isinstance(base.cls, ClassInfo) and base.cls is not info:
            value = class_attribute(lw, base.cls, attr)
            if value is not None:
                return value
    return None


def _wrapper_attribute(lw: Lowering, wrapper: Obj, attr: str, node: ast.AST) -> Value:
    if attr == "module":
        inner: Value = wrapper.info
        return inner
    slot = lw.state.get((wrapper.key, attr))
    if slot is not None:
        return slot
    subclass = the_object(lw.state.get((wrapper.key, "__class__")), "class")
    if subclass is not None and isinstance(subclass.cls, ClassInfo):
        found = subclass.cls.find(attr)
        if found is not None:
            return Func(definition=FunctionInfo(attr, found[1], found[0].frame, found[0]), receiver=wrapper, text=attr)
        if subclass.cls.find("__getattr__") is not None:
            return Bound(receiver=wrapper, name=attr, text=f"{wrapper.text}.{attr}")
    if attr not in WRAPPER_ATTRIBUTES and attr not in MODULE_ATTRIBUTES and not attr.startswith("_"):
        lw.emit("attribute", node, target=wrapper, name=attr)
    return Bound(receiver=wrapper, name=attr, text=f"{wrapper.text}.{attr}")


def assign_attribute(lw: Lowering, node: ast.Attribute, owner: Value, attr: str, value: Value) -> None:
    """`owner.attr = value`."""
    lw.effects += 1
    if attr == "require_backward_grad_sync":
        lw.emit("sync-flag", node, target=owner, args={"value": value})
    target = the_object(owner, "ddp") or the_object(owner)
    if target is None:
        return
    if target.kind == "python-module":
        frame: Frame = target.info
        lw.state[(frame.id, attr)] = value
        return
    note_forced_device(lw, node, lw.state.get((target.key, attr)), value)
    kept = value if isinstance(value, Const) else named(value, f"{target.text or 'self'}.{attr}")
    lw.state[(target.key, attr)] = kept
    if the_object(value, "ddp") is not None:
        lw.holders.add(target.key)
    for option in options(value):
        adopt(lw, target, option)


def note_forced_device(lw: Lowering, node: ast.expr, old: Value | None, value: Value) -> None:
    """Notes an assignment that replaces an option which names a device by the CUDA device of the process."""
    if not isinstance(old, Const) or old.default is None or not isinstance(old.value, str) or RANK not in value.taint:
        return
    if any(default.name == old.default.name for default in defaults_in(value)):
        return  # it says which device of the kind that the option names
    chosen = compute(value, World(0, 2, 2))
    if isinstance(chosen, str) and chosen.startswith("cuda"):
        lw.emit("forced-device", node, args={"old": old, "value": value})


def adopt(lw: Lowering, parent: Obj, value: Value) -> None:
    """Notes that module objects in `value` are inside the module `parent`."""
    if parent.kind not in ("module", "instance"):
        return
    for option in options(value):
        if isinstance(option, Obj) and option.kind == "module":
            lw.children.setdefault(parent.key, set()).add(option.key)
        elif isinstance(option, Items):
            for inner in option.items:
                adopt(lw, parent, inner)


# ---- operators


def _binary(lw: Lowering, node: ast.BinOp, left: Value, op: str, right: Value) -> Value:
    if op == "//":
        lw.emit("floordiv", node, args={"left": left, "right": right}, name="")
    if op == "+" and isinstance(left, Items) and isinstance(right, Items) and left.keys is None:
        return replace(left, items=left.items + right.items, taint=left.taint | right.taint)
    return operation(op, left, right, text=lw.text(node))


def _compare(lw: Lowering, node: ast.Compare, left: Value, ops: list[ast.cmpop], right: list[Value]) -> Value:
    parts: list[Value] = []
    for op, other in zip(ops, right, strict=True):
        sign = names.OPERATORS[type(op)]
        parts.append(_one_compare(left, sign, other, lw.text(node)))
        left = other
    return parts[0] if len(parts) == 1 else operation("and", *parts, text=lw.text(node))


def _one_compare(left: Value, sign: str, right: Value, text: str) -> Value:
    if sign in ("in", "not in") and isinstance(right, Ext) and right.name == "os.environ" and isinstance(left, Const):
        if left.value in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            return Const(value=sign == "in", text=text)
        return Unknown(text=text)
    if isinstance(right, Items) and right.keys is not None and sign in ("in", "not in"):
        right = Items(items=right.keys, taint=right.taint)
    result = operation(sign, _number(left, right), _number(right, left), text=text)
    if sign in ("is", "is not") and isinstance(right, Const) and right.value is None:
        return replace(result, taint=result.taint - {DATA})  # whether there is a value is no matter of what is in it
    return result


def _number(value: Value, other: Value) -> Value:
    """A digit string that is compared with a number of the environment counts as that number."""
    if isinstance(value, Const) and isinstance(value.value, str) and isinstance(other, Expr) and value.value.lstrip("-").isdigit():
        return replace(value, value=int(value.value))
    return value


def _yielded(lw: Lowering, value: Value, whole: bool = False) -> None:
    """Notes a yield of the running function; of every element of `value` where it is a `yield from`."""
    frame = lw.here
    loops = lw.loops[frame.loop_base :]
    loop = loops[-1] if loops else None
    if whole:
        loop = Loop(frame.source.span(frame.source.tree.body[0]), "for", value, value.text)
    frame.returns.append(((), value))
    guards, blocks = tuple(lw.guards[frame.guard_base :]), tuple(lw.no_sync[frame.no_sync_base :])
    frame.yields.append(Yielded(value, guards, blocks, lw.grad, loop))


def _logic(lw: Lowering, node: ast.BoolOp, op: str, parts: list[ast.expr]) -> Value:
    """`a and b()`: what comes after the first operand runs only where those before it have not decided."""
    values = [lw.eval(parts[0])]
    for part in parts[1:]:
        if not any(isinstance(inner, ast.Call) for inner in ast.walk(part)):
            values.append(lw.eval(part))
            continue
        before = values[0] if len(values) == 1 else operation(op, *values)
        outer, lw.block = lw.block, []
        # The text of the guard is that of the operands before this one, which stand first in the source of the node.
        guard = replace(lw.guard(before, op == "and", parts[len(values) - 1], "ifexp"), against_default=False)
        lw.guards.append(guard)
        values.append(lw.eval(part))
        lw.guards.pop()
        inner_block, lw.block = lw.block, outer
        if inner_block and not lw.muted:
            then: list[Item] = inner_block if op == "and" else []
            orelse: list[Item] = [] if op == "and" else inner_block
            lw.block.append(Branch(replace(guard, polarity=True), then, orelse))
    return operation(op, *values, text=lw.text(node))


def _conditional(lw: Lowering, node: ast.IfExp) -> Value:
    test = lw.eval(node.test)
    settled = lw.settled(node.test, test, [ast.Expr(node.body)], [ast.Expr(node.orelse)])
    if settled is not None:
        return lw.eval(node.body if settled else node.orelse)
    outer, values = lw.block, []
    blocks: list[list[Item]] = []
    guards: list[Guard] = []
    for part, polarity in ((node.body, True), (node.orelse, False)):
        lw.block = []
        guards.append(lw.guard(test, polarity, node.test, "ifexp"))
        lw.guards.append(guards[-1])
        values.append(lw.eval(part))
        lw.guards.pop()
        blocks.append(lw.block)
    lw.block = outer
    if not lw.muted and any(blocks):
        lw.block.append(Branch(guards[0], blocks[0], blocks[1]))
    if any(g.against_default for g in guards) and any(isinstance(v, Obj) for v in values):
        return values[1] if guards[0].against_default else values[0]  # as the defaults have it
    return merge_value(test, values[0], values[1])


def _dict(lw: Lowering, keys: list[ast.expr | None], values: list[Value]) -> Value:
    found_keys: list[Value] = []
    found_values: list[Value] = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            if isinstance(value, Items) and value.keys is not None:
                found_keys += value.keys
                found_values += value.items
        else:
            found_keys.append(lw.eval(key))
            found_values.append(value)
    return Items(items=tuple(found_values), keys=tuple(found_keys), kind="dict", taint=join_taint(*values), deps=join_deps(*values))


def _comprehension(lw: Lowering, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    taint: Taint = UNIFORM
    count: Value | None = None
    for generator in node.generators:
        over = lw.eval(generator.iter)
        element, passes, _ = iterate(lw, generator.iter, over)
        count = passes if len(node.generators) == 1 and not generator.ifs else None
        lw.assign(generator.target, element)
        taint |= over.taint
        for condition in generator.ifs:
            taint |= lw.eval(condition).taint
    if isinstance(node, ast.DictComp):
        lw.eval(node.key)
        value = lw.eval(node.value)
        return Unknown(taint=taint | value.taint, deps=value.deps)
    value = lw.eval(node.elt)
    kind = "set" if isinstance(node, ast.SetComp) else "list"
    return Items(items=(value,), kind=kind, taint=taint | value.taint, deps=value.deps, many=True, count=count)


# ---- subscripts and iteration


def item(value: Value, index: int) -> Value:
    """Element `index` of an unpacked value."""
    if isinstance(value, Items) and value.keys is None and index < len(value.items) and not value.many:
        return value.items[index]
    if isinstance(value, Alt):
        found = [item(o, index) for o in value.options]
        if any(isinstance(f, Obj) for f in found):
            return next(f for f in found if isinstance(f, Obj))
    return Unknown(taint=value.taint, deps=value.deps)


def environment(variable: str, default: Value | None = None) -> Value:
    """An environment variable, as every worker of a distributed run sees it."""
    kind = names.ENVIRONMENT.get(variable)
    return leaf(kind) if kind else Unknown(text=f"os.environ[{variable!r}]", taint=UNIFORM if default is None else default.taint)


def subscript(lw: Lowering, node: ast.Subscript, owner: Value, index: Value) -> Value:
    """`owner[index]`."""
    text = lw.text(node)
    if isinstance(owner, Ext) and owner.name == "os.environ" and isinstance(index, Const):
        return environment(str(index.value))
    if isinstance(owner, Items) and isinstance(index, Const):
        if owner.keys is not None:
            for key, value in zip(reversed(owner.keys), reversed(owner.items), strict=True):
                if isinstance(key, Const) and key.value == index.value:
                    return value
        elif isinstance(index.value, int) and -len(owner.items) <= index.value < len(owner.items):
            return owner.items[index.value]
    if isinstance(owner, Items) and owner.keys is not None and owner.items:
        return owner.items[0] if len(owner.items) == 1 else Unknown(taint=owner.taint | index.taint, deps=owner.deps, text=text)
    if isinstance(index, Const) and isinstance(index.value, str):
        guess = names.by_name(index.value)
        if guess is not None and not owner.deps:
            return guess
    if isinstance(owner, Ext):
        return owner
    return Unknown(taint=owner.taint | index.taint, deps=owner.deps, text=text)


def assign_item(lw: Lowering, node: ast.Subscript, owner_node: ast.expr, index: Value, value: Value) -> None:
    """`owner[index] = value`."""
    lw.effects += 1
    owner = lw.eval(owner_node)
    if isinstance(owner, Ext) and owner.name == "os.environ" and isinstance(index, Const):
        lw.emit("environ", node, args={"value": value}, name=str(index.value))
    elif isinstance(owner, Items) and owner.keys is not None and isinstance(index, Const):
        kept = [
            (k, v) for k, v in zip(owner.keys, owner.items, strict=True) if not (isinstance(k, Const) and k.value == index.value)
        ]
        kept.append((index, value))
        keys, items = tuple(k for k, _ in kept), tuple(v for _, v in kept)
        lw.assign(owner_node, Items(items=items, keys=keys, kind="dict", taint=join_taint(*items), deps=join_deps(*items)))
    elif isinstance(owner_node, (ast.Name, ast.Attribute)) and isinstance(owner, Unknown) and not value.taint <= owner.taint:
        lw.assign(owner_node, replace(owner, taint=owner.taint | value.taint))


def iterate(lw: Lowering, node: ast.expr, over: Value) -> tuple[Value, Value | None, Taint]:
    """What a for loop over a value yields: the element, the number of iterations where known, why that can differ by rank."""
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
                return Items(items=elements, kind="tuple", taint=join_taint(*elements)), None, UNIFORM
            case "generator":
                source, element = target.info
                lw.emit("iterate", node, target=source)
                return element, None, UNIFORM
            case "loader" | "dataset" | "iterable-dataset":
                lw.emit("iterate", node, target=target)
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
    text = over.text.lower()
    taint = over.taint | (frozenset({DATA}) if any(part in text for part in _LOADER_NAME) else UNIFORM)
    return Unknown(taint=taint, deps=over.deps), None, over.taint - {DATA}


def _position(node: ast.expr, start: Value, step: Value | None = None) -> Value:
    """The index of a loop over range() or enumerate(): a leaf that counts iterations from 0, with what the call makes of it."""
    index: Value = Expr(op=f"loop:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}", text="index")
    if step is not None and not (isinstance(step, Const) and step.value == 1):
        index = operation("*", index, step, text="index")
    return index if isinstance(start, Const) and start.value == 0 else operation("+", start, index, text="index")


def context_effect(context: Value) -> str:
    """What a context manager does to gradients: no_grad, enable_grad, or nothing."""
    if isinstance(context, Ext) and context.name in ("torch.no_grad", "torch.inference_mode"):
        return "no_grad"
    target = the_object(context, "context")
    return str(target.info) if target is not None and target.info else ""


def entered(context: Value) -> Value:
    """What `with .. as name` binds."""
    if isinstance(context, (Obj, Expr, Const)):
        return context
    return Unknown(taint=context.taint, deps=context.deps)


def canonical(full_name: str) -> str:
    """One name for a thing that a library offers under several."""
    for long, short in _ALIASES:
        if full_name.startswith(long):
            return short + full_name[len(long) :]
    return full_name


_ALIASES = (
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.optim.adamw.", "torch.optim."),
    ("torch.optim.lr_scheduler.", "torch.lr_scheduler."),
    ("torch.autograd.grad_mode.", "torch."),
)


def is_open(value: Value) -> bool:
    """Whether a value rests on a default that a user may override."""
    return any(d.open for d in defaults_in(value))


__all__ = [
    "Any",
    "adopt",
    "assign_attribute",
    "assign_item",
    "attribute",
    "canonical",
    "environment",
    "evaluate",
    "item",
    "iterate",
]
