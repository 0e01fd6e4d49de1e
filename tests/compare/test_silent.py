"""Silent faults from hand-made runs, and what must not be taken for one."""

from __future__ import annotations

from compare_events import rank_run, recorded, site

from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import DRAWS, FORWARD, LABELS, PARAMETERS, SAMPLER, SEED, STEP, WRAP, Event


def step(unreduced: bool, line: int = 310) -> Event:
    return Event(STEP, site=site(line), detail={"optimizer": "SGD", "models": ["ddp0"], "reduced": 0, "unreduced": unreduced})


def parameters(number: int, value: str, at: str = "step", model: str = "ddp0") -> Event:
    return Event(PARAMETERS, site=site(310), detail={"model": model, "step": number, "hash": value, "at": at})


def forward_of(batch: str | None, grad: bool = True, model: str = "ddp0") -> Event:
    return Event(FORWARD, site=site(300), detail={"model": model, "grad": grad, "batch": batch})


def sampler(epoch: int, action: str = "iter", shuffle: bool = True, line: int = 20, replicas: int | None = 2) -> Event:
    detail = {"action": action, "epoch": epoch, "rank": 0, "replicas": replicas, "shuffle": shuffle}
    return Event(SAMPLER, site=site(line), detail=detail)


def seed(value: int, line: int = 5) -> Event:
    return Event(SEED, site=site(line), detail={"seed": value})


def draws(forward: int, stream: str, model: str = "ddp0") -> Event:
    return Event(DRAWS, site=site(300), detail={"model": model, "forward": forward, "stream": stream})


def labels(backward: int, count: int, weight: float | None = None, model: str = "ddp0") -> Event:
    detail = {"model": model, "backward": backward, "labels": count, "weight": 1 / count if weight is None else weight}
    return Event(LABELS, site=site(305), detail=detail)


def wrap(group: str = "default", model: str = "ddp0") -> Event:
    return Event(WRAP, detail={"model": model, "group": group})


def run_of(*ranks: list[Event], **groups: tuple[int, ...]) -> RecordedRun:
    return recorded(*(rank_run(rank, events) for rank, events in enumerate(ranks)), **groups)


def only(run: RecordedRun, kind: str) -> SilentFault:
    found = silent_faults(run)
    assert [fault.kind for fault in found] == [kind]
    return found[0]


def test_steps_on_unreduced_gradients() -> None:
    fault = only(run_of([step(False), step(True), step(True)], [step(False), step(True), step(False)]), "gradients-not-reduced")
    assert fault.ranks == (0, 1)
    assert str(fault.site) == "train.py:310"
    assert "in 2 of 3 steps on ranks 0 and 1" in fault.explanation


def test_reduced_steps_are_no_fault() -> None:
    assert silent_faults(run_of([step(False)] * 3, [step(False)] * 3)) == []


def test_a_single_rank_has_no_fault() -> None:
    assert silent_faults(run_of([step(True), parameters(1, "a"), parameters(2, "b")])) == []


def test_parameters_that_differ_are_told_once_from_the_first_step() -> None:
    a = [parameters(1, "aa"), parameters(2, "bb"), parameters(3, "cc")]
    b = [parameters(1, "aa"), parameters(2, "xx"), parameters(3, "yy")]
    fault = only(run_of(a, b), "parameters-differ")
    assert fault.ranks == (0, 1)
    assert "after optimizer step 2; after step 1 they were still equal" in fault.explanation


def test_the_minority_of_differing_parameters_is_named() -> None:
    fault = only(run_of([parameters(5, "a")], [parameters(5, "b")], [parameters(5, "a")]), "parameters-differ")
    assert "rank 1 differs from the majority" in fault.explanation


def test_parameters_are_compared_at_equal_model_step_and_moment() -> None:
    assert silent_faults(run_of([parameters(1, "a")], [parameters(2, "b")])) == []
    assert silent_faults(run_of([parameters(1, "a", "exit")], [parameters(1, "b", "step")])) == []
    assert silent_faults(run_of([parameters(1, "a", model="ddp0")], [parameters(1, "b", model="ddp1")])) == []


