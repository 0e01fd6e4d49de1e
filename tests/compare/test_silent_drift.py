"""Replicas that part, wrong factors, shared devices and repeated orders from hand-made runs, and what must not be taken for one."""

from __future__ import annotations

from compare_events import all_reduce, barrier, forward, rank_run, recorded, site

from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import (
    BACKWARD,
    BUFFERS,
    FACTOR,
    GRADIENTS,
    OPTIMIZER,
    ORDER,
    PARAMETERS,
    PLACE,
    SAVE,
    STATISTICS,
    STEP,
    WRAP,
    Event,
)


def hashed(kind: str, step: int, value: str | None, at: str = "step", joins: int = 0, **detail: object) -> Event:
    return Event(kind, site=site(30), detail={"model": "ddp0", "step": step, "hash": value, "at": at, "joins": joins, **detail})


def factor(step: int, passes: int, factors: list[float], ratio: float | None, **detail: object) -> Event:
    known = {"mean": True, "hook": False, "replicas": 2, "joins": 0, **detail}
    chains = [factors]
    return Event(
        FACTOR, site=site(20), detail={"model": "ddp0", "step": step, "passes": passes, "factors": chains, "ratio": ratio, **known}
    )


def wrap(group: str) -> Event:
    return Event(WRAP, group=group, detail={"model": "ddp0"})


def run_of(*ranks: list[Event], **groups: tuple[int, ...]) -> RecordedRun:
    return recorded(*(rank_run(rank, events) for rank, events in enumerate(ranks)), **groups)


def kinds(*ranks: list[Event], **groups: tuple[int, ...]) -> list[str]:
    return [fault.kind for fault in silent_faults(run_of(*ranks, **groups))]


def only(*ranks: list[Event], **groups: tuple[int, ...]) -> SilentFault:
    (fault,) = silent_faults(run_of(*ranks, **groups))
    return fault


def test_gradients_that_differ_explain_what_follows() -> None:
    def rank(value: str) -> list[Event]:
        equal = [hashed(GRADIENTS, 1, "g"), hashed(PARAMETERS, 1, "p"), hashed(OPTIMIZER, 1, "o")]
        return [*equal, *(hashed(kind, 2, value) for kind in (GRADIENTS, PARAMETERS, OPTIMIZER))]

    found = silent_faults(run_of(rank("a"), rank("b"), rank("a")))
    assert [fault.kind for fault in found] == ["gradients-differ", "parameters-differ"]
    assert "step 2 uses gradients of ddp0" in found[0].explanation and "rank 1 differs from the majority" in found[0].explanation
    assert "follows from the gradients" in found[1].explanation


def test_optimizers_that_differ() -> None:
    state = [[hashed(OPTIMIZER, 1, "o"), hashed(OPTIMIZER, 2, value)] for value in "ab"]
    assert "hold different state for ddp0 after optimizer step 2; after step 1" in only(*state).explanation
    rates = [[hashed(OPTIMIZER, 1, None, settings=[f"lr {rate}", "eps 1e-08"], optimizer="Adam")] for rate in (0.1, 0.2)]
    fault = only(*rates)
    assert "The Adams of ranks 0 and 1" in fault.explanation and ": lr 0.1 on rank 0; lr 0.2 on rank 1." in fault.explanation


def test_optimizers_that_share_their_state_out() -> None:
    assert kinds(*([hashed(OPTIMIZER, 1, value, layout=value)] for value in "ab")) == []
    assert kinds([hashed(OPTIMIZER, 1, None)], [hashed(OPTIMIZER, 1, None)]) == []


def test_steps_of_joins_are_counted_from_their_ends() -> None:
    longer = [hashed(PARAMETERS, 4, "p4"), hashed(PARAMETERS, 5, "p5"), hashed(PARAMETERS, 1, "q1", joins=1)]
    shorter = [hashed(PARAMETERS, 4, "p4"), hashed(PARAMETERS, 1, "q1", joins=1)]
    assert kinds(longer, shorter) == []
    fault = only([*longer, hashed(PARAMETERS, 2, "a", joins=1)], [*shorter, hashed(PARAMETERS, 2, "b", joins=1)])
    assert "after optimizer step 2 since the end of join 1" in fault.explanation


