"""Windows of micro-batches whose gradients are accumulated for one step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddp_audit.program.guards import Loop
from ddp_audit.program.losses import is_world_size
from ddp_audit.program.made import behind
from ddp_audit.program.meaning import comes_from, is_kind
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Drawing, Iterate, Node, Step, ZeroGrad
from ddp_audit.program.values import MISSING, Alt, Const, Expr, Obj, Unknown, Value, World, evaluate


def window_of(program: Program, backward: Node) -> Value | None:
    """The number of micro-batches that are accumulated for one step, where the code says it in one value."""
    for step in program.of(Step):
        if step.number < backward.number or backward.calls[:1] != step.calls[:1]:
            continue
        if backward.loops == step.loops:
            own = [g for g in step.guards if not any(g.span == other.span for other in backward.guards)]
            zeros = [z for z in program.of(ZeroGrad) if z.loops == step.loops]
            # One before the backward, under the step's own condition, throws away what the micro-batches before it have added.
            guarded = zeros and all(
                z.number > backward.number and any(g.span == o.span or g.text == o.text for o in z.guards for g in own)
                for z in zeros
            )
            found = [w for g in own for w in _ends_of(g.test)]
            return found[0] if found and guarded else None
        if backward.loops[:-1] == step.loops:
            inner = backward.loops[-1]
            cleared = [z for z in program.of(ZeroGrad) if inner in z.loops]
            window = None if cleared or not _takes_new_batches(program, inner, backward) else passes_of(inner)
            one = isinstance(window, Const) and window.default is None and window.value == 1
            return None if one else window
    return None


def _takes_new_batches(program: Program, loop: Loop, backward: Node) -> bool:
    """Whether each pass of a loop sends a batch of its own through the model, not another part or view of one batch."""
    forwards = [n for n in program.forwards_of(backward.target) if loop in n.loops]
    tree = _loop_tree(program, loop)
    if not forwards or tree is None:
        return False
    index = {node.id for node in ast.walk(tree.target) if isinstance(node, ast.Name)}
    parts = isinstance(loop.over, Obj) and loop.over.kind in ("zip", "enumerate")
    new = index if parts or _of_call(loop.over) is not None else set()
    stored: dict[str, list[ast.expr]] = {}
    sources = {"self", *_imported(program, loop)}  # whose methods give new values, as those of a tensor do not
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.NamedExpr, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)):
                stored.setdefault(name, []).append(node.value)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    places = {(n.span.line, n.span.column) for n in forwards if n.span.path == loop.span.path}
    given = [argument for call in calls if (call.lineno, call.col_offset + 1) in places for argument in call.args]
    if not given:  # the forward is in a function that the loop calls
        return any(loop in node.loops for node in program.of(Iterate, Drawing))
    body = _Body(stored, frozenset(index), frozenset(new), frozenset(sources))
    return any(_is_new(argument, body) for argument in given)


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of a loop: what it binds to each name, the names of its index, those that hold a new batch, and modules."""

    stored: Mapping[str, Sequence[ast.expr]]
    index: frozenset[str]
    new: frozenset[str]
    sources: frozenset[str]


def _is_new(value: ast.expr, body: _Body, depth: int = 0) -> bool:
    """Whether an expression takes something new in each pass: by a call, or by a name that the loop binds to one."""
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    if names & body.new:
        return True
    if any(isinstance(node, ast.Subscript) and names & body.index for node in ast.walk(value)) or depth > 4:
        return False
    calls = (node.func for node in ast.walk(value) if isinstance(node, ast.Call))
    if any(not isinstance(function, ast.Attribute) or _root(function) in body.sources for function in calls):
        return True
    return any(_is_new(bound, body, depth + 1) for name in names for bound in body.stored.get(name, ()))


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _tree(program: Program, loop: Loop) -> ast.Module:
    source = program.files.get(loop.span.path)
    return ast.Module([], []) if source is None else source.tree


def _loop_tree(program: Program, loop: Loop) -> ast.For | ast.AsyncFor | None:
    """The statement of a for loop."""
    nodes = ast.walk(_tree(program, loop))
    return next((n for n in nodes if isinstance(n, (ast.For, ast.AsyncFor)) and n.lineno == loop.span.line), None)


def _imported(program: Program, loop: Loop) -> set[str]:
    """The names that the file of a loop imports."""
    imports = (node for node in ast.walk(_tree(program, loop)) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return {alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names}


def passes_of(loop: Loop) -> Value | None:
    """How often a loop runs where that is a number of its own: not the length of what is loaded, which makes an epoch of it."""
    count = loop.count
    over = loop.over
    if isinstance(over, Obj) and over.kind == "zip":
        count = next((part.info for part in over.info if isinstance(part, Obj) and part.kind == "range"), None)
    elif isinstance(over, Obj) and over.kind == "enumerate":
        count = _of_call(over.info) or count
    count = _of_call(over) or count
    if not isinstance(count, Value):
        return None
    return None if comes_from(count, "length") else count


def _of_call(over: Value) -> Value | None:
    """The number of parts that a call gives: `batch.chunk(4)`."""
    by = over.by if isinstance(over, Unknown) else None
    return by.args[1] if by is not None and is_kind(by.name, "parts-of-batch") and len(by.args) == 2 else None


def _ends_of(test: Value) -> Iterator[Value]:
    """Windows that a condition asks for: `(i + 1) % window == 0`, or a counter that has come to the window."""
    for value in behind(test):
        if isinstance(value, Expr) and value.op == "%" and len(value.args) == 2:
            yield value.args[1]
    match test:
        case Expr(op="==" | ">=", args=(counter, Const() | Expr() as window)) if _is_counter(counter):
            yield window


def _is_counter(value: Value) -> bool:
    """Whether a value is one that a loop adds to: it is not known inside the loop."""
    while isinstance(value, Expr) and value.op == "+" and isinstance(value.args[1], Const):
        value = value.args[0]
    parts = value.options if isinstance(value, Alt) else (value,)
    return any(isinstance(part, Unknown) and part.by is None and bool(part.text) for part in parts)


def is_window_itself(value: Value, window: Value) -> bool:
    """Whether a divisor is the window: one value, one option, or the same number written twice."""
    while isinstance(window, Expr) and window.op in ("int", "float"):
        window = window.args[0]
    for part in behind(value):
        if isinstance(part, Const) and isinstance(window, Const):
            if part.default is not None and window.default is not None:
                if part.default.name == window.default.name:
                    return True
            elif part.value == window.value:
                return True
        elif (part.text and part.text == window.text) or _are_equal(part, window):
            return True
    return False


def _are_equal(one: Value, other: Value) -> bool:
    """Whether two computed numbers are equal in every job."""
    if not isinstance(one, Expr) or not isinstance(other, Expr):
        return False
    found = [(evaluate(one, world), evaluate(other, world)) for world in (World(0, 2, 2), World(0, 4, 2), World(0, 5, 5))]
    return all(left is not MISSING and left == right for left, right in found)


def is_made_of_window(factor: Value, window: Value) -> bool:
    """Whether a factor is made of the window, such as 1 / window."""
    return not is_world_size(factor) and is_window_itself(factor, window)
