"""Rules know a program by its facade alone, so that what stands behind it can change."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import ddp_audit_rules
from ddp_audit.knowledge.kinds import kinds
from ddp_audit.tree import nodes, questions, values

FACADE = {f"ddp_audit.tree.{name}" for name in ("nodes", "values", "questions")}
OF_TEXTS = {"transport_disabled", "_divisible"}  # settings in documents; numbers from files beside the program
FILES = sorted(Path(ddp_audit_rules.__file__).parent.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_asks_the_facade_and_nothing_behind_it(path: Path) -> None:
    inner = {name for name in imported(path) if name.startswith("ddp_audit.program") or name == "ddp_audit.tree"}
    assert not inner and all(name in FACADE for name in imported(path) if name.startswith("ddp_audit.tree"))


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in OF_TEXTS], ids=lambda path: path.stem)
def test_a_rule_reads_no_source(path: Path) -> None:
    """What code does is asked of its nodes and trees; launch commands and comments are texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("program"):
            assert node.attr not in ("sources", "documents"), f"line {node.lineno} reads the text of a file"


def test_each_question_has_an_answer_in_one_place() -> None:
    names = [name for module in (nodes, values, questions) for name in module.__all__]
    assert len(names) == len(set(names))


def test_no_rule_reads_code_or_names_by_an_expression() -> None:
    """What code does is asked of the program; words in names stand in one file, and documents are read by `launch`."""
    banned = {"re", "regex", "fnmatch", "ddp_audit.lazy_regex"}
    assert {path.stem: imported(path) & banned for path in FILES if imported(path) & banned} == {}


def _strings(node: ast.AST) -> list[str]:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else node.keys if isinstance(node, ast.Dict) else []
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def _is_dotted(text: str) -> bool:
    first, _, rest = text.partition(".")
    return (
        bool(rest)
        and all(map(str.isidentifier, text.split(".")))
        and (first in sys.stdlib_module_names or first in ("torch", "numpy", "np"))
    )


# Names that are no functions there: by file, with what they are.
OTHER_THINGS = {
    ("losses", "mean"): "what torch calls its reductions",
    ("rank_as_device", "to"): "ways in which a node chooses a device",
    ("rank_as_device", "torch.device"): "one of these ways",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_holds_no_list_of_library_names(path: Path) -> None:
    """What a library's functions do is written in `knowledge/`; words of nodes, parameters and options are no such names."""
    of_nodes = ("collectives", "sizes-must-be-equal", "sums-up", "gathers", "result-on-all", "only-from-one", "on-current-device")
    of_objects = ("of-wrapper", "of-module", "facts-of-tensor")  # attributes, options among them
    functions = set().union(*(names for kind, names in kinds().items() if kind not in (*of_nodes, *of_objects)))
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        for node in ast.walk(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else ():
            texts = [text for text in _strings(node) if (path.stem, text) not in OTHER_THINGS]
            assert not list(filter(_is_dotted, texts)) and len(functions & set(texts)) < 2, f"line {statement.lineno}: {texts}"
