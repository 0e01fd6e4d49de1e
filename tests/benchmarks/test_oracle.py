"""The oracle: its programs run and differ by seed, the stand-in records what ranks issue, and a wrong prediction is seen as wrong."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from oracle.compare import AGREES, WRONG, Question, ask
from oracle.grammar import draw, draw_shaped
from oracle.oracle import judge, shrink
from oracle.shapes import shapes_of
from oracle.standin import COMPLETED, RAISED, WAITING, Endless, run_ranks

START = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", SyntaxWarning)


def test_what_ranks_issue_is_recorded_with_its_line() -> None:
    execution = run_ranks(START + "torch.manual_seed(rank * 3)\ndist.barrier()\n", 3)
    assert {rank: run.events for rank, run in execution.ranks.items()} == {
        rank: [("seed", rank * 3, 5), ("collective", "barrier", 6)] for rank in range(3)
    }
    assert not execution.parted


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("if rank == 0:\n    dist.barrier()\n", [WAITING, COMPLETED]),
        ("if rank == 0:\n    dist.barrier()\nelse:\n    dist.all_reduce(torch.ones(2))\n", [WAITING, WAITING]),
        ("if rank == 1:\n    raise KeyError\ndist.barrier()\n", [WAITING, RAISED]),
    ],
    ids=["one rank waits", "two operations", "one rank raises"],
)
def test_ranks_that_part_are_told_from_ranks_that_meet(body: str, ends: list[str]) -> None:
    execution = run_ranks(START + body, 2)
    assert execution.parted
    assert [run.end for run in execution.ranks.values()] == ends


def test_values_pass_between_ranks() -> None:
    execution = run_ranks(START + "t = torch.tensor([rank + 1])\ndist.all_reduce(t)\ntorch.manual_seed(int(t.item()))\n", 4)
    assert {run.events[-1] for run in execution.ranks.values()} == {("seed", 10, 7)}


def test_a_program_without_an_end_is_left_out() -> None:
    with pytest.raises(Endless):
        run_ranks("while True:\n    pass\n", 2)


def test_programs_differ_by_seed_and_are_the_same_for_one() -> None:
    programs = {draw(seed) for seed in range(40)}
    assert len(programs) == 40
    assert draw(7) == draw(7)
    for program in programs:
        compile(program, "program.py", "exec")


def test_a_shape_keeps_the_blocks_of_its_function(tmp_path: Path) -> None:
    text = "def f(x):\n    for a in x:\n        if a:\n            b = 1\n        else:\n            c = 2\n    try:\n        d = 3\n    except E:\n        e = 4\n"
    (tmp_path / "one.py").write_text(text + "    g = 5\n    h = 6\n")
    (shape,) = shapes_of(str(tmp_path))
    assert [one.kind for one in shape] == ["for", "try", "statement", "statement"]
    assert [one.kind for one in shape[0].parts[0]] == ["if"]
    program = draw_shaped(3, shape)
    run_ranks(program, 2)
    assert "for " in program and "except ValueError" in program


def test_the_predicted_run_never_says_what_did_not_happen() -> None:
    """A piece of `make oracle`; what the program that rules read gets wrong stands in `oracle.md`."""
    for seed in range(60):
        for answer in judge(draw(seed), (2, 3, 4)[seed % 3]):
            assert answer.engine != "run" or answer.verdict != WRONG, (seed, answer)


@pytest.mark.parametrize("engine", ["run", "program"])
def test_a_wrong_prediction_is_seen(engine: str) -> None:
    source = START + "if rank == 0:\n    x = 1\ndist.barrier()\n"
    other = run_ranks(START + "if rank == 0:\n    x = 1\n    dist.barrier()\ndist.barrier()\n", 2)
    right = Question.of(source, 2, run_ranks(source, 2))
    assert {answer.engine: answer.verdict for answer in ask(right)}[engine] == AGREES
    wrong = replace(right, execution=other)
    assert {answer.engine: answer.verdict for answer in ask(wrong)}[engine] == WRONG


def test_a_program_is_shortened_to_what_matters() -> None:
    source = draw(3) + "needed = 1\n"
    assert shrink(source, lambda text: "needed = 1" in text) == "needed = 1\n"
