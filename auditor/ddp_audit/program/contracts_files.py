"""What calls mean that touch files and folders: each is noted with its path, what it does, and whether others may do it too."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import described, given, named
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.contracts import Contract, Contracts, generic, method_made
from ddp_audit.program.names import called
from ddp_audit.program.nodes import FileAccess, FileContent
from ddp_audit.program.operations import bounded
from ddp_audit.program.values import (
    FILES,
    UNIFORM,
    Bound,
    Const,
    Expr,
    Ext,
    Made,
    Obj,
    Unknown,
    Value,
    constant,
    join_taint,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_Method = Callable[["Lowering", ast.Call, Bound, list[Value], dict[str, Value]], "Value | None"]


def note(lw: Lowering, node: ast.Call, what: str, path: Value, content: Value | None = None, safe: bool = False) -> None:
    """Emits a file node."""
    args = {"path": path} if content is None else {"path": path, "content": content}
    lw.emit(node, FileAccess(args=args, what=what, safe=safe, name=called(node)))


def _given(args: list[Value], kwargs: dict[str, Value], position: int, name: str) -> Value:
    return args[position] if position < len(args) else kwargs.get(name, Unknown())


def _is_true(value: Value | None) -> bool:
    return value is not None and bool(constant(value)) if isinstance(value, Const) else isinstance(value, (Unknown, Expr))


# ---- open files


@CONTRACTS.of("builtins.open", "io.open", "gzip.open", "codecs.open")
def _open(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mode = constant(_given(args, kwargs, 1, "mode")) if len(args) > 1 or "mode" in kwargs else "r"
    return _opened(lw, node, args[0] if args else kwargs.get("file", Unknown()), mode)


def _opened(lw: Lowering, node: ast.Call, path: Value, mode: object) -> Value:
    text = mode if isinstance(mode, str) else ""
    what = "append" if "a" in text else "write" if set("wx+") & set(text) else "read" if text else ""
    if what:
        note(lw, node, what, path)
    made = Made("open", (path,), (("at", Const(value=lw.span(node))),))
    return Unknown(taint=frozenset({FILES}) | path.taint, text=lw.text(node), by=made)


def _is_open_file(value: Value) -> bool:
    return isinstance(value, Unknown) and value.by is not None and value.by.name == "open"


def _content(lw: Lowering, value: Value) -> Value:
    """What is written: an object with the taint of what it holds now."""
    holder = value.receiver if isinstance(value, Bound) and value.name == "__dict__" else value
    if not isinstance(holder, Obj) or holder.kind not in ("namespace", "instance"):
        return value
    return Unknown(taint=join_taint(value, *lw.state.of(holder.key).values()), text=value.text)


def _write(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if not _is_open_file(bound.receiver):
        return None
    lw.emit(node, FileContent(target=bound.receiver, content=_content(lw, args[0]) if args else None))
    return Unknown(text=lw.text(node))


def printed(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> None:
    """`print(.., file=f)`."""
    target = kwargs.get("file")
    if target is not None and _is_open_file(target):
        lw.emit(node, FileContent(target=target, content=generic(args, {})))


def _write_row(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`csv.writer(f).writerow(..)`."""
    by = bound.receiver.by if isinstance(bound.receiver, Unknown) else None
    if by is None or not by.name.startswith("csv.") or not by.args or not _is_open_file(by.args[0]):
        return None
    lw.emit(node, FileContent(target=by.args[0], content=_content(lw, args[0]) if args else None))
    return Unknown(text=lw.text(node))


