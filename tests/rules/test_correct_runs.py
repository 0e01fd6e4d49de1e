"""No verdict CONFIRMED for what a correct program shows too: each rule's finding, and runs that only look like its hazard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from found import audited, findings, rules

from ddp_audit.compare.run import EXITED, KILLED, RAISED, WAITING, RankRun, RecordedRun
from ddp_audit.events import (
    BACKWARD,
    BATCH,
    COLLECTIVE,
    DDP_BUCKET,
    DDP_BUFFERS,
    DEVICE,
    EXCEPTION,
    FORWARD,
    GROUP,
    OUTSIDE,
    SAMPLER,
    SAVE,
    START,
    STEP,
    WRAP,
    Event,
    Site,
)
from ddp_audit.findings import Finding, Related, Span

PEER = "Connection closed by peer [127.0.0.1]:1234"
STAGES = {"default": (0, 1, 2, 3), "a": (0, 2), "b": (1, 3)}  # ranks 0 and 1 are one model-parallel group, and so are 2 and 3
Finder = Callable[[str], Finding]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finder:
    """Finds what a rule says of its own bad example."""
    monkeypatch.chdir(tmp_path)

    def found(code: str) -> Finding:
        return findings(code, audited(tmp_path, rules()[code].bad), "possible")[0]

    return found


def event(kind: str, line: int, op: str = "all_reduce", **fields: object) -> Event:
    site = Site("train.py", line)
    known = {name: fields.pop(name) for name in ("group", "origin", "numel", "dtype") if name in fields}
    return Event(kind, op if kind == COLLECTIVE else "", site=site, stack=(site,), detail=fields, **known)  # type: ignore[arg-type]


def error(line: int, text: str = PEER, kind: str = "RuntimeError") -> Event:
    return event(EXCEPTION, line, type=kind, text=text)


def ended(number: int, events: list[Event], state: str = EXITED, code: int | None = 0, waiting: Event | None = None) -> RankRun:
    return RankRun(number, events, state, code, waiting=waiting)


def run_of(*ranks: list[Event] | RankRun, groups: dict[str, tuple[int, ...]] | None = None, **meta: object) -> RecordedRun:
    known = {n: one if isinstance(one, RankRun) else ended(n, one) for n, one in enumerate(ranks)}
    complete = all(one.state in (EXITED, RAISED) for one in known.values())
    return RecordedRun(len(known), known, dict(groups or {"default": tuple(known)}), complete, dict(meta))


def says(finding: Finding, run: RecordedRun) -> str:
    return rules()[finding.code].verify(finding, run)


def role(finding: Finding, name: str) -> int:
    """The line of a related place."""
    return next(place.line for place in finding.related if place.role == name)


def said(finding: Finding, text: str) -> int:
    return next(place.line for place in finding.related if place.text.startswith(text))


# ---- who shares what


def wraps(rank: int) -> Event:
    return event(WRAP, 10, group="ab"[rank % 2], model="ddp0")


def test_samplers_of_a_data_parallel_subgroup(find: Finder) -> None:
    finding = find("DDP303")
    finding.message = finding.message.replace("seed", "")

    def run(*shares: tuple[int, int], wrapped: bool = True, groups: dict[str, tuple[int, ...]] | None = None) -> RecordedRun:
        ranks = [
            [*([wraps(n)] if wrapped else []), event(SAMPLER, 20, action="iter", rank=own, replicas=count)]
            for n, (own, count) in enumerate(shares)
        ]
        return run_of(*ranks, groups=groups or STAGES)

    right = ((0, 2), (0, 2), (1, 2), (1, 2))
    assert says(finding, run(*right)) == "not-observed"
    assert says(finding, run(*right, wrapped=False)) == "not-exercised"  # nothing says who shares the data
    assert says(finding, run((0, 2), (1, 2), (0, 2), (1, 2))) == "confirmed"  # by the rank in the other group
    assert says(finding, run((0, 4), (1, 4), (2, 4), (3, 4))) == "confirmed"  # half of the data is seen by nobody
    world = {"default": (0, 1)}
    assert says(finding, run((0, 1), (0, 1), wrapped=False, groups=world)) == "confirmed"


@pytest.mark.parametrize("code", ["DDP301", "DDP304"])
def test_equal_batches(code: str, find: Finder) -> None:
    finding = find(code)
    forward = role(finding, "forward")

    def run(*batches: str, wrapped: bool = False) -> RecordedRun:
        ranks = [
            [*([wraps(n)] if wrapped else []), *(event(FORWARD, forward, model="ddp0", grad=True, batch=one) for one in own)]
            for n, own in enumerate(batches)
        ]
        return run_of(*ranks, groups=STAGES if wrapped else None)

    assert says(finding, run("abcd", "abcd")) == "confirmed"
    assert says(finding, run("abcd", "efgh")) == "not-observed"
    assert says(finding, run("abcd", "efga")) == "not-observed"  # a sampler's padding
    assert says(finding, run("abcd", "badc")) == "not-observed"  # shared out anew in each epoch, one sample a batch
    assert says(finding, run("aaaa", "aaaa")) == "not-exercised"  # an input that never changes
    assert says(finding, run("abcd", "abcd", "efgh", "efgh", wrapped=True)) == "not-observed"  # one model-parallel group
    assert says(finding, run("abcd", "efgh", "abcd", "efgh", wrapped=True)) == "confirmed"


def test_windows_that_are_drawn_again_in_another_step(find: Finder) -> None:
    finding = find("DDP309")

    def run(*batches: str) -> RecordedRun:
        return run_of(*([event(FORWARD, 20, grad=True, batch=one) for one in own] for own in batches))

    assert says(finding, run("abcd", "dabc")) == "not-exercised"
    assert says(finding, run("abcd", "abcd")) == "confirmed"


def test_samples_of_an_evaluation_and_of_padding(find: Finder) -> None:
    finding = find("DDP306")

    def epoch(number: int, batches: str, evaluated: str = "") -> list[Event]:
        begun = event(SAMPLER, 20, action="iter", epoch=number, rank=0, replicas=2, shuffle=True)
        trained = [event(FORWARD, 21, grad=True, batch=one) for one in batches]
        return [begun, *trained, *(event(BATCH, 30, fingerprint=one) for one in evaluated)]

    def run(*ranks: list[Event]) -> str:
        return says(finding, run_of(*ranks))

    assert run(epoch(0, "abc", "xyz"), epoch(0, "def", "xyz")) == "not-exercised"  # all ranks evaluate the whole set
    assert run(epoch(0, "abc"), epoch(0, "dea")) == "not-exercised"  # padding
    assert run(epoch(0, "ab") + epoch(1, "cd"), epoch(0, "cd") + epoch(1, "ab")) == "not-exercised"  # shared out anew
    assert run(epoch(0, "abc"), epoch(0, "bca")) == "confirmed"


def test_one_seed_with_data_that_is_shared_out(find: Finder) -> None:
    finding = find("DDP308")
    ranks = [[event("seed", 5, seed=1), *(event(FORWARD, 9, grad=True, batch=b) for b in own)] for own in ("abc", "def")]
    assert says(finding, run_of(*ranks)) == "not-exercised"


def test_two_loaders_of_one_helper(find: Finder) -> None:
    finding = find("DDP302")
    line = role(finding, "batches")

    def rank(*epochs: int) -> list[Event]:
        return [event(SAMPLER, line, action="iter", shuffle=True, epoch=one) for one in epochs]

    assert says(finding, run_of(rank(0, 0, 1, 1), rank(0, 0, 1, 1))) == "not-observed"
    assert says(finding, run_of(rank(0, 0, 0), rank(0, 0, 0))) == "confirmed"
    assert says(finding, run_of(rank(0), rank(0))) == "not-exercised"


def test_stages_with_parameters_of_their_own(find: Finder) -> None:
    finding = find("DDP102")

    def run(*hashes: str) -> RecordedRun:
        made = ([wraps(n), event(OUTSIDE, 20, model="ddp0", joins=0, step=1, at="step", hash=one)] for n, one in enumerate(hashes))
        return run_of(*made, groups=STAGES)

    assert says(finding, run("x", "y", "x", "y")) == "not-observed"
    assert says(finding, run("x", "y", "z", "y")) == "confirmed"


# ---- who issues what


def test_a_collective_of_a_subgroup(find: Finder) -> None:
    finding = find("DDP201")
    line = finding.span.line
    mine = [event(COLLECTIVE, line, group="a")]
    barrier = event(COLLECTIVE, 900, "barrier")
    ranks = [[*mine, barrier], [barrier], [*mine, barrier], [barrier]]
    assert says(finding, run_of(*ranks, groups=STAGES)) == "not-observed"
    ranks[2] = [barrier]
    assert says(finding, run_of(*ranks, groups=STAGES)) == "confirmed"


@pytest.mark.parametrize("code", ["DDP201", "DDP202"])
def test_both_arms_issue_it(code: str, find: Finder) -> None:
    finding = find(code)
    one, other = (event(COLLECTIVE, line, numel=4, dtype="float32") for line in (finding.span.line, 900))
    assert says(finding, run_of([one, one], [other, other])) != "confirmed"
    assert says(finding, run_of([one, one], [other])) == "confirmed"


@pytest.mark.parametrize("code", ["DDP201", "DDP203", "DDP205"])
def test_a_rank_that_failed_elsewhere_had_no_time(code: str, find: Finder) -> None:
    finding = find(code)
    line = {"DDP203": "what the other ranks do", "DDP205": "what the ranks do together"}.get(code)
    here = event(COLLECTIVE, finding.span.line if line is None else said(finding, line))
    waits = ended(0, [here, here, error(here.site.line)], RAISED, 1)  # type: ignore[union-attr]
    out_of_memory = ended(1, [here, error(950, "CUDA out of memory", "OutOfMemoryError")], RAISED, 1)
    assert says(finding, run_of(waits, out_of_memory)) == "not-observed"
    assert says(finding, run_of(waits, ended(1, [], KILLED, -9))) == "not-observed"
    assert says(finding, run_of(waits, [here])) == "confirmed"  # it left in order


@pytest.mark.parametrize("code", ["DDP201", "DDP203", "DDP205", "DDP401"])
def test_a_run_that_was_ended_from_outside(code: str, find: Finder) -> None:
    finding = find(code)
    line = {"DDP203": "what the other ranks do", "DDP205": "what the ranks do together"}.get(code)
    here = event(COLLECTIVE, finding.span.line if line is None else said(finding, line), "broadcast", origin=DDP_BUFFERS)
    first = event(COLLECTIVE, 4, "broadcast")
    ahead, behind = ended(0, [first, here], KILLED, -15), ended(1, [first], KILLED, -15)
    assert says(finding, run_of(ahead, behind)) != "confirmed"
    interrupted = ended(0, [first, here, error(30, "", "KeyboardInterrupt")], RAISED, 130)
    assert says(finding, run_of(interrupted, ended(1, [first, error(40, "", "KeyboardInterrupt")], RAISED, 130))) != "confirmed"


def test_a_wrapper_of_some_ranks(find: Finder) -> None:
    finding = find("DDP401")
    sent = event(COLLECTIVE, finding.span.line, "broadcast", group="a", origin=DDP_BUFFERS)
    barrier = event(COLLECTIVE, 900, "barrier")
    assert says(finding, run_of([sent, barrier], [barrier], [sent, barrier], [barrier], groups=STAGES)) == "not-observed"
    assert says(finding, run_of([sent, barrier], [barrier], [barrier], [barrier], groups=STAGES)) == "confirmed"


def test_sizes_of_different_groups_and_errors_of_a_peer(find: Finder) -> None:
    finding = find("DDP207")

    def sent(group: str, numel: int) -> list[Event]:
        return [event(COLLECTIVE, finding.span.line, "all_gather", group=group, numel=numel, dtype="float32")]

    ranks = [sent("a", 4), sent("b", 8), sent("a", 4), sent("b", 8)]
    assert says(finding, run_of(*ranks, groups=STAGES)) == "not-observed"
    ranks[2] = sent("a", 6)
    assert says(finding, run_of(*ranks, groups=STAGES)) == "confirmed"
    here = sent("default", 4)
    peer = ended(0, [*here, error(finding.span.line)], RAISED, 1)
    assert says(finding, run_of(peer, ended(1, here, KILLED, -9))) == "not-observed"
    own = ended(0, [*here, error(finding.span.line, "Tensor list output must be equal in size")], RAISED, 1)
    assert says(finding, run_of(own, ended(1, here, KILLED, -15))) == "confirmed"


def test_errors_that_a_peer_caused_and_that_all_ranks_have(find: Finder) -> None:
    finding = find("DDP204")
    line = finding.span.line
    peer, own = error(line), error(line, "no such file", "ValueError")
    assert says(finding, run_of(ended(0, [peer], RAISED, 1), ended(1, [], KILLED, -15))) == "not-exercised"
    assert says(finding, run_of(ended(0, [own], RAISED, 1), ended(1, [own], RAISED, 1))) == "not-exercised"
    assert says(finding, run_of(ended(0, [own], RAISED, 1), ended(1, [], KILLED, -15))) == "confirmed"


def test_a_rank_that_came_less_far(find: Finder) -> None:
    unordered = find("DDP206")
    sizes = [[event(COLLECTIVE, unordered.span.line, numel=n) for n in order] for order in ((1, 2, 3), (1, 2))]
    assert says(unordered, run_of(ended(0, sizes[0], KILLED, -15), ended(1, sizes[1], KILLED, -15))) == "not-observed"
    groups = find("DDP209")
    here, other = (event(GROUP, groups.span.line, action="new", ranks=ranks) for ranks in ([0], [0, 1]))
    assert says(groups, run_of(ended(0, [here, other], KILLED, -15), ended(1, [here], KILLED, -15))) == "not-observed"
    assert says(groups, run_of([here, other], [here])) == "confirmed"


def test_a_message_under_way_when_the_run_was_ended(find: Finder) -> None:
    finding = find("DDP210")
    send = event(COLLECTIVE, finding.span.line, "send", peer=1, tag=0)
    interrupted = [ended(n, [send, error(9, "", "KeyboardInterrupt")], RAISED, 130, waiting=send) for n in (0, 1)]
    assert says(finding, run_of(*interrupted)) != "confirmed"
    failed = ended(1, [error(9, "boom")], RAISED, 1)
    assert says(finding, run_of(ended(0, [send], KILLED, -15, waiting=send), failed)) != "confirmed"
    assert says(finding, run_of(ended(0, [send], KILLED, -15, waiting=send), ended(1, [], KILLED, -15), killed=True)) == "confirmed"


def test_waits_for_a_rank_that_failed(find: Finder) -> None:
    long_work = find("DDP211")
    barrier = event(COLLECTIVE, said(long_work, "where the others wait"), "barrier")
    failed = ended(0, [error(9, "disk full", "OSError")], RAISED, 1)
    assert says(long_work, run_of(failed, ended(1, [barrier], WAITING, None, waiting=barrier))) == "not-exercised"
    graph = find("DDP109")
    bucket = event(COLLECTIVE, 901, origin=DDP_BUCKET)
    waits = ended(1, [event(FORWARD, 900), bucket], WAITING, None, waiting=bucket)
    assert (
        says(graph, run_of(ended(0, [event(FORWARD, 900), error(9, "disk full", "OSError")], RAISED, 1), waits)) == "not-observed"
    )


# ---- other looks


@pytest.mark.parametrize("code", ["DDP101", "DDP106"])
def test_backward_passes_under_no_sync(code: str, find: Finder) -> None:
    finding = find(code)
    line = role(finding, "backward") if code == "DDP101" else finding.span.line

    def rank(sync: bool) -> list[Event]:
        return [
            event(BACKWARD, line - 1, buckets=1),
            event(FORWARD, 9, model="ddp0", sync=sync),
            event(BACKWARD, line, buckets=0),
            event(STEP, 30),
        ]

    assert says(finding, run_of(rank(False), rank(False))) in ("not-observed", "not-exercised")
    assert says(finding, run_of(rank(True), rank(True))) == "confirmed"


def test_another_exception_than_that_of_the_check() -> None:
    span = Span("train.py", 20, 1, 20, 9)
    finding = Finding("DDP505", "", "error", "likely", span, "m", related=[Related("train.py", 12, "check", "assert a % b == 0")])

    def run(line: int) -> RecordedRun:
        return run_of(*(ended(n, [error(line, "no such file", "FileNotFoundError")], RAISED, 1) for n in (0, 1)))

    assert says(finding, run(900)) == "not-exercised"
    assert says(finding, run(role(finding, "check"))) == "confirmed"


def test_files_of_different_hosts_and_turns(find: Finder) -> None:
    all_write, differs = find("DDP701"), find("DDP702")

    def save(line: int, path: str) -> Event:
        return event(SAVE, line, path=path)

    def run(*hosts: str) -> RecordedRun:
        return run_of(*([event(START, 1, host=host), save(all_write.span.line, "last.pt")] for host in hosts))

    assert says(all_write, run("a", "b")) == "not-observed"
    assert says(all_write, run("a", "a")) == "confirmed"
    line = all_write.span.line
    turns = [[save(line, "last.pt"), event(STEP, 9)], [event(STEP, 9), save(line, "last.pt")]]
    assert says(all_write, run_of(*turns)) == "not-observed"
    ahead = [save(differs.span.line, name) for name in ("1.pt", "2.pt")]
    assert says(differs, run_of(ended(0, ahead, KILLED, -15), ended(1, ahead[:1], KILLED, -15))) == "not-observed"


def test_indices_of_one_host(find: Finder) -> None:
    finding = find("DDP601")

    def run(*ranks: tuple[str, int]) -> RecordedRun:
        return run_of(*([event(START, 1, host=host), event(DEVICE, finding.span.line, index=index)] for host, index in ranks))

    assert says(finding, run(("a", 4), ("a", 5))) == "not-exercised"  # others have the first GPUs
    assert says(finding, run(("a", 0), ("a", 1), ("b", 0), ("b", 1))) == "not-observed"
    assert says(finding, run(("a", 0), ("a", 1), ("b", 2), ("b", 3))) == "confirmed"


@pytest.mark.parametrize("message", ["The group is never destroyed.", "The group is destroyed on the normal path only."])
def test_a_group_that_an_exception_left(message: str) -> None:
    finding = Finding("DDP604", "", "info", "likely", Span("train.py", 3, 1, 3, 9), message)
    made, gone = event(GROUP, 3, action="init"), event(GROUP, 9, action="destroy")

    def verdicts(*events: Event) -> list[str]:
        raised = run_of(*(ended(n, [*events, error(9, "boom")], RAISED, 1) for n in (0, 1)))
        return [says(finding, raised), says(finding, run_of(list(events), list(events)))]

    never = "never" in message
    assert verdicts(made) == (["not-exercised", "confirmed"] if never else ["confirmed", "not-exercised"])
    assert verdicts(made, gone) == (["not-exercised", "not-observed"] if never else ["not-observed", "not-exercised"])


def test_an_attribute_that_is_missing_elsewhere(find: Finder) -> None:
    finding = find("DDP115")
    text = "'Namespace' object has no attribute 'scale'"
    run = run_of(*(ended(n, [error(900, text, "AttributeError")], RAISED, 1) for n in (0, 1)))
    assert says(finding, run) == "not-exercised"


def test_one_writer_a_host(find: Finder) -> None:
    finding = find("DDP212")
    block = role(finding, "guarded")
    ranks = [[event(START, 1, host=host), event(SAVE, block, path="x")] for host in ("a", "b")]
    assert says(finding, run_of(*ranks)) == "not-observed"
    same = [replace(rank[0], detail={"host": "a"}) for rank in ranks]
    assert says(finding, run_of(*([start, rank[1]] for start, rank in zip(same, ranks, strict=True)))) == "confirmed"


def test_a_predicted_hang_is_not_shown_by_a_run_that_somebody_ended() -> None:
    finding = Finding(
        "DDP213", "", "error", "certain", Span("train.py", 30, 1, 30, 9), "m", related=[Related("train.py", 30, "stands", "")]
    )
    here = event(COLLECTIVE, 30)
    assert says(finding, run_of(*(ended(n, [here], KILLED, -15, waiting=here) for n in (0, 1)))) == "not-exercised"
    waits = ended(0, [here], KILLED, -15, waiting=here)
    assert says(finding, run_of(waits, ended(1, [error(9, "boom")], RAISED, 1))) != "confirmed"
    assert says(finding, run_of(waits, [])) == "confirmed"  # the other one left in order
    assert says(finding, run_of([here], [here])) == "not-observed"
