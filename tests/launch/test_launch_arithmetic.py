"""K = W·a·B·T = A·B·T, by its properties; and the batch command."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_audit.cli import main
from ddp_audit.launch import arithmetic

small = st.integers(1, 64)
sizes = st.sampled_from([1, 2, 8, 128, 1000, 1024, 2048])


@given(small, st.integers(1, 40), st.integers(1, 40), sizes, st.integers(1, 64))
def test_options_keep_the_tokens(world: int, per_rank: int, batch: int, block: int, near: int) -> None:
    tokens = world * per_rank * batch * block
    found = arithmetic.options(world, tokens, block, near)
    assert all(
        o.exact and o.tokens == o.accumulation * o.batch * block == world * o.per_rank * o.batch * block == tokens for o in found
    )
    assert all(o.accumulation % world == 0 for o in found)
    assert (batch, world * per_rank, per_rank) in {(o.batch, o.accumulation, o.per_rank) for o in found}
    distances = [abs(o.batch - near) for o in found]
    assert distances == sorted(distances)
    assert len({o.batch for o in found}) == len(found)
    every = [b for b in range(1, per_rank * batch + 1) if (per_rank * batch) % b == 0]
    assert sorted(o.batch for o in found) == every


@given(small, st.integers(1, 200_000), sizes)
def test_impossible_wishes_get_the_nearest(world: int, tokens: int, block: int) -> None:
    unit = world * block
    found = arithmetic.options(world, tokens, block)
    assert found
    assert (arithmetic.why_not_exact(world, tokens, block) is None) == (tokens % unit == 0) == found[0].exact
    assert all(abs(o.tokens - tokens) < unit and o.tokens % unit == 0 for o in found)
    best = min(abs(k * unit - tokens) for k in range(1, tokens // unit + 3))
    assert abs(found[0].tokens - tokens) == best


@given(st.integers(1, 500), small)
def test_nearest_accumulations(accumulation: int, world: int) -> None:
    found = arithmetic.nearest_accumulations(accumulation, world)
    assert found and all(count % world == 0 and count > 0 and abs(count - accumulation) < world for count in found)
    if accumulation % world:
        assert [c for c in range(1, accumulation + world) if c % world == 0 and abs(c - accumulation) < world] == found
    else:
        assert found == [accumulation]


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert arithmetic.divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_the_worked_example() -> None:
    found = arithmetic.options(16, 491_520, 1024, near=12)
    assert arithmetic.Option(6, 80, 5, 491_520, True) in found
    assert [o.batch for o in found] == [10, 15, 6, 5, 3, 2, 1, 30]
    assert arithmetic.nearest_accumulations(40, 16) == [32, 48]
    assert arithmetic.legal_world_sizes(40) == [1, 2, 4, 5, 8, 10, 20, 40]
    assert arithmetic.tokens_per_update(48, 12, 1024) == 589_824


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["batch", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_batch_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tokens", "491520", "--block-size", "1024", "--batch-size", "12", "--accumulation", "40", "--format", "json"]
    code, out, _ = run(capsys, "--world-size", "16", *words)
    data = json.loads(out)
    assert code == 0
    assert list(data) == ["version", "world_size", "block_size", "tokens_per_update", "current", "options"]
    assert data["current"] == {"B": 12, "A": 40, "a": None, "holds": False, "reason": "40 is not divisible by 16"}
    assert {"B": 6, "A": 80, "a": 5, "tokens_per_update": 491520, "exact": True} in data["options"]
    same = run(capsys, "--launch", "torchrun --nnodes=2 --nproc_per_node=8 train.py", *words)[1]
    assert json.loads(same) == data
    assert len(json.loads(run(capsys, "--world-size", "16", *words, "--limit", "3")[1])["options"]) == 3


def test_current(capsys: pytest.CaptureFixture[str]) -> None:
    def current(*words: str) -> dict[str, object] | None:
        found = json.loads(run(capsys, "--world-size", "8", "--block-size", "1024", "--format", "json", *words)[1])["current"]
        assert found is None or isinstance(found, dict)
        return found

    assert current("--tokens", "491520") is None
    assert current("--batch-size", "12", "--accumulation", "40") == {"B": 12, "A": 40, "a": 5, "holds": True, "reason": None}
    assert current("--tokens", "491,520", "--batch-size", "12") == {"B": 12, "A": 40, "a": 5, "holds": True, "reason": None}
    assert current("--tokens", "491520", "--accumulation", "40") == {"B": 12, "A": 40, "a": 5, "holds": True, "reason": None}
    wrong = current("--tokens", "491520", "--batch-size", "12", "--accumulation", "48")
    assert wrong is not None and (wrong["a"], wrong["holds"]) == (6, False) and "589824" in str(wrong["reason"])
    odd = current("--tokens", "491520", "--batch-size", "13")
    assert odd is not None and (odd["A"], odd["holds"]) == (None, False) and "13 x 1024" in str(odd["reason"])


def test_batch_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--world-size", "16", "--block-size", "1024", "--batch-size", "12", "--accumulation", "40")
    assert code == 0 and "40 is not divisible by 16" in out
    rows = [line.split() for line in out.splitlines() if "491,520" in line]
    assert ["6", "80", "5", "491,520", "*"] in rows and ["15", "32", "2", "491,520"] in rows
    _, out, _ = run(capsys, "--world-size", "7", "--block-size", "1024", "--tokens", "491520")
    assert "not a multiple of W x T = 7 x 1,024" in out and "487,424" in out


@pytest.mark.parametrize(
    "words",
    [
        ["--block-size", "8", "--tokens", "64"],
        ["--world-size", "0", "--block-size", "8", "--tokens", "64"],
        ["--world-size", "two", "--block-size", "8", "--tokens", "64"],
        ["--world-size", "2", "--block-size", "-8", "--tokens", "64"],
        ["--world-size", "2", "--tokens", "64"],
        ["--world-size", "2", "--block-size", "8"],
        ["--world-size", "2", "--block-size", "8", "--batch-size", "2"],
        ["--world-size", "2", "--launch", "torchrun a.py", "--block-size", "8", "--tokens", "64"],
        ["--launch", "make coffee", "--block-size", "8", "--tokens", "64"],
        ["--launch", "torchrun --nproc_per_node=gpu a.py", "--block-size", "8", "--tokens", "64"],
        ["--world-size", "2", "--block-size", "8", "--tokens", "9999999999999999999"],
    ],
)
def test_bad_questions_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ddp-audit: ")
