"""The rewritings: each keeps what a program does, applies to some program, and a finding that a form loses is counted."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from forms.every import FORMS
from forms.form import Form, Source
from forms.forms import SINGLY, TOGETHER, Trial, drawn, lines_of, share_of, title, tried
from forms.subjects import alarms, folder_of, subjects
from oracle.grammar import draw
from oracle.standin import COMPLETED, run_ranks

SUBJECTS = subjects()
# What the stand-in for torch does not have.
NOT_IN_THE_STANDIN = {"by importlib", "from a helper with a fallback", "of the group of all"}
HEAD = "import torch\nimport torch.distributed as dist\n\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"


def form(name: str) -> Form:
    """The form with this name."""
    return next(one for one in FORMS if one.name == name)


def issued(text: str) -> dict[int, tuple[list[tuple[str, object]], str]]:
    """What each of two ranks issues and how it ends, by rank, under CPython and a stand-in for torch."""
    warnings.simplefilter("ignore", SyntaxWarning)
    return {rank: ([event[:2] for event in run.events], run.end) for rank, run in run_ranks(text, 2).ranks.items()}


def test_there_are_many_and_each_has_its_name() -> None:
    assert len(FORMS) >= 150
    assert len({title(one) for one in FORMS}) == len(FORMS)


@pytest.mark.parametrize("seed", [3, pytest.param(range(20, 60), marks=pytest.mark.nightly)], ids=["one", "many"])
def test_a_rewritten_program_issues_what_it_issued(seed: int | range) -> None:
    applied = 0
    for number in [seed] if isinstance(seed, int) else seed:
        text = draw(number)
        before = issued(text)
        for one in FORMS:
            done = one.rewrite(Source(text))
            if done is not None and not done.files and one.name not in NOT_IN_THE_STANDIN:
                applied += 1
                assert issued(done.text) == before, (number, title(one), done.text)
    assert applied > 30


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("pass in a nested function", "for i in range(3):\n    x = i * 2\n    torch.manual_seed(x)\ndist.barrier()\n"),
        ("while that counts down", "for i in range(4):\n    if i == 2:\n        continue\n    torch.manual_seed(i)\n    i = 9\n"),
        ("last if as an early exit", "for i in range(3):\n    if i != rank:\n        torch.manual_seed(i)\n"),
        ("flag by |=", "bad = False\nfor i in range(3):\n    if i == rank:\n        bad = True\n    torch.manual_seed(int(bad))\n"),
        ("comprehension", "xs = []\nfor i in range(3):\n    xs.append(i + rank)\ntorch.manual_seed(sum(xs))\n"),
        ("nested ifs as and", "if rank == 0:\n    if rank < 3:\n        torch.manual_seed(1)\n"),
        ("ternary as an if", "x = 1 if rank else 2\ntorch.manual_seed(x)\n"),
        ("code of the module in main()", "def f(x):\n    torch.manual_seed(x)\n\n\nf(rank)\nfor i in range(2):\n    f(i)\n"),
        ("other names for locals", "def f(x):\n    y = x\n    def g():\n        return y\n    torch.manual_seed(g())\nf(rank)\n"),
        ("function as a generator that is driven", "def f(n):\n    for i in range(n):\n        torch.manual_seed(i)\nf(2)\n"),
    ],
)
def test_a_form_changes_the_text_and_not_what_is_issued(name: str, body: str) -> None:
    done = form(name).rewrite(Source(HEAD + body))
    assert done is not None and done.text != HEAD + body
    before = issued(HEAD + body)
    assert issued(done.text) == before
    assert any(events for events, _ in before.values()) and all(end == COMPLETED for _, end in before.values())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("comprehension", "for i in range(3):\n    print(i)\nprint(i)\n"),  # read after the loop
        ("pass in a nested function", "total = 0\nfor i in range(3):\n    total += i\nprint(total)\n"),
        ("condition in a predicate", "if (x := input()) == 'a':\n    print(x)\n"),  # binds a name
        ("other names for locals", "def f():\n    x = 1\n    return locals()\n"),  # looks at its names
        ("flag by |=", "bad = None\nif input():\n    bad = True\n"),  # no truth value before
    ],
)
def test_a_form_leaves_what_it_cannot_keep(name: str, text: str) -> None:
    assert form(name).rewrite(Source(text)) is None


def test_a_second_file_holds_what_is_moved() -> None:
    text = "import torch\n\n\ndef double(x):\n    return 2 * x\n\n\nsize = 3\n\n\ndef sized():\n    return size\n\n\nprint(double(sized()))\n"
    done = form("functions in a second file").rewrite(Source(text))
    assert done is not None
    assert "def double" in done.files["parts.py"] and "def sized" in done.text and "from parts import double" in done.text


def test_five_at_once_are_drawn_by_the_seed() -> None:
    subject = next(one for one in SUBJECTS if one.name == "page/ddp201/bad.py")
    assert drawn(subject, FORMS, "1") == drawn(subject, FORMS, "1")
    assert len({tuple(map(title, drawn(subject, FORMS, str(seed))[0])) for seed in range(4)}) == 4


def test_what_is_lost_and_what_is_new_is_counted() -> None:
    trials = [
        Trial("a", ("f",), SINGLY, 2, {"DDP201": 1}, {}),
        Trial("b", ("f",), SINGLY, 0, {}, {"DDP302": 1}),
        Trial("c", ("f",), SINGLY, 0),
        Trial("a", ("f",) * 5, TOGETHER, 2),
    ]
    lines = lines_of(trials)
    assert "| singly | 3 | 2 | 50.0 % | 2 | 1 (50.00 %) |" in lines
    assert "| five at once | 1 | 2 | 100.0 % | 0 | 0 (0.00 %) |" in lines
    assert "| f | 3 | 2 | 1 | 50.0 % | 1 |" in lines


def test_a_lost_finding_is_seen() -> None:
    subject = next(one for one in SUBJECTS if one.name == "page/ddp201/bad.py")
    nothing = Form("nothing", "test", lambda source: Source("print('nothing')\n"))
    (trial,) = tried(subject, [nothing], "1", 0)
    assert trial.had == 1 and trial.lost == {"DDP201": 1} and not trial.failed


def test_the_audit_says_the_same_in_a_drawn_share_of_forms() -> None:
    """A piece of `make forms`: few programs, few forms."""
    trials = [trial for subject in share_of(SUBJECTS, 90, "1") for trial in tried(subject, FORMS[::24], "1", 0)]
    had = sum(trial.had for trial in trials)
    assert len(trials) > 20 and had > 3
    assert not [trial for trial in trials if trial.failed]
    assert sum(sum(trial.lost.values()) for trial in trials) <= had / 4
    assert sum(bool(trial.new) for trial in trials if not trial.had) == 0


def test_an_audit_of_a_program_finds_what_its_header_says() -> None:
    subject = next(one for one in SUBJECTS if one.name.startswith("ddp201/") and one.kind == "bad")
    with folder_of(subject) as folder:
        assert alarms(subject, subject.source, folder)["DDP201"] == 1
