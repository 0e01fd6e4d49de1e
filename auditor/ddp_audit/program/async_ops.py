"""Asynchronous collectives and messages: the buffers that are in flight, what touches one before its wait, and the waits.

A buffer is known by the variable or attribute that names it where the call is made. Its slot in the state holds the handle until
something waits for it; a wait for a handle that is not known may be for any of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.meaning import says
from ddp_audit.program.nodes import EarlyUse, Wait
from ddp_audit.program.slots import Key
from ddp_audit.program.values import Bound, Const, Ext, Func, Obj, Value, options, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.program.state import Frame

# Parameters of operations that only read the buffer, so that it may be read, and must not be written, while they run.
_READS = frozenset({"tensor", "input_tensor", "input", "input_list", "input_tensor_list", "scatter_list", "tensors"})
_BUFFERS = (
    "tensor", "tensors", "tensor_list", "output_tensor", "input_tensor", "output", "input", "input_list", "gather_list",
    "scatter_list", "output_tensor_list", "input_tensor_list", "output_tensor_lists",
)  # fmt: skip


def is_async(given: dict[str, Value]) -> bool:
    """Whether a collective is given async_op=True, and not as an option that may be off."""
    value = given.get("async_op")
    return isinstance(value, Const) and value.value is True and value.default is None


def launch(lw: Lowering, node: ast.Call, op: str, parameters: Iterable[str], issued: int | None) -> Obj:
    """The handle of an asynchronous operation; its buffers are in flight from here."""
    work = Obj(key=("work", lw.span(node), lw.way()), kind="work", made=lw.span(node), text=lw.text(node))
    arguments = dict(zip(parameters, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    for name in _BUFFERS:
        argument = arguments.get(name)
        if argument is None:
            continue
        written = name not in _READS or is_kind(op, "writes-its-tensor")
        for buffer in _named(argument):
            key = _slot(lw, buffer)
            if key is not None:
                lw.flying[key] = None
                info = (op, lw.text(buffer), written, issued)
                lw.state[key] = Obj(key=work.key, kind="work", made=work.made, info=info, text=work.text)
    lw.effects += 1
    return work


def touch(lw: Lowering, expression: ast.expr, node: ast.AST, write: bool = False) -> None:
    """Notes that the elements of a buffer are read or written, where it is in flight."""
    if not lw.flying:
        return
    for buffer in _named(expression):
        key = _slot(lw, buffer)
        if key is not None and key in lw.flying:
            _note(lw, key, node, write)


def touch_gradients(lw: Lowering, node: ast.AST) -> None:
    """Notes that an optimizer reads every gradient."""
    for key in list(lw.flying):
        if key[1] == "grad" or key[1].endswith(".grad"):
            _note(lw, key, node, False)


def _note(lw: Lowering, key: Key, node: ast.AST, write: bool) -> None:
    held = lw.state.get(key)
    works = [] if held is None else [o for o in options(held) if isinstance(o, Obj) and o.kind == "work"]
    for work in works:
        op, name, written, issued = work.info
        if write or written:
            sometimes = len(works) < len(list(options(held))) if held is not None else False
            lw.emit(node, EarlyUse(target=work, name=name, op=op, write=write, issued=issued, sometimes=sometimes))
            return


def after_call(lw: Lowering, node: ast.Call, function: Value, values: Iterable[Value]) -> None:
    """What a call does to buffers in flight: it reads or writes them, or waits. `values` are its arguments."""
    if not lw.flying:
        return
    name = ""
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in ("wait", "result", "get_future", "is_completed", "block_current_stream"):
            wait(lw, node, next((o.receiver for o in options(function) if isinstance(o, Bound)), None))
            return
        if not is_kind(name, "reads-no-element"):
            touch(lw, node.func.value, node, write=name.endswith("_") and not name.endswith("__"))
    elif isinstance(node.func, ast.Name):
        name = node.func.id
    given = [*node.args, *(k.value for k in node.keywords)]
    followed = any(isinstance(o, (Func, Obj)) for o in options(function))
    if (not followed and says(name, "waits")) or name == "barrier":
        wait(lw, node, None)
    elif _reads_arguments(function):
        for argument in given:
            touch(lw, argument, node)
    elif not followed and name not in ("append", "extend", "insert", "add", "put", "print"):
        for handle in (the_object(value, "work") for value in values):
            if handle is not None:
                wait(lw, node, handle)


def wait(lw: Lowering, node: ast.AST, handle: Value | None) -> None:
    """Notes a wait for a handle, or for any of several; for all of them where it is not known which."""
    works = [] if handle is None else [o for o in options(handle) if isinstance(o, Obj) and o.kind == "work"]
    waited = {work.key for work in works}
    lw.effects += 1
    lw.emit(node, Wait(target=works[0] if len(waited) == 1 else None))
    for key in lw.flying:
        held = the_object(lw.state.get(key), "work")
        if held is not None and (not waited or held.key in waited):
            lw.state[key] = Const(value=None)


def returned(lw: Lowering, value: ast.expr | None) -> None:
    """Notes which buffers in flight a function returns: by their place in a tuple, at -1 without one."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    found: dict[int, Key] = {}
    for place, part in enumerate(parts if lw.flying else []):
        key = _slot(lw, part) if isinstance(part, ast.Name) else None
        if key is not None and isinstance(lw.state.get(key), Obj):
            found[place if isinstance(value, ast.Tuple) else -1] = key
    # What another return gives may be another buffer.
    lw.here.handed = found if lw.here.handed in (None, found) else {}