def test_wrappers_of_different_groups_may_hold_different_parameters() -> None:
    ranks = [[wrap("low"), parameters(1, "a")]] * 2 + [[wrap("high"), parameters(1, "b")]] * 2  # stages of a pipeline
    assert silent_faults(run_of(*ranks, low=(0, 1), high=(2, 3))) == []
    ranks[3] = [wrap("high"), parameters(1, "c")]
    assert only(run_of(*ranks, low=(0, 1), high=(2, 3)), "parameters-differ").ranks == (2, 3)
    ranks = [[wrap("low"), parameters(1, "a")]] * 2 + [[parameters(1, "b")]] * 2
    assert silent_faults(run_of(*ranks, low=(0, 1))) == []


def test_the_same_samples_on_two_ranks() -> None:
    batches = [forward_of(f"{n:016x}") for n in range(5)]
    fault = only(run_of(batches, batches), "same-samples")
    assert fault.ranks == (0, 1)
    assert "in 5 of 5 training forwards" in fault.explanation
    assert str(fault.site) == "train.py:300"


def test_one_epoch_of_equal_batches_is_no_chance_though_later_ones_differ() -> None:
    equal = [forward_of(f"batch {n}") for n in range(8)]
    later = [[forward_of(f"rank {rank} batch {n}") for n in range(40)] for rank in range(2)]
    fault = only(run_of([*equal, *later[0]], [*equal, *later[1]]), "same-samples")
    assert fault.ranks == (0, 1) and "8 of 48" in fault.explanation
    assert silent_faults(run_of([*equal[:7], *later[0]], [*equal[:7], *later[1]])) == []


def test_same_samples_on_two_of_three_ranks() -> None:
    same, other = [forward_of(f"{n:x}") for n in range(4)], [forward_of(f"{n:x}") for n in range(10, 14)]
    assert only(run_of(same, other, same), "same-samples").ranks == (0, 2)


def test_what_is_not_the_same_samples() -> None:
    same = [f"{n:x}" for n in range(6)]
    evaluation = [forward_of(b, grad=False) for b in same]
    assert silent_faults(run_of(evaluation, evaluation)) == []
    constant = [forward_of("1")] * 6
    assert silent_faults(run_of(constant, constant)) == []
    unknown = [forward_of(None)] * 6
    assert silent_faults(run_of(unknown, unknown)) == []
    # Padding of the last batches repeats samples on two ranks.
    a, b = (
        [forward_of(f"a{n}") for n in range(6)],
        [forward_of(f"b{n}") for n in range(4)] + [forward_of("a4"), forward_of("a5")],
    )
    assert silent_faults(run_of(a, b)) == []


def test_ranks_of_different_groups_may_share_samples() -> None:
    batches = [forward_of(f"{n:x}") for n in range(5)]
    ranks = [[wrap("columns"), *batches], [wrap("columns"), *[forward_of(f"x{n}") for n in range(5)]], batches, batches]
    assert silent_faults(run_of(*ranks, columns=(0, 1))) == []


def test_epochs_that_repeat_their_order() -> None:
    def epochs(rank: int, first: int, second: int) -> list[Event]:
        batches = [forward_of(f"{rank}{n}") for n in range(4)]
        return [sampler(first), *batches, sampler(second), *batches]

    fault = only(run_of(epochs(0, 0, 0), epochs(1, 0, 0)), "same-samples")
    assert "set_epoch" in fault.explanation and "2 epochs at train.py:20" in fault.explanation


def test_an_epoch_is_what_follows_an_iteration_of_the_sampler() -> None:
    """Another action of it, or of something else, begins none."""

    def epochs(rank: int) -> list[Event]:
        one = [forward_of(f"{rank}{n}") for n in range(4)]
        between = [sampler(0, action="set_epoch"), Event(FORWARD, detail={"model": "ddp0", "grad": False, "action": "iter"})]
        return [sampler(0), *one[:1], *between, *one[1:], sampler(0), *one]

    fault = only(run_of(epochs(0), epochs(1)), "same-samples")
    assert fault.ranks == (0, 1) and "2 epochs" in fault.explanation


def test_epochs_that_do_not_repeat() -> None:
    def epochs(rank: int, *, shuffle: bool, second: int, same: bool, grad: bool = True, replicas: int | None = 2) -> list[Event]:
        one = [forward_of(f"{rank}{n}", grad) for n in range(4)]
        two = one if same else one[::-1]
        first, again = (sampler(epoch, shuffle=shuffle, replicas=replicas) for epoch in (0, second))
        return [first, *one, again, *two]

    for options in (
        {"shuffle": True, "second": 1, "same": False},  # right: set_epoch was called
        {"shuffle": False, "second": 0, "same": True},  # no shuffling was asked for
        {"shuffle": True, "second": 0, "same": True, "grad": False},  # an evaluation
        {"shuffle": True, "second": 0, "same": False},
        {"shuffle": True, "second": 0, "same": True, "replicas": 1},  # a sampler that deals out to one rank alone
        {"shuffle": True, "second": 0, "same": True, "replicas": None},
    ):
        assert silent_faults(run_of(epochs(0, **options), epochs(1, **options))) == [], options  # type: ignore[arg-type]


