"""A prediction held against a record, event by event, and both shown side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddp_audit.compare.predicted import LENGTH, OPEN, Agreement, hold_against
from ddp_audit.compare.run import EXITED, KILLED, RankRun, RecordedRun
from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DDP_BUFFERS, Event, Site
from ddp_audit.report import sides
from ddp_audit.report.run_json import agreement_object


def made(text: str) -> list[Event]:
    """Events by letters: `b` a buffer broadcast, `r` a bucket all-reduce, `u` an all-reduce of the user's own, `g` an all-gather."""
    kinds = {
        "b": Event(COLLECTIVE, op="broadcast", origin=DDP_BUFFERS, numel=8, dtype="float32", root=0, site=Site("train.py", 20)),
        "r": Event(COLLECTIVE, op="all_reduce", origin=DDP_BUCKET, numel=64, dtype="float32", reduce_op="sum",
                   site=Site("train.py", 21)),
        "u": Event(COLLECTIVE, op="all_reduce", numel=1, dtype="float32", reduce_op="max", site=Site("train.py", 30)),
        "g": Event(COLLECTIVE, op="all_gather", numel=1, dtype="int64", site=Site("train.py", 31)),
    }  # fmt: skip
    return [kinds[letter] for letter in text]


def held(predicted: str, recorded: str, *, state: str = EXITED, certain: int | None = None) -> Agreement:
    """One rank."""
    run = RecordedRun(1, {0: RankRun(0, made(recorded), state, 0)})
    return hold_against({0: made(predicted)}, run, certain=None if certain is None else {0: certain})


def verdicts(agreement: Agreement) -> str:
    """One sign a row: = agree, x differ, < predicted alone, > recorded alone, ~ alone and open."""
    signs = ""
    for row in agreement.rows[0]:
        alone = "<" if row.recorded is None else ">" if row.predicted is None else ""
        signs += "~" if row.what == OPEN else "=" if row.what is None else alone or "x"
    return signs


@pytest.mark.parametrize(
    ("predicted", "recorded", "signs"),
    [
        ("brbr", "brbr", "===="),
        ("brbr", "brubr", "==>=="),
        ("brubr", "brbr", "==<=="),
        ("brubr", "brgbr", "==x=="),
        ("brbr", "br", "==<<"),
        ("br", "brbr", "==>>"),
        ("b" * 10 + "r", "u" * 10 + "r", "x" * 10 + "="),
    ],
)
def test_both_sequences_come_row_by_row(predicted: str, recorded: str, signs: str) -> None:
    agreement = held(predicted, recorded)
    assert verdicts(agreement) == signs
    assert (agreement.difference is None) is (set(signs) == {"="})
    assert agreement.compared[0] == len(signs) - len(signs.lstrip("="))
    assert [row.predicted for row in agreement.rows[0] if row.predicted] == made(predicted)
    assert [row.recorded for row in agreement.rows[0] if row.recorded] == made(recorded)


def test_a_rank_that_was_killed_may_have_come_less_far() -> None:
    agreement = held("brbr", "br", state=KILLED)
    assert verdicts(agreement) == "==~~"
    assert agreement.difference is None


def test_what_is_past_a_bound_is_not_compared() -> None:
    agreement = held("brbr", "brgggg", certain=2)
    assert verdicts(agreement) == "=="
    assert agreement.difference is None
    assert agreement.beyond[0] == 4
    assert "4 more were recorded, past what was compared" in "\n".join(sides.lines(agreement))


def test_the_difference_names_what_each_side_has_next() -> None:
    agreement = held("brbr", "brubr")
    assert agreement.difference is not None
    assert (agreement.difference.index, agreement.difference.what) == (2, "op")
    assert held("br", "brb").difference is not None
    assert held("br", "brb").difference.what == LENGTH  # type: ignore[union-attr]


def test_equal_steps_are_folded_and_no_row_is_lost() -> None:
    agreement = held("g" + "br" * 40 + "u", "g" + "br" * 40 + "u")
    found = sides.blocks(agreement.rows[0])
    assert [(len(block.rows), block.times) for block in found] == [(1, 1), (2, 40), (1, 1)]
    assert [row for block in found for row in block.rows] == [agreement.rows[0][n] for n in (0, 1, 2, 81)]


def test_rows_that_differ_in_one_side_only_are_not_folded_together() -> None:
    rows = held("r" * 8, "r" * 8).rows[0]
    other = replace(rows[4], recorded=made("u")[0], what="op")
    found = sides.blocks([*rows[:4], other, *rows[5:]])
    assert sum(len(block.rows) * block.times for block in found) == 8
    assert any(other in block.rows and block.times == 1 for block in found)


@pytest.mark.parametrize("at", [0, 3, 50, 119])
def test_a_long_table_shows_the_first_difference_with_what_stands_around_it(at: int) -> None:
    letters = "".join("brug"[(n * n + n // 3) % 4] for n in range(120))
    other = letters[:at] + ("g" if letters[at] != "g" else "u") + letters[at + 1 :]
    agreement = held(letters, other)
    shown = list(sides.lines(agreement))
    assert len(shown) <= 30
    assert all(len(line) <= 80 for line in shown)
    assert any(line.startswith(f"{at:>5} x") for line in shown)
    if at:
        assert any(line.startswith(f"{at - 1:>5} =") for line in shown)
    every = list(sides.lines(agreement, full=True))
    assert len([line for line in every if line[:5].strip().isdigit()]) == 120


def test_ranks_share_what_they_have_in_common() -> None:
    runs = {0: RankRun(0, made("brb"), KILLED, 0), 1: RankRun(1, made("bru"), KILLED, 0)}
    agreement = hold_against({0: made("brb"), 1: made("bru")}, RecordedRun(2, runs))
    heads = [line for line in sides.lines(agreement) if "rank" in line]
    assert heads == ["every rank, lines of train.py", "rank 0, lines of train.py", "rank 1, lines of train.py"]
    text = "\n".join(sides.lines(agreement))
    assert text.count("buffers :20") == 4
    assert "all_reduce f32[1] max     user :30 | all_reduce f32[1] max     user :30" in text


def test_places_in_several_files_are_told_whole() -> None:
    far = [replace(event, site=Site("a/long/folder/name/of/helpers.py", 7)) for event in made("r")]
    run = RecordedRun(1, {0: RankRun(0, [*made("b"), *far], EXITED, 0)})
    text = "\n".join(sides.lines(hold_against({0: [*made("b"), *far]}, run)))
    assert "buffers train.py:20" in text
    assert "helpers.py:7" in text


def test_the_object_holds_both_sequences() -> None:
    out = agreement_object(held("g" + "br" * 3, "g" + "br" * 3 + "u"))
    (part,) = out["sequences"]
    assert part["ranks"] == [0]
    assert [(block["times"], len(block["rows"])) for block in part["blocks"]] == [(1, 1), (3, 2), (1, 1)]
    last = part["blocks"][-1]["rows"][0]
    assert last["agrees"] is False
    assert last["predicted"] is None
    assert last["recorded"]["site"] == "train.py:30"
    whole = agreement_object(held("g" + "br" * 3, "g" + "br" * 3), full=True)["sequences"][0]["blocks"]
    assert [len(block["rows"]) for block in whole] == [7]
