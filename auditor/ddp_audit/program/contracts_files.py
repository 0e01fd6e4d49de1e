"""What calls mean that touch files and folders: each is noted with its path, what it does, and whether others may do it too."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddp_audit.program.contracts import BY_METHOD, BY_NAME, Contract, contract, generic, method_made
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


@contract("builtins.open", "io.open", "gzip.open", "codecs.open")
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


@contract("pickle.dump", "json.dump", "yaml.dump", "yaml.safe_dump", "joblib.dump", "toml.dump")
def _dump(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target = _given(args, kwargs, 1, "stream")
    if _is_open_file(target):
        lw.emit(node, FileContent(target=target, content=_content(lw, args[0]) if args else None))
    elif called(node).startswith("joblib"):
        note(lw, node, "write", target, args[0] if args else None)
    return generic(args, kwargs, lw.text(node))


@contract("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "imageio.imwrite", "cv2.imwrite")
def _array(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "write", _given(args, kwargs, 0, "file"), args[1] if len(args) > 1 else None)
    return Const(value=None)


@contract("matplotlib.pyplot.savefig", "matplotlib.pyplot.imsave", "soundfile.write", "torchaudio.save", "scipy.io.wavfile.write")
def _output(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A picture or a sound of what this process computed."""
    path = next(iter(args), None) or next(
        (kwargs[name] for name in ("fname", "file", "uri", "filename") if name in kwargs), Unknown()
    )
    note(lw, node, "output", path)
    return Const(value=None)


@contract("torchvision.utils.save_image", "torchvision.io.write_png", "torchvision.io.write_jpeg", "torchvision.io.write_video")
def _image(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    named = next((kwargs[name] for name in ("fp", "filename") if name in kwargs), Unknown())
    note(lw, node, "output", args[1] if len(args) > 1 else named)
    return Const(value=None)


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


@contract("safetensors.torch.save_file", "torch.jit.save")
def _tensors(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "write", _given(args, kwargs, 1, "filename"), args[0] if args else None)
    return Const(value=None)


@contract("numpy.load", "numpy.loadtxt", "numpy.memmap", "pandas.read_csv", "pandas.read_parquet", "safetensors.torch.load_file")
def _read(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "read", _given(args, kwargs, 0, "file"))
    return generic(args, kwargs, lw.text(node), name=called(node))


@contract("urllib.request.urlretrieve", "torch.hub.download_url_to_file", "wget.download", "gdown.download")
def _download(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "download", _given(args, kwargs, 1, "filename"))
    return Unknown(text=lw.text(node))


# ---- folders and whole files


@contract("os.makedirs", "os.mkdir")
def _make_folder(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(
        lw,
        node,
        "mkdir",
        _given(args, kwargs, 0, "name"),
        safe=_is_true(kwargs.get("exist_ok", args[2] if len(args) > 2 else None)),
    )
    return Const(value=None)


@contract("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter")
def _summary(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Makes its folder, where it is not there, and a file of its own in it."""
    given = _given(args, kwargs, 0, "log_dir" if "log_dir" in kwargs else "logdir")
    if not isinstance(given, Unknown) or given.text:
        note(lw, node, "mkdir", given, safe=True)
    return generic(args, kwargs, lw.text(node), name="SummaryWriter")


@contract("os.remove", "os.unlink", "os.rmdir", "shutil.rmtree")
def _remove(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "remove", _given(args, kwargs, 0, "path"), safe=_is_true(kwargs.get("ignore_errors")))
    return Const(value=None)


@contract("os.rename", "os.replace", "shutil.move")
def _move(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "move", _given(args, kwargs, 0, "src"))
    return Const(value=None)


@contract("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree")
def _copy(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    note(lw, node, "write", _given(args, kwargs, 1, "dst"), Const(value=None))
    return Const(value=None)


def _exists(name: str) -> Contract:
    def ask(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        note(lw, node, "exists", _given(args, kwargs, 0, "path"))
        return generic(args, kwargs, lw.text(node), frozenset({FILES}), name)

    return ask


for _name in ("os.path.exists", "os.path.isfile", "os.path.isdir"):
    BY_NAME[_name] = _exists(_name)


# ---- paths


@contract("os.path.join", "posixpath.join")
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


BY_METHOD.update(
    save_pretrained=_save_pretrained, savefig=_save_figure,
    writerow=_write_row, writerows=_write_row, write=_write, writelines=_write,
    mkdir=_path_method("mkdir", "exist_ok"), write_text=_path_method("write"),
    write_bytes=_path_method("write"), unlink=_path_method("remove", "missing_ok"), rename=_path_method("move"),
    read_text=_path_method("read"), read_bytes=_path_method("read"), exists=_path_method("exists"),
    is_file=_path_method("exists"), is_dir=_path_method("exists"), open=_path_open,
)  # fmt: skip
