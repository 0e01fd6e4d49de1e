"""What code does is read from its meaning: neither its text nor a name decides it, outside the one file that may suggest."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from asked import only, who

import ddp_audit
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Collective, UnfollowedCall

Lowered = Callable[..., Program]

PACKAGE = Path(ddp_audit.__file__).parent
FILES = sorted(path for folder in ("program", "explore", "tree") for path in (PACKAGE / folder).rglob("*.py"))
MATCHERS = {"re", "regex", "fnmatch", "ddp_audit.lazy_regex"}
# Files that may import one of these, with the reason.
ALLOWED = {"explore/exact/heap.py": "a compiled expression is a value that a program may hold"}
# Functions that look at a text, by what they look for, each with the reason.
LOOKS = {
    ("program/loading.py", "next("): "the node's text is written by the interpreter itself, for `next(loader)`",
    ("program/changes.py", ".grad"): "the attribute path of what is not known",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_regular_expression_reads_code_or_names(path: Path) -> None:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    assert not found & MATCHERS or name_of(path) in ALLOWED


def looked_for(tree: ast.AST) -> set[str]:
    """The texts that some code looks for in what values, nodes and files are written as: `"loader" in value.text`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In() | ast.NotIn()], comparators=[where]) if _is_written(
                where
            ):
                found.add(word)
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "find" | "count", value=where), args=[given, *_]):
                if _is_written(where):
                    found |= {n.value for n in ast.walk(given) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


def _is_written(node: ast.expr) -> bool:
    """Whether an expression is the code of something: `.text`, `lw.text(node)`, `ast.unparse(node)`, or one of these in lower case."""
    match node:
        case ast.Attribute(attr="text"):
            return True
        case ast.Call(func=ast.Attribute(attr="lower" | "upper" | "strip", value=inner)):
            return _is_written(inner)
        case ast.Call(func=ast.Attribute(attr="text" | "unparse")):
            return True
    return False


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_word_is_looked_for_in_the_text_of_code(path: Path) -> None:
    found = looked_for(ast.parse(path.read_text(encoding="utf-8")))
    assert not {word for word in found if (name_of(path), word) not in LOOKS}


def test_what_is_allowed_is_there() -> None:
    for file in ALLOWED:
        assert "import re" in (PACKAGE / file).read_text(encoding="utf-8")
    for file, word in LOOKS:
        assert word in looked_for(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "code", ['"a" in v.text', '"a" not in lw.text(n).lower()', 'v.text.startswith("a")', 'ast.unparse(n).endswith(("a", "b"))']
)
def test_the_look_at_a_text_is_seen(code: str) -> None:
    assert "a" in looked_for(ast.parse(code))


# One thing in several forms: under another name, held in a variable, as text of another kind.


@pytest.mark.parametrize(
    "enters", ["Join([model])", "J([model])", "held", "model.join()", "Join([model]) if len(model.state_dict()) else quiet()"]
)
def test_a_context_of_uneven_inputs_is_known_by_what_it_is(lowered: Lowered, enters: str) -> None:
    program = lowered(
        "from contextlib import nullcontext as quiet\nfrom torch.distributed.algorithms import Join\n"
        "from torch.distributed.algorithms.join import Join as J\nmodel = DDP(nn.Linear(2, 2))\nheld = Join([model])\n"
        f"with {enters}:\n    dist.all_reduce(torch.ones(2))\n"
    )
    assert only(program, Collective).in_join


@pytest.mark.parametrize("enters", ["quiet()", "open('Join(x)')", "open(','.join(words))"])
def test_no_other_context_is_one_of_uneven_inputs(lowered: Lowered, enters: str) -> None:
    program = lowered(
        f"from contextlib import nullcontext as quiet\nwords = []\nwith {enters} as x:\n    dist.all_reduce(torch.ones(2))\n"
    )
    assert not only(program, Collective).in_join


@pytest.mark.parametrize(
    "ends",
    ["import sys\nif {}: sys.exit()", "from sys import exit as leave\nif {}: leave(1)", "if {}: quit()", "import os as o\nif {}: o._exit(0)"],
)  # fmt: skip
def test_the_end_of_the_process_is_known_under_any_name(lowered: Lowered, ends: str) -> None:
    program = lowered(ends.format("dist.get_rank() != 0") + "\ndist.barrier()\n")
    assert who(only(program, Collective)) == [True, False, False, False]


def test_a_function_of_the_project_called_exit_ends_nothing(lowered: Lowered) -> None:
    program = lowered("def exit():\n    return 1\nif dist.get_rank() != 0: exit()\ndist.barrier()\n")
    assert who(only(program, Collective)) == [True] * 4


@pytest.mark.parametrize("made", ["@dataclass", "@record", "@record(frozen=True)", "@dataclasses.dataclass()"])
def test_a_dataclass_is_known_under_any_name(lowered: Lowered, made: str) -> None:
    program = lowered(
        "import dataclasses\nfrom dataclasses import dataclass\nfrom dataclasses import dataclass as record\n"
        f"{made}\nclass Who:\n    number: int\nif Who(dist.get_rank()).number == 0:\n    dist.barrier()\n"
    )
    assert who(only(program, Collective)) == [True, False, False, False]


@pytest.mark.parametrize("made", ["@property", "@functools.cached_property", "@kept"])
def test_a_property_is_known_under_any_name(lowered: Lowered, made: str) -> None:
    program = lowered(
        "import functools\nfrom functools import cached_property as kept\n"
        f"class Who:\n    {made}\n    def first(self):\n        return dist.get_rank() == 0\nif Who().first:\n    dist.barrier()\n"
    )
    assert who(only(program, Collective)) == [True, False, False, False]


@pytest.mark.parametrize("call", ["largest(dist.get_rank(), 1) == 1", "max(dist.get_rank(), 1) == 1"])
def test_a_function_is_known_under_another_name(lowered: Lowered, call: str) -> None:
    program = lowered(f"largest = max\nif {call}:\n    dist.barrier()\n")
    assert who(only(program, Collective)) == [True, True, False, False]


@pytest.mark.parametrize(
    "call", ["torch.cuda.synchronize()", "functools.reduce(max, [1, 2])", "torch.gather(torch.ones(2, 2), 1, index)"]
)
def test_what_sends_nothing_is_no_open_question(lowered: Lowered, call: str) -> None:
    assert not list(lowered(f"import functools\nindex = torch.zeros(2, 2).long()\n{call}\n").of(UnfollowedCall))


@pytest.mark.parametrize("call", ["helpers.all_gather_stats(1)", "dist.unheard_of_reduce(torch.ones(2))"])
def test_what_may_send_is_one(lowered: Lowered, call: str) -> None:
    assert only(lowered(f"import helpers\n{call}\n"), UnfollowedCall)
