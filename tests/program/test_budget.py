"""What the lowering gives up on, and what it still reaches then; always by work counted, so the same on every machine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddp_audit.program import lower
from ddp_audit.program.model import Program
from ddp_audit.program.names import written
from ddp_audit.program.nodes import Collective
from ddp_audit.program.values import RANK
from ddp_audit.source.project import Project


def _lowered(folder: Path, text: str) -> Program:
    script = folder / "train.py"
    script.write_text("import torch\nimport torch.distributed as dist\n" + text, encoding="utf-8")
    project = Project([script])
    return lower(project, project.entries[0])


def _collectives(program: Program) -> list[str]:
    return [node.op for node in program.of(Collective)]


def test_a_small_helper_is_followed_wherever_it_is_called(tmp_path: Path) -> None:
    text = "def sync():\n    dist.barrier()\n\n" + "sync()\n" * 30
    program = _lowered(tmp_path, text)
    assert _collectives(program) == ["barrier"] * 30
    assert not program.limits


@pytest.mark.parametrize(
    ("helper", "asked"),
    [
        ("def main():\n    return dist.get_rank() == 0\n", "main()"),
        ("def main(options):\n    return options.rank == 0\n", "main(options)"),
        ("def main(rank):\n    return rank == 0\n", "main(dist.get_rank())"),
        (
            "def main(text):\n    if dist.get_rank() == 0:\n        print(text)\n        return True\n    return False\n",
            "main('a')",
        ),
        ("class Run:\n    def main(self):\n        return self.rank == 0\nrun = Run()\nrun.rank = dist.get_rank()\n", "run.main()"),
    ],
)
def test_a_test_of_the_rank_stays_one_however_often_it_is_asked(tmp_path: Path, helper: str, asked: str) -> None:
    text = "class Options: pass\noptions = Options()\ndist.init_process_group('gloo')\noptions.rank = dist.get_rank()\n"
    program = _lowered(tmp_path, text + helper + f"if {asked}:\n    print(1)\n" * 60 + f"if {asked}:\n    dist.barrier()\n")
    (barrier,) = program.of(Collective)
    assert any(RANK in guard.test.taint for guard in barrier.guards)


def test_functions_that_nothing_calls_have_a_budget_of_their_own(tmp_path: Path) -> None:
    """Of twenty long ones the last are not looked at, and that is said; the script itself is followed to its end."""
    body = "".join(f"    x{number} = {number}\n" for number in range(1_000))
    leftovers = "".join(f"def part{number}():\n{body}    dist.barrier()\n\n" for number in range(20))
    program = _lowered(tmp_path, leftovers + "dist.all_reduce(torch.ones(1))\n")
    found = _collectives(program)
    assert found[0] == "all_reduce"
    assert 5 < found.count("barrier") < 20
    assert program.limits == ["more than 10000 steps in functions that nothing calls"]


@pytest.mark.parametrize("text", ["f(1)", "a.b.c(x)", "a[0].b(x)", "f()(x)", "(a or b).c()", "(1).real(2)", "'x'.join(y)"])
def test_a_called_name_is_written_as_python_writes_it(text: str) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert written(call.func) == ast.unparse(call.func)
