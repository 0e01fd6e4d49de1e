"""The verdict of a run on a finding: what the rule's `verify` says, and whether the run came to the finding's line at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compare_events import all_reduce, exception, rank_run, recorded, site

from ddp_audit.compare.judging import judge
from ddp_audit.compare.reached import Reached
from ddp_audit.compare.run import KILLED, RAISED, RankRun, RecordedRun
from ddp_audit.events import Event, Site
from ddp_audit.findings import Finding, Span
from ddp_audit.rule import Rule

SOURCE = """\
import os
import sys

flag = len(sys.argv) > 1


def helper(x):
    y = x + 1
    return y


def main(n):
    before = n * 2
    if before:
        early = 1
    else:
        never = 2
    for i in range(n):
        head = i
        if head > 5:
            arm = 3
        os.mkdir("out")
        later_in_loop = 4
    after = 5
    with open("x") as f:
        f.read()
    return after


def again(n):
    first = n
    second = first
    return second


prepared = 1
again(1)
again(2)
try:
    main(3)
except KeyError:
    handled = 1
finally:
    last = 1
done = 1


def late():
    return 1
"""
LINES = {text.strip(): number for number, text in enumerate(SOURCE.splitlines(), 1) if text.strip()}


def at(text: str) -> int:
    return LINES[text]


def frames(*lines: tuple[str, str]) -> tuple[Site, ...]:
    """Frames of a stack, outermost first in the call, by the text of the line and the function."""
    return tuple(site(at(text), function) for text, function in reversed(lines))


def raised(*lines: tuple[str, str]) -> Event:
    stack = frames(*lines)
    event = exception("FileExistsError", "out")
    return Event(event.kind, site=stack[0], stack=stack, detail=event.detail)


MKDIR = raised(("main(3)", "<module>"), ('os.mkdir("out")', "main"))
IN_AGAIN = raised(("again(2)", "<module>"), ("second = first", "again"))


def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *ranks: RankRun) -> bool | None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    line = at(text)
    return Reached(recorded(*ranks)).says(Span("train.py", line, 1, line, 9))


def failed(event: Event) -> tuple[RankRun, RankRun]:
    return rank_run(0, [event], RAISED, 1), rank_run(1, [event], RAISED, 1)


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ('os.mkdir("out")', True),  # the line that failed
        ("head = i", True),  # the line before it in its block
        ("if head > 5:", True),  # the head of a condition
        ("arm = 3", None),  # its arm
        ("for i in range(n):", True),
        ("before = n * 2", True),
        ("early = 1", None),
        ("never = 2", None),
        ("prepared = 1", True),
        ("again(1)", True),
        ("first = n", None),  # a function that was called, as far as the frames tell
        ("y = x + 1", None),
        ("later_in_loop = 4", None),  # an iteration before may have come there
        ("after = 5", False),
        ("f.read()", False),
        ("handled = 1", None),
        ("last = 1", None),
        ("done = 1", False),
        ("return 1", False),  # in a function that was not made yet
        ("flag = len(sys.argv) > 1", True),
    ],
)
def test_what_an_exception_tells_of_lines(text: str, reached: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reach(tmp_path, monkeypatch, text, *failed(MKDIR)) is reached


CALLED = {
    "once, by the program": ("main()\n", False),
    "once, by a function that is called once": ("def run():\n    main()\nrun()\n", None),
    "once, under a condition": ("if flag:\n    main()\n", False),
    "twice": ("flag = 2\nmain()\nmain()\n", None),
    "in a loop": ("for n in range(3):\n    main()\n", None),
    "while something holds": ("while flag:\n    main()\n", None),
    "by a function that is called twice": ("def run():\n    main()\nrun()\nrun()\n", None),
    "by a function that is called in a loop": ("def run():\n    main()\nfor n in range(2):\n    run()\n", None),
    "by a function that calls itself": ("def run():\n    main()\n    run()\n", None),
    "by a method": ("class A:\n    def run(self):\n        main()\nA().run()\n", None),
    "also by another name": ("again = main\nmain()\n", None),
    "by a function that is decorated": ("@twice\ndef run():\n    main()\nrun()\n", None),
}


@pytest.mark.parametrize(("call", "reached"), CALLED.values(), ids=CALLED)
def test_what_comes_after_the_failing_line_depends_on_how_often_its_function_is_called(
    call: str, reached: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import os\n\ndef main():\n    before = 1\n    os.mkdir('x')\n    after = 1\n\n{call}"
    lines = text.splitlines()
    callers = [number for number, line in enumerate(lines, 1) if line.strip().endswith(("main()", "run()")) and "def " not in line]
    inner = next(number for number in callers if lines[number - 1].strip() == "main()")
    outer = [number for number in callers if number != inner and lines[number - 1].lstrip().startswith(("run()", "A()"))][-1:]
    stack = [site(5, "main"), *([site(inner, "run")] if outer else []), site(outer[0] if outer else inner, "<module>")]
    event = exception("FileExistsError", "x")
    failing = Event(event.kind, site=stack[0], stack=tuple(stack), detail=event.detail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    looked = Reached(recorded(*failed(failing)))
    assert [looked.says(Span("train.py", line, 1, line, 9)) for line in (4, 5, 6)] == [True, True, reached]


def test_frames_without_the_outermost_tell_only_what_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = raised(('os.mkdir("out")', "main"))
    assert reach(tmp_path, monkeypatch, "after = 5", *failed(event)) is None
    assert reach(tmp_path, monkeypatch, "before = n * 2", *failed(event)) is True


def test_a_rank_that_went_on_may_have_come_to_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = (rank_run(0, [MKDIR], RAISED, 1), rank_run(1, []))
    assert reach(tmp_path, monkeypatch, "after = 5", *ranks) is None
    killed = (rank_run(0, [MKDIR], RAISED, 1), rank_run(1, [], KILLED, -9))
    assert reach(tmp_path, monkeypatch, "after = 5", *killed) is None


def test_where_events_stand_in_a_file() -> None:
    inner, outer = site(4, "step", "/project/train.py"), site(9, "<module>", "/project/train.py")
    events = [
        all_reduce(3, stack=(inner, outer)),
        all_reduce(5, stack=(site(20, path="/other/train.py"),)),
        all_reduce(7, stack=()),
    ]
    run = recorded(rank_run(0, events[:2]), rank_run(1, [events[0], events[2]]))
    assert [(rank, event.numel) for rank, event in run.events_at("train.py", 4)] == [(0, 4), (1, 4)]
    assert [rank for rank, _ in run.events_at("/project/train.py", 5, 9)] == [0, 1]
    assert run.events_at("train.py", 5, 8) == [] and run.events_at("train.py", 5) == []
    assert run.ranks_at("train.py", 19, 21) == {0} and run.ranks_at("work/train.py", 20) == set()


@pytest.mark.parametrize(
    ("text", "reached"), [("return second", None), ("first = n", True), ("done = 1", False), ("before = n * 2", False)]
)
def test_a_function_that_is_called_twice_proves_nothing_of_its_rest(
    text: str, reached: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None if text == "before = n * 2" else reached  # main is defined, and where it is called is not looked for
    assert reach(tmp_path, monkeypatch, text, *failed(IN_AGAIN)) is expected


def test_all_ranks_have_to_have_ended_before_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*ranks: RankRun) -> bool | None:
        return reach(tmp_path, monkeypatch, "done = 1", *ranks)

    one = rank_run(0, [MKDIR], RAISED, 1)
    waits = all_reduce(0, stack=frames(("main(3)", "<module>"), ("head = i", "main")))
    assert says(one, rank_run(1, [waits], KILLED, -9, waiting=waits)) is False
    assert says(one, rank_run(1, [waits], KILLED, -9)) is None  # it may have gone on
    assert says(one, rank_run(1, [])) is None  # it left in order
    deep = Event(MKDIR.kind, site=MKDIR.site, stack=MKDIR.stack[:1], detail=MKDIR.detail)
    assert says(*failed(deep)) is None  # the outermost frames were not kept
    assert says(*failed(raised(("done = 1", "<module>")))) is True
    assert Reached(RecordedRun(2)).says(Span("train.py", 3, 1, 3, 2)) is None


@pytest.mark.parametrize("source", ["def f(:\n", "", "\0", "x = 1\n" * 3])
def test_a_source_that_does_not_fit_the_trace_says_nothing(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(source)
    assert Reached(recorded(*failed(MKDIR))).says(Span("train.py", 30, 1, 30, 2)) is None
    assert Reached(recorded(*failed(MKDIR))).says(Span("gone.py", 30, 1, 30, 2)) is None


class _Says(Rule):
    """Answers what its `name` says."""

    code = "DDP999"
    name = "not-exercised"
    level = "error"
    trace_evidence = "Two ranks say so."
    fix_hint = "say so"

    def check(self, context: object) -> list[Finding]:
        return []

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        return finding.name


class _Silent(_Says):
    verify = Rule.verify  # type: ignore[assignment]


def finding(text: str, says: str = "not-exercised", code: str = "DDP999") -> Finding:
    return Finding(code, says, "error", "likely", Span("train.py", at(text), 1, at(text), 5), "m")


def test_findings_get_the_verdict_of_their_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    texts = ('os.mkdir("out")', "y = x + 1", "done = 1")
    ran, unknown, behind = (finding(text) for text in texts)
    foreign, shown, clean = finding(texts[0], code="DDP998"), finding(texts[1], "confirmed"), finding(texts[2], "not-observed")
    every = [ran, unknown, behind, foreign, shown, clean]
    judge(every, recorded(*failed(MKDIR)), [_Says()])
    told = ["not-exercised", "not-exercised", "not-covered", None, "confirmed", "not-observed"]
    assert [one.verdict for one in every] == told
    assert ran.verdict_reason == (
        "This line ran, and the run recorded nothing to judge it by. What would show it: two ranks say so."
    )
    assert unknown.verdict_reason.startswith("The trace does not show whether this line ran,")
    assert behind.verdict_reason == "Every rank ended before this line."
    assert (shown.verdict_reason, clean.verdict_reason) == ("", "")
    assert (ran.to_json()["verdict"], ran.to_json()["verdict_reason"]) == ("not-exercised", ran.verdict_reason)
    assert shown.to_json()["verdict_reason"] is None


def test_a_rule_without_a_verdict_of_its_own_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    one = finding('os.mkdir("out")')
    judge([one], recorded(*failed(MKDIR)), {"DDP999": _Silent()})
    assert one.verdict == "not-exercised"


def test_a_later_attempt_may_only_say_more() -> None:
    one = finding("y = x + 1", "confirmed")
    judge([one], recorded(rank_run(0, [])), [_Says()])
    one.name = "not-exercised"
    judge([one], recorded(rank_run(0, [])), [_Says()])
    assert (one.verdict, one.verdict_reason) == ("confirmed", "")


FAILS = """\
import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def prepare(folder):
    name = os.path.join(folder, "out")
    os.makedirs(name)
    os.makedirs(name)
    dist.barrier()


prepare(f"rank{rank}")
dist.destroy_process_group()
"""


@pytest.mark.traced
def test_lines_of_a_real_run_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from ddp_audit.trace.store import load_run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(FAILS)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    line = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "kept", "--", *launch]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert "FileExistsError" in done.stdout, done.stdout + done.stderr
    reached = Reached(load_run("kept"))
    lines = FAILS.splitlines()
    assert [reached.says(Span("train.py", n, 1, n, 2)) for n in (9, 10, 11)] == [True] * 3, lines[8:11]
    assert [reached.says(Span("train.py", n, 1, n, 2)) for n in (12, 16)] == [False] * 2, (lines[11], lines[15])
