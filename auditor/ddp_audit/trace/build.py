"""Builds the native kernel into the cache: `python -m ddp_audit.trace.build`.

Needs a C++ compiler that knows C++20 ($CXX, c++, g++ or clang++) and the headers of Python. A build that was made is tried in a
process of its own before it gets its place, so that none that crashes is ever loaded into a rank.

`start_in_background` is what `trace` does by itself: once for a torch, a Python and a state of the sources, in a process that gives
way to all others and outlives the run.
"""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from ddp_audit.trace.worker import native

_TRY = "--try"
_ENSURE = "--ensure"
_BACKGROUND = "--background"
_WHY_NOT = "not-built"  # next to the place of a build: why it could not be made in the background
_LOCK = "building"
_NO_KERNEL = "ddp-audit: no native kernel, the Python kernel records"
_MOST_SECONDS = 600


class BuildError(Exception):
    """The native kernel cannot be built here. The text is one line."""


def ensure_built(tell: Callable[[str], None]) -> bool:
    """Builds the native kernel for this interpreter where it is not built yet, in a process of its own.

    Tells in one line that it builds, and in another that it could not. Returns whether there is a build now.
    """
    try:
        with subprocess.Popen([sys.executable, "-m", "ddp_audit.trace.build", _ENSURE], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout or ():
                tell(line.rstrip())
        return child.returncode == 0
    except OSError as error:
        tell(f"{_NO_KERNEL}: {_one_line(str(error))}")
        return False


def start_in_background() -> bool:
    """Begins a build for the next runs without one, if what it needs is there. Whether it did.

    What has failed so is not tried again for the same torch, Python and sources. Does not import torch.
    """
    try:
        target = _expected()
        if target is None or native.is_built(str(target)) or target.with_name(_WHY_NOT).exists():
            return False
        if find_compiler() is None or not _python_header().is_file():
            return False
        words = [sys.executable, "-m", "ddp_audit.trace.build", _BACKGROUND]
        quiet = subprocess.DEVNULL
        # Not from the folder of the command, whose modules `-m` would find first.
        subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd=native.folder())
    except OSError:
        return False
    return True


def _expected() -> Path | None:
    """Where the build for the torch of this interpreter belongs, read from torch's files; None where they do not say."""
    spec = None if sysconfig.get_config_var("Py_GIL_DISABLED") else importlib.util.find_spec("torch")
    found: dict[str, str] = {}
    for folder in (spec and spec.submodule_search_locations) or ():
        text = (Path(folder) / "version.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[target.id] = value.value
    if "__version__" not in found or "git_version" not in found:
        return None
    return Path(native.path_of(found["__version__"], found["git_version"]))


def _build_for_later() -> None:
    """Builds unless another process does, and leaves word where that fails."""
    os.nice(19)
    target = Path(native.build_path())
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with target.with_name(_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        try:
            if not native.is_built(str(target)):
                build()
        except BuildError as error:
            target.with_name(_WHY_NOT).write_text(f"{error}\n", encoding="utf-8")


def build() -> Path:
    """Compiles, tries, and puts the build into the cache; returns its path. Raises BuildError."""
    try:
        target = Path(native.build_path())
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            _run(_compile_command(made), "does not compile")
            made.chmod(0o755)
            _run([sys.executable, "-m", "ddp_audit.trace.build", _TRY, str(made)], "compiles but does not work")
            made.replace(target)  # two builders at once: each puts a whole file there
    except OSError as error:
        raise BuildError(f"the build cannot be kept: {error}") from error
    return target


def _compile_command(made: Path) -> list[str]:
    import torch

    compiler = find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler ($CXX, c++, g++ or clang++)")
    header = _python_header()
    if not header.is_file():
        raise BuildError(f"the headers of Python are not in {header.parent}")
    root = Path(torch.__file__).parent
    if not (root / "include" / "torch" / "library.h").is_file():
        raise BuildError(f"the headers of torch are not in {root / 'include'}")
    includes = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include", header.parent]
    libraries = ["torch_python", "torch_cpu", "torch", "c10"]
    return [
        *compiler,
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(word for folder in includes for word in ("-isystem", str(folder))),
        *("-o", str(made), str(Path(native.folder()) / native.SOURCE)),
        f"-L{root / 'lib'}",
        *(f"-l{name}" for name in libraries),
    ]


def _python_header() -> Path:
    return Path(sysconfig.get_paths()["include"]) / "Python.h"


def find_compiler() -> list[str] | None:
    """The command of a C++ compiler, or None."""
    for command in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        words = shlex.split(command)
        if words and shutil.which(words[0]) is not None:
            return words
    return None


def _run(command: list[str], what: str) -> None:
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"it {what}: {_one_line(str(error))}") from error
    if outcome.returncode:
        lines = [line for line in outcome.stderr.splitlines() if "error" in line.lower()] or outcome.stderr.splitlines()
        raise BuildError(f"it {what}: {_one_line(lines[0] if lines else f'exit code {outcome.returncode}')}")


def try_build(path: str) -> None:
    """Records one collective of torch's fake process group with a build. Raises where that does not work."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from ddp_audit import events
    from ddp_audit.trace.store import load_run
    from ddp_audit.trace.worker.hook import Hook
    from ddp_audit.trace.worker.tracer import Tracer

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    with tempfile.TemporaryDirectory() as folder:
        tracer = Tracer(folder)
        tracer.open(0, 2)
        hook = Hook(tracer, native.load(path))
        for _ in range(2):
            dist.all_reduce(torch.ones(4))
        hook.remove()
        seen = [(e.op, e.numel, e.index) for e in load_run(folder).ranks[0].events if e.kind == events.COLLECTIVE]
    if tracer.failed or seen != [("all_reduce", 4, 0), ("all_reduce", 4, 1)]:
        raise BuildError(f"error: a trial recorded {seen}")


def main(words: list[str]) -> int:
    """Without arguments: builds and prints the path. For the rest of this module: `--ensure` builds where there is no build,
    `--background` does so without a word, `--try FILE` tries one."""
    if words[:1] == [_TRY]:
        try_build(words[1])
        return 0
    if words == [_BACKGROUND]:
        _build_for_later()
        return 0
    try:
        if words == [_ENSURE]:
            if not native.is_built(native.build_path()):
                print("ddp-audit: building the native kernel (once for this torch and Python; takes about a minute)", flush=True)
                build()
        else:
            print(build())
    except BuildError as error:
        if words == [_ENSURE]:
            print(f"{_NO_KERNEL}: {error}")
        else:
            print(error, file=sys.stderr)
        return 2
    return 0


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
