"""What a rank left out of a step: batches without a forward, forwards without a step, and what only looks like it."""

from __future__ import annotations

import pytest
from compare_events import all_reduce, barrier, rank_run, recorded, site

from ddp_audit.compare.left_out import left_out
from ddp_audit.compare.run import EXITED, KILLED, RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.events import BATCH, DDP_BUCKET, FORWARD, GRADIENTS, STEP, Event

NEXT = all_reduce(13, 72, origin=DDP_BUCKET)


def batch(line: int = 10, loader: int = 0) -> Event:
    return Event(BATCH, stack=(site(line),), detail={"loader": loader, "fingerprint": "f"})


def forward(*, grad: bool = True, model: str = "ddp0") -> Event:
    return Event(FORWARD, stack=(site(12),), detail={"model": model, "grad": grad, "training": grad, "batch": None})


def step(model: str = "ddp0") -> Event:
    return Event(STEP, stack=(site(14),), detail={"optimizer": "SGD", "models": [model], "reduced": 1})


def one(**fields: object) -> list[Event]:
    """A whole training step."""
    return [batch(), forward(), NEXT, step()]


def run_of(*sequences: list[Event], state: str = EXITED) -> RecordedRun:
    return recorded(*(rank_run(rank, events, state) for rank, events in enumerate(sequences)))


def test_a_batch_without_a_forward() -> None:
    found = left_out(run_of([*one(), *one(), *one()], [*one(), batch(), *one()], [*one(), *one(), *one()]))
    assert found is not None
    assert (found.what, found.ranks, found.others, found.number, str(found.site)) == ("batch", (1,), (0, 2), 2, "train.py:10")


def test_a_forward_without_a_step() -> None:
    found = left_out(run_of([*one(), *one(), *one()], [*one(), batch(), forward(), NEXT, *one()]))
    assert found is not None
    assert (found.what, found.ranks, found.others, found.number, str(found.site)) == ("step", (1,), (0,), 2, "train.py:14")


@pytest.mark.parametrize(("state", "what"), [(EXITED, "step"), (KILLED, None)])
def test_a_last_step_is_left_out_only_by_a_rank_that_has_ended(state: str, what: str | None) -> None:
    found = left_out(run_of([*one(), *one()], [*one(), batch(), forward(), NEXT], state=state))
    assert (found.what if found else None) == what


@pytest.mark.parametrize(
    "other",
    [
        [*one(), *one()],
        [*one(), batch(30), batch(30), forward(grad=False), *one()],  # an evaluation on one rank
        [*one(), batch(10, loader=1), batch(10, loader=1), *one()],  # another loader at the same line
        [forward(), NEXT, step(), *one()],  # no loader is known for the first pass
        [*one(), *one(), forward(model="ddp1"), step("ddp1")],  # another wrapper
        [*one(), batch(), forward()],  # it is in the pass
    ],
    ids=["alike", "evaluation", "another loader", "no loader", "another wrapper", "under way"],
)
def test_what_only_looks_like_it(other: list[Event]) -> None:
    assert left_out(run_of([*one(), *one()], other, state=KILLED)) is None


def test_it_is_told_with_the_collective_that_lacks_a_rank() -> None:
    ended = compare_run(run_of([*one(), *one(), batch(), forward(), NEXT], [*one(), batch(), *one()], state=EXITED))
    (found,) = ended.parted
    assert "Rank 1 took a batch at train.py:10 and ran no forward with it, before training forward 2 of ddp0." in found.explanation


def test_without_a_loader_the_forwards_are_counted() -> None:
    sequences = [[forward(), NEXT, step(), forward(), NEXT], [forward(), NEXT, step(), barrier(16)]]
    (found,) = compare_run(run_of(*sequences, state=KILLED), stalled=True).parted
    assert found.explanation.endswith("Training forwards begun by then: 2 on rank 0, 1 on rank 1.")


def test_gradients_of_different_steps_are_not_compared() -> None:
    """Steps are numbered on each rank, so a step that one left out puts the numbers of the others beside it."""

    def hashed(number: int, value: str) -> Event:
        return Event(GRADIENTS, stack=(site(14),), detail={"model": "ddp0", "joins": 0, "step": number, "hash": value})

    whole = [*one(), hashed(1, "a"), *one(), hashed(2, "b"), *one(), hashed(3, "c")]
    short = [*one(), hashed(1, "a"), batch(), forward(), NEXT, *one(), hashed(2, "c")]
    (fault,) = compare_run(run_of(whole, short)).silent
    assert (fault.kind, str(fault.site)) == ("steps-differ", "train.py:14")
    assert fault.explanation.startswith("Rank 1 made no optimizer step after training forward 2 of ddp0, where rank 0 made one at ")
