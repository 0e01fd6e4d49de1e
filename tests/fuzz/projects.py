"""Programs of several files: a script `train.py` and the modules that it imports, with none to all of them spoiled.

`project(random)` draws one: a case that has modules of its own, a real file of which some definitions were moved into modules, or
programs that nobody wrote and that import each other. Modules may lie in a package, lack, import the script back, or each other.
"""

from __future__ import annotations

import ast
import functools
import random
import textwrap

from mutations import ROOT, sources, spoiled, tree_of
from programs import program

Files = dict[str, bytes]
_MODULES = ("parts", "helper", "pkg.model", "pkg.data", "pkg.deep.setup")


def project(random: random.Random) -> Files:
    """Files by their path below one folder, with forward slashes; `train.py` is the script."""
    files = random.choice([_case, _case, _parted, _parted, _parted, _written])(random)
    number = random.choice([0, 1, 1, 1, len(files)])  # most can be read, so that the audit comes to the modules
    for name in random.sample(sorted(files), number):
        files[name] = _spoiled(files[name], random)
    if len(files) > 2 and random.random() < 0.1:
        del files[random.choice(sorted(files.keys() - {"train.py"}))]
    return files


def changed(files: Files, random: random.Random) -> Files:
    """The files after one of them was spoiled, removed, or given the text of another."""
    after = dict(files)
    name = random.choice(sorted(files))
    way = random.random()
    if way < 0.15 and name != "train.py":
        del after[name]
    elif way < 0.3:
        after[name] = files[random.choice(sorted(files))]
    else:
        after[name] = _spoiled(files[name], random)
    return after


def _spoiled(data: bytes, random: random.Random) -> bytes:
    """A file after some changes, which most of the time are such that it can be parsed."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    after = spoiled(text, random)
    for _ in range(random.choice([0, 4, 4, 4])):
        if tree_of(after.decode("utf-8", "replace")) is not None:
            break
        after = spoiled(text, random)
    return after


@functools.cache
def _cases() -> tuple[dict[str, str], ...]:
    """The cases with modules of their own, each program of them with those."""
    found = []
    for script in sorted((ROOT / "tests" / "cases").glob("ddp*/*/*.py")):
        beside = [p for p in sorted(script.parent.rglob("*.py")) if not p.stem.startswith(("bad", "fixed", "alike", "reference"))]
        if beside and script not in beside:
            modules = {path.relative_to(script.parent).as_posix(): path.read_text(encoding="utf-8") for path in beside}
            found.append({**modules, "train.py": script.read_text(encoding="utf-8")})
    return tuple(found)


def _case(random: random.Random) -> Files:
    return {name: text.encode() for name, text in random.choice(_cases()).items()}


def _written(random: random.Random) -> Files:
    """Programs that nobody wrote, which import names of each other."""
    names = ["train.py", "helper.py", *random.sample(["pkg/__init__.py", "pkg/train.py", "parts.py"], random.randint(0, 2))]
    return {name: program(random).encode() for name in names}


def _parted(random: random.Random) -> Files:
    """A real file of which some definitions and values at the top were moved into one or two modules."""
    text = random.choice([text for text in sources() if "import torch" in text])
    tree = tree_of(text)
    movable = [] if tree is None else [node for node in tree.body if _names(node)]
    if tree is None or not movable:
        return {"train.py": text.encode(), "helper.py": b"import train\n"}
    lines = text.split("\n")
    imports = [_source(lines, node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    moved = random.sample(movable, random.randint(1, len(movable)))
    modules = random.sample(_MODULES, min(len(moved), random.randint(1, 2)))
    files: dict[str, str] = {}
    for number, module in enumerate(modules):
        own = sorted(moved[number :: len(modules)], key=lambda node: node.lineno)
        others = [_import_of(other, random, []) for other in modules if other != module and random.random() < 0.4]
        back = [random.choice(["import train", "from train import *", "from train import main"])] if random.random() < 0.2 else []
        body = [_source(lines, node) for node in own]
        *packages, stem = module.split(".")
        files["/".join([*packages, f"{stem}.py"])] = "\n".join([*imports, *others, *back, "", *body, ""])
        for depth in range(len(packages)):
            inside = f"from .{stem} import *\n" if depth == len(packages) - 1 and random.random() < 0.4 else ""
            if random.random() < 0.8:
                files["/".join([*packages[: depth + 1], "__init__.py"])] = inside
        taken = [name for node in own for name in _names(node)]
        for place, node in enumerate(own):
            first, last = _range(node)
            lines[first:last] = ["" for _ in range(first, last)]
            if place == 0:
                lines[first] = _import_of(module, random, taken)
    files["train.py"] = "\n".join(lines)
    return {name: text.encode("utf-8", "surrogatepass") for name, text in files.items()}


def _import_of(module: str, random: random.Random, names: list[str]) -> str:
    """A statement on one line that imports what a module has."""
    wanted = ", ".join(names) or "*"
    short = module.rsplit(".", 1)[-1]
    ways = [
        f"from {module} import {wanted}",
        f"from {module} import *",
        f"import {module} as {short}; " + "; ".join(f"{name} = {short}.{name}" for name in names),
        f"from {module} import " + ", ".join(f"{name} as {name}" for name in names or ["rank"]),
        f"from .{module} import {wanted}",
        f"import {module}",
    ]
    return random.choice([*ways[:4], *ways[:4], *ways])


def _names(node: ast.stmt) -> list[str]:
    """The plain names that a statement defines; none for a statement that does more."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _range(node: ast.stmt) -> tuple[int, int]:
    """The lines of a statement, from 0, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]) - 1, node.end_lineno or node.lineno


def _source(lines: list[str], node: ast.stmt) -> str:
    first, last = _range(node)
    return textwrap.dedent("\n".join(lines[first:last]))