def test_ranks_that_draw_from_one_stream() -> None:
    drawn = [draws(n, f"{n:x}") for n in range(4)]
    fault = only(run_of([seed(1), *drawn], [seed(1), *drawn]), "seed")
    assert fault.ranks == (0, 1) and str(fault.site) == "train.py:5"
    assert "4 of 4 training forwards" in fault.explanation and "the seed 1 from train.py:5" in fault.explanation


def test_the_seed_that_counts_is_the_last_before_the_draw() -> None:
    drawn = [draws(n, f"{n:x}") for n in range(4)]
    fault = only(run_of(*[[seed(1, 4), seed(2, 5), *drawn, seed(7, 9), seed(8, 9)]] * 2), "seed")
    assert str(fault.site) == "train.py:5" and "the seed 2 from train.py:5" in fault.explanation


def test_replicas_are_two_ranks_at_least() -> None:
    run = run_of([wrap("pair")], [wrap("pair")], [wrap("alone")], pair=(0, 1), alone=(2,))
    assert list(Groups(run).of("ddp0", range(3))) == [[0, 1]]
    assert list(Groups(run).of("ddp0", [1, 2])) == []
    assert list(Groups(run).of("ddp1", [1])) == []


def test_a_shared_stream_without_a_shared_seed_is_told_at_the_forward() -> None:
    drawn = [draws(n, f"{n:x}") for n in range(4)]
    fault = only(run_of(drawn, drawn, [draws(n, f"own {n}") for n in range(4)]), "seed")
    assert fault.ranks == (0, 1) and str(fault.site) == "train.py:300"


def test_what_is_not_one_stream() -> None:
    drawn = [draws(n, f"{n:x}") for n in range(8)]
    other = [draws(n, f"own {n}") for n in range(8)]
    assert silent_faults(run_of([seed(1), *drawn], [seed(2), *other])) == []
    assert silent_faults(run_of([seed(1)], [seed(1)])) == []  # nothing is drawn
    assert silent_faults(run_of(drawn[:2], drawn[:2])) == []  # too few to tell
    assert silent_faults(run_of(drawn[:3] + other[3:], drawn)) == []  # they part soon
    assert silent_faults(run_of(drawn, [draws(n + 1, f"{n:x}") for n in range(8)])) == []  # at different steps
    ranks = [[wrap("columns"), *drawn], [wrap("columns"), *other], drawn, drawn]
    assert silent_faults(run_of(*ranks, columns=(0, 1))) == []  # replicas outside of the wrapper's group


def test_means_over_unequal_numbers_of_labels() -> None:
    a, b = [labels(n, 100) for n in range(4)], [labels(n, 300) for n in range(4)]
    fault = only(run_of(a, b), "token-weights")
    assert fault.ranks == (0, 1) and str(fault.site) == "train.py:305"
    assert "weighs 3.00 times" in fault.explanation and "100 on rank 0 and 300 on rank 1" in fault.explanation


def test_what_weighs_alike() -> None:
    a, b = [labels(n, 100) for n in range(6)], [labels(n, 300) for n in range(6)]
    assert silent_faults(run_of(a, a)) == []
    assert silent_faults(run_of(a, [labels(n, 103) for n in range(6)])) == []  # a few percent
    assert silent_faults(run_of(a[:2], b[:2])) == []  # too few to tell
    assert silent_faults(run_of(a, [*b[:1], *a[1:]])) == []  # a last batch that is short
    # Scaled by the labels of all ranks, and a loss of another factor over equal numbers.
    assert silent_faults(run_of([labels(n, 100, 1 / 200) for n in range(6)], [labels(n, 300, 1 / 200) for n in range(6)])) == []
    assert silent_faults(run_of(a, [labels(n, 100, 0.5) for n in range(6)])) == []
    ranks = [[wrap("low"), *a], [wrap("low"), *a], b, b]
    assert silent_faults(run_of(*ranks, low=(0, 1))) == []