def test_a_state_that_was_saved_is_compared_before_the_next_step() -> None:
    fault = only(
        *([hashed(PARAMETERS, 4, "p"), hashed(PARAMETERS, 6, value, "save"), hashed(PARAMETERS, 8, value)] for value in "ab")
    )
    assert "when something was saved, after 6 optimizer steps; after step 4 they were still equal" in fault.explanation


def test_replicas_are_those_of_one_group() -> None:
    stages = [[wrap("low" if rank < 2 else "high"), hashed(GRADIENTS, 1, str(rank // 2))] for rank in range(4)]
    assert kinds(*stages, low=(0, 1), high=(2, 3)) == []
    stages[1][1] = hashed(GRADIENTS, 1, "other")
    assert only(*stages, low=(0, 1), high=(2, 3)).ranks == (0, 1)


def evaluation(value: str, *after: Event) -> list[Event]:
    return [hashed(STATISTICS, 3, value), *after]


def test_evaluations_with_different_statistics_that_are_put_together() -> None:
    fault = only(evaluation("a", all_reduce(70)), evaluation("b", all_reduce(70)))
    assert fault.kind == "buffers-differ" and "after optimizer step 3" in fault.explanation and "train.py:70" in fault.explanation


def test_evaluations_whose_statistics_do_not_matter() -> None:
    together = all_reduce(70)
    step = Event(STEP, detail={"models": ["ddp0"]})
    assert kinds(evaluation("a", together), evaluation("a", together)) == []
    assert kinds(evaluation("a", together), [together]) == []  # one rank evaluates
    assert kinds(evaluation("a", barrier(70)), evaluation("b", barrier(70))) == []
    assert kinds(evaluation("a", forward(True), together), evaluation("b", forward(True), together)) == []
    assert kinds(evaluation("a", step, together), evaluation("b", step, together)) == []
    alone = all_reduce(70, group="alone")
    assert kinds(evaluation("a", alone), evaluation("b", alone), alone=(0,)) == []


def buffers(at: str = "evaluation", sent: bool = True, step: int = 3, **hashes: str) -> Event:
    told = tuple(f"{name} {value if ' ' in value else f'8x4 {value}'}" for name, value in hashes.items())
    detail = {"model": "ddp0", "joins": 0, "step": step, "at": at, "sent": sent, "hashes": told}
    return Event(BUFFERS, site=site(40), detail=detail)


def save(step: int) -> Event:
    return Event(SAVE, site=site(50), detail={"path": "last.pt", "buffers": [["ddp0", 0, step]]})


def test_evaluations_with_buffers_that_differ_and_are_put_together() -> None:
    fault = only(*([buffers(book=value, same="s"), all_reduce(70)] for value in "ab"))
    assert fault.kind == "buffers-differ" and str(fault.site) == "train.py:40"
    assert "with buffers that differ (book), and put their results together at train.py:70" in fault.explanation
    assert "in a forward through the wrapper" in fault.explanation
    assert "configured not to send" in only(*([buffers(sent=False, book=value), all_reduce(70)] for value in "ab")).explanation


def test_evaluations_whose_buffers_do_not_matter() -> None:
    together = all_reduce(70)
    assert kinds(*([buffers(book="a"), together] for _ in range(2))) == []
    assert kinds(*([buffers(book=value), barrier(70)] for value in "ab")) == []  # each rank for itself
    assert kinds([buffers(mine="a"), together], [buffers(other="b"), together]) == []
    assert kinds(*([buffers("exit", sent=False, book=value), together] for value in "ab")) == []  # nothing read or saved them
    assert kinds(*([buffers(table=f"{length}x4 {length}"), together] for length in (8, 16))) == []  # it has grown
    stages = [[wrap(group), buffers(book=group), together] for group in ("low", "high")]
    assert kinds(*stages, low=(0,), high=(1,)) == []


def test_a_file_with_the_buffers_of_one_rank() -> None:
    def ranks(read: str = "book", step: int = 4) -> list[list[Event]]:
        kept = [buffers("save", False, 4, book=value, queue=value) for value in "abb"]
        return [[save(step), buffers(sent=False, **{read: "a"}), kept[0]], [kept[1]], [kept[2]]]

    fault = only(*ranks())
    assert fault.kind == "buffers-differ" and fault.ranks == (0, 1, 2) and str(fault.site) == "train.py:50"
    assert "Rank 0 saved ddp0 after optimizer step 4 with its own buffers (book)" in fault.explanation
    assert kinds(*ranks(read="other")) == []  # no evaluation reads what differs
    assert kinds(*ranks(step=5)) == []  # what was saved is not what was looked at
    mine, *others = ranks()
    assert kinds(mine, *([save(4), *other] for other in others)) == []  # each rank keeps its own


def looked(passes: int, factors: list[float], ratio: float | None, count: int = 3, **detail: object) -> list[list[Event]]:
    return [[factor(step, passes, factors, ratio, **detail) for step in range(count)] for _ in range(2)]


def test_losses_divided_by_the_micro_batches_of_all_ranks() -> None:
    fault = only(*looked(4, [1 / 8], 1.0))
    assert fault.kind == "wrong-factor" and str(fault.site) == "train.py:20"
    assert "divided by 8, while each step accumulates 4 backward passes on each of 2 ranks (in 3 steps" in fault.explanation
    assert kinds(*looked(4, [1 / 8], 0.37)) == ["wrong-factor"]  # and clipped
    assert kinds(*looked(4, [1024.0, 1 / 8], 1 / 1024)) == ["wrong-factor"]  # and scaled


def test_gradients_multiplied_once_more() -> None:
    ranks = looked(2, [0.5], 2.0)
    call, step = all_reduce(25), hashed(GRADIENTS, 0, "g")
    fault = only([Event(BACKWARD), call, step, *ranks[0]], [Event(BACKWARD), call, step, *ranks[1]])
    assert str(fault.site) == "train.py:25" and "multiplied by 2, the number of ranks" in fault.explanation
    assert "divided by 2" in only(*looked(1, [], 0.5)).explanation


def test_factors_that_may_be_meant() -> None:
    for right in (
        looked(4, [1 / 4], 1.0),
        looked(4, [0.5, 1 / 4], 1.0),  # a weight of one half
        looked(1, [0.5], 1.0),
        looked(1, [0.5], 2.0),  # a sum that makes up for a division
        looked(4, [1 / 8], 2.0),
        looked(2, [], 0.5),  # divided by the micro-batches after they were added up
        looked(1, [2.0], 0.5),  # a scaler
        looked(4, [1 / 8], 1.0, mean=False),  # one of several terms, or a sum
        looked(4, [1 / 8], 1.0, hook=True),  # a hook that sums
        looked(4, [1 / 8], None),
        looked(4, [1 / 8], 1.0, count=2),  # too few to tell
        looked(1, [], 0.37),  # clipped
        looked(1, [], 2.0, replicas=1),
    ):
        assert kinds(*right) == [], right[0][0]
    mixed = [factor(step, 1, [], ratio) for step, ratio in enumerate((2.0, 2.0, 2.0, 1.0))]
    assert kinds(mixed, mixed) == []
    assert kinds(looked(1, [], 2.0)[0], looked(1, [], 1.0)[0]) == []  # not on all ranks


def test_ranks_on_one_device() -> None:
    def on(*devices: str) -> list[Event]:
        return [Event(PLACE, site=site(9), detail={"model": "ddp0", "devices": list(devices)})]

    fault = only(on("cuda a"), on("cuda b"), on("cuda a"))
    assert (fault.kind, fault.ranks, str(fault.site)) == ("same-device", (0, 2), "train.py:9")
    assert len(silent_faults(run_of(on("cuda a", "cuda b"), on("cuda a", "cuda b")))) == 1
    assert kinds(on("cuda a"), on("cuda b"), []) == []


def test_epochs_that_a_loader_shuffles_alike() -> None:
    def epochs(*orders: str) -> list[Event]:
        return [Event(ORDER, site=site(40), detail={"batches": 8, "order": order}) for order in orders]

    fault = only(epochs("a", "a", "a"), epochs("b", "b", "c"))
    assert (fault.kind, fault.ranks) == ("same-samples", (0, 1)) and "3 of 3 epochs at train.py:40" in fault.explanation
    assert kinds(epochs("a", "b", "c", "a"), epochs("d", "e", "f", "g")) == []
