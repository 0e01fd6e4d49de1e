"""Where it is kept that a window is full does not matter: the last batches are stepped on unreduced (DDP105), or they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import collections, contextlib, threading, types\ndist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 1))\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nbatches = [torch.randn(8, 4) for _ in range(6)]\n"
)
LOOP = """for i, x in enumerate(batches):
    full = {full}
    with contextlib.nullcontext() if full else model.no_sync():
        loss = model(x).pow(2).mean() / 4
        {backward}
    {due}
        optimizer.step()
        optimizer.zero_grad()
"""
WRONG, RIGHT = "(i + 1) % 4 == 0", "(i + 1) % 4 == 0 or i + 1 == len(batches)"
DUE = "full or i + 1 == len(batches)"
# How the backward is called, and what is asked before the step.
FORMS = {
    "any": ("loss.backward()", f"if any((full, {DUE})):"),
    "a set": ("loss.backward()", f"marks = {{'pass'}}\n    if {DUE}:\n        marks.add('step')\n    if 'step' in marks:"),
    "a list": ("loss.backward()", f"todo = []\n    if {DUE}:\n        todo.append('step')\n    if todo:"),
    "an event": ("loss.backward()", f"go = threading.Event()\n    if {DUE}:\n        go.set()\n    if go.is_set():"),
    "a namespace": ("loss.backward()", f"s = types.SimpleNamespace(i=i, due={DUE})\n    if s.due:"),
    "an object or None": ("loss.backward()", f"s = types.SimpleNamespace() if {DUE} else None\n    if s is not None:"),
    "hooks": ("for call in [loss.backward]:\n            call()", f"if {DUE}:"),
    "hooks that are added": (
        "calls = []\n        calls.append(loss.backward)\n        for call in calls:\n            call()",
        f"if {DUE}:",
    ),
    "a nested function": ("def back(t):\n            t.backward()\n        back(loss)", f"if {DUE}:"),
    "a lambda in a list": ("[lambda t: t.backward()][0](loss)", f"if {DUE}:"),
    "a while that breaks": ("while True:\n            loss.backward()\n            break", f"if {DUE}:"),
}


@pytest.mark.parametrize(("backward", "due"), FORMS.values(), ids=FORMS)
def test_a_window_that_is_cut_is_found(backward: str, due: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(findings("DDP105", audited(tmp_path, START + LOOP.format(full=WRONG, backward=backward, due=due)))) == 1


@pytest.mark.parametrize(("backward", "due"), FORMS.values(), ids=FORMS)
def test_a_window_that_ends_with_the_batches_is_left_alone(
    backward: str, due: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    context = audited(tmp_path, START + LOOP.format(full=RIGHT, backward=backward, due=due))
    assert not findings("DDP105", context) and not findings("DDP106", context)


# Two micro-batches for each step, the second one reduced.
PAIRS = {
    "a list of a range": "for i in [*range(4)]:\n    for k in [*range(2)]:\n        work\n    step\n",
    "next": "it = iter(range(4))\nwhile True:\n    try:\n        i = next(it)\n    except StopIteration:\n        break\n"
    "    for k in range(2):\n        work\n    step\n",
    "next within": "for i in range(4):\n    it = iter(range(2))\n    while True:\n        try:\n            k = next(it)\n"
    "        except StopIteration:\n            break\n        work\n    step\n",
    "next with a default": "for i in range(4):\n    it = iter(range(2))\n    while (k := next(it, None)) is not None:\n        work\n    step\n",
    "a comprehension of calls": "def one(k):\n    work\nfor i in range(4):\n    [one(k) for k in range(2)]\n    step\n",
}
WORK = (
    "with contextlib.nullcontext() if k == 1 else model.no_sync():",
    "    model(torch.randn(8, 4)).pow(2).mean().backward()",
)


def in_full(text: str) -> str:
    """A program of PAIRS with what it does in each pass, and at each step."""
    lines: list[str] = []
    for line in text.splitlines():
        margin, word = line[: len(line) - len(line.lstrip())], line.strip()
        more = WORK if word == "work" else ("optimizer.step()", "optimizer.zero_grad()") if word == "step" else (word,)
        lines += [margin + one for one in more]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_pairs_of_which_the_second_is_reduced_are_left_alone(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context = audited(tmp_path, START + in_full(text))
    assert not findings("DDP105", context) and not findings("DDP118", context)


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_pairs_of_which_none_is_reduced_are_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(findings("DDP105", audited(tmp_path, START + in_full(text).replace("k == 1", "k == 7")))) == 1