def take_over(lw: Lowering, target: ast.expr, value: ast.expr) -> None:
    """Gives buffers that a called function returned in flight the names under which its caller knows them."""
    call, handed = lw.handed
    if call is not value or not handed:
        return
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    for place, held in handed.items():
        name = target if place == -1 else names[place] if place < len(names) else None
        work = lw.state.get(held)
        if not isinstance(name, ast.Name) or not isinstance(work, Obj) or any(isinstance(n, ast.Starred) for n in names):
            continue
        key = ("flight", lw.here.id), name.id
        op, _, written, issued = work.info
        lw.flying[key] = None
        lw.state[key] = Obj(key=work.key, kind="work", made=work.made, info=(op, name.id, written, issued), text=work.text)


def rebound(lw: Lowering, target: ast.expr) -> None:
    """Notes that a variable or attribute names something else from here."""
    if lw.flying:
        key = _slot(lw, target)
        if key in lw.flying and lw.state.get(key) is not None:
            lw.state[key] = Const(value=None)


def _reads_arguments(function: Value) -> bool:
    for option in options(function):
        match option:
            case Obj(kind="module" | "ddp" | "other-wrapper"):
                return True
            case Ext(name=name):
                library = name.startswith("torch.") and not name.startswith(("torch.distributed.", "torch.cuda."))
                return (library and not is_kind(name, "makes-alike")) or is_kind(name, "reads-elements")
    return False


def _named(expression: ast.expr) -> Iterator[ast.expr]:
    """The expressions in an argument that name a buffer."""
    match expression:
        case ast.Name() | ast.Attribute():
            yield expression
        case ast.Subscript(value=ast.Name() | ast.Attribute()):
            yield expression
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            for element in elts:
                yield from _named(element)


def _slot(lw: Lowering, expression: ast.expr) -> Key | None:
    """The slot of a buffer: by the frame of its variable, by the object of its attribute, else by its text in this frame."""
    match expression:
        case ast.Name(id=name):
            frame: Frame | None = lw.here
            while frame is not None and lw.state.get((frame.id, name)) is None:
                frame = frame.parent
            return ("flight", (frame or lw.here).id), name
        case ast.Attribute(value=ast.Name() as owner, attr=attr):
            target = the_object(lw.eval(owner))
            if target is not None:
                return ("flight", target.key), attr
            return ("flight", lw.here.id), f"{owner.id}.{attr}"
        case ast.Attribute() | ast.Subscript():
            return ("flight", lw.here.id), lw.text(expression)
    return None


__all__ = ["after_call", "is_async", "launch", "rebound", "returned", "take_over", "touch", "touch_gradients", "wait"]