@CONTRACTS.of("pickle.dump", "json.dump", "yaml.dump", "yaml.safe_dump", "joblib.dump", "toml.dump")
def _dump(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target = _given(args, kwargs, 1, "stream")
    if _is_open_file(target):
        lw.emit(node, FileContent(target=target, content=_content(lw, args[0]) if args else None))
    elif lw.calling.startswith("joblib."):
        note(lw, node, "write", target, args[0] if args else None)
    return generic(args, kwargs, lw.text(node))


@CONTRACTS.of("shutil.copyfileobj")
def _copy_content(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One open file, or what the network gives, into another."""
    arguments = given("shutil.copyfileobj", args, kwargs)
    target = arguments.get("fdst")
    if target is not None and _is_open_file(target):
        lw.emit(node, FileContent(target=target, content=arguments.get("fsrc")))
    return Const(value=None)


def _unpack(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`archive.extractall(folder)`; without a folder it is the working one."""
    by = bound.receiver.by if isinstance(bound.receiver, Unknown) else None
    if by is None or not is_kind(by.name, "archives"):
        return None
    note(lw, node, "unpack", _given(args, kwargs, 0, "path") if args or "path" in kwargs else Const(value="."))
    return Const(value=None)


def _touching(name: str) -> Contract:
    """The contract of a function that touches a file, as its description says."""
    table = described()[name]

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        arguments = given(name, args, kwargs)
        inside = table.get("content")
        content = Const(value=None) if inside == "" else arguments.get(inside or "")
        safe = _is_true(arguments.get(table.get("safe-if", "")))
        note(lw, node, table["file"], arguments.get(table["path"], Unknown()), content, safe)
        if table.get("gives") == "none":
            return Const(value=None)
        if table["file"] == "download":
            return Unknown(text=lw.text(node))
        return generic(args, kwargs, lw.text(node), frozenset({FILES}) if table["file"] == "exists" else UNIFORM, name)

    return call


CONTRACTS.names.update({name: _touching(name) for name in named("file")})


def _save_pretrained(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`model.save_pretrained(folder)`; with `is_main_process` the library lets one process write."""
    if not args and "save_directory" not in kwargs:
        return None
    note(lw, node, "output", args[0] if args else kwargs["save_directory"], safe="is_main_process" in kwargs)
    return Unknown(text=lw.text(node))


def _save_figure(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`figure.savefig(path)`."""
    if not args and "fname" not in kwargs:
        return None
    note(lw, node, "output", args[0] if args else kwargs["fname"])
    return Const(value=None)


# ---- folders and whole files


@CONTRACTS.of("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter")
def _summary(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Makes its folder, where it is not there, and a file of its own in it."""
    given = _given(args, kwargs, 0, "log_dir" if "log_dir" in kwargs else "logdir")
    if not isinstance(given, Unknown) or given.text:
        note(lw, node, "mkdir", given, safe=True)
    return generic(args, kwargs, lw.text(node), name="SummaryWriter")


# ---- paths


@CONTRACTS.of("os.path.join", "posixpath.join")
def _join(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    pieces: list[Value] = []
    for arg in args:
        pieces += [Const(value="/"), arg] if pieces else [arg]
    return bounded(Expr(op="format", args=tuple(pieces), taint=join_taint(*args), text=lw.text(node)))


def _path_method(what: str, flag: str = "") -> _Method:
    """A method of pathlib.Path that touches a file; only on something that reads as a path."""

    def call(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        if isinstance(bound.receiver, (Obj, Ext)) or not is_path(bound.receiver):
            return None
        content = args[0] if what == "write" and args else None
        note(lw, node, what, bound.receiver, content, safe=_is_true(kwargs.get(flag)))
        values = join_taint(bound.receiver, *args) | (frozenset({FILES}) if what == "exists" else UNIFORM)
        return Unknown(taint=values, text=lw.text(node), by=method_made(bound, args, kwargs))

    return call


def _path_open(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if isinstance(bound.receiver, (Obj, Ext)) or not is_path(bound.receiver):
        return None
    return _opened(lw, node, bound.receiver, constant(_given(args, kwargs, 0, "mode")) if args or "mode" in kwargs else "r")


_PATH_AGAIN = ("with_suffix", "with_name", "resolve", "absolute", "expanduser")


def is_path(value: Value) -> bool:
    """Whether a value is a pathlib.Path, or computed from one by `/`."""
    match value:
        case Unknown(by=Made(name=name, args=args)) if name in _PATH_AGAIN:
            return is_path(args[0])
        case Unknown(by=Made(name=name)):
            return name.startswith("pathlib.")
        case Expr(op="/", args=(left, _)):
            return is_path(left)
    return False


CONTRACTS.methods.update(
    save_pretrained=_save_pretrained, extractall=_unpack, savefig=_save_figure,
    writerow=_write_row, writerows=_write_row, write=_write, writelines=_write,
    mkdir=_path_method("mkdir", "exist_ok"), write_text=_path_method("write"),
    write_bytes=_path_method("write"), unlink=_path_method("remove", "missing_ok"), rename=_path_method("move"),
    read_text=_path_method("read"), read_bytes=_path_method("read"), exists=_path_method("exists"),
    is_file=_path_method("exists"), is_dir=_path_method("exists"), open=_path_open,
)  # fmt: skip
