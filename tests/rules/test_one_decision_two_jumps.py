"""A flag that is set on the way out of an inner loop and leads out of the outer one too: one decision, one finding (DDP203)."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)\n"
    "def step(x):\n    loss = model(x).mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    return loss.detach()\n"
)
ONE = {
    "a name": (
        "stop = False\nfor epoch in range(3):\n    for (x,) in loader:\n        loss = step(x)\n        if loss > 4:\n"
        "            stop = True\n            break  # inner\n    if stop:\n        break  # outer\n"
    ),
    "an attribute": (
        "class State:\n    pass\nstate = State()\nstate.stop = False\nfor epoch in range(3):\n    for (x,) in loader:\n        loss = step(x)\n"
        "        if torch.isnan(loss):\n            state.stop = True\n            break  # inner\n    if state.stop:\n        break  # outer\n"
    ),
    "a return": (
        "def train():\n    for epoch in range(3):\n        bad = False\n        for (x,) in loader:\n            loss = step(x)\n"
        "            if loss > 4:\n                print('bad')\n                bad = True\n                break  # inner\n"
        "        if bad is True:\n            return  # outer\ntrain()\n"
    ),
    "the other way round": (
        "going = True\nfor epoch in range(3):\n    for (x,) in loader:\n        loss = step(x)\n        if loss > 4:\n"
        "            going = False\n            break  # inner\n    if not going:\n        break  # outer\n"
    ),
}
TWO = {
    "another reason outside": ONE["a name"].replace("if stop:", "if loss < 1:"),
    "more than the flag outside": ONE["a name"].replace("if stop:", "if stop or loss < 1:"),
    "set for another reason as well": ONE["a name"].replace("    if stop:", "    if loss < 1:\n        stop = True\n    if stop:"),
    "set by what is not known": ONE["a name"].replace("    if stop:", "    stop = bool(loss < 1)\n    if stop:"),
    "not set on the way out": ONE["a name"]
    .replace("            stop = True\n            break", "            break")
    .replace("    if stop:", "    stop = loss > 2\n    if stop:"),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _line(text: str, word: str) -> int:
    return next(number for number, line in enumerate((START + text).splitlines(), 1) if line.endswith(f"# {word}"))


@pytest.mark.parametrize("text", ONE.values(), ids=ONE)
def test_one_finding_names_both_places(text: str, tmp_path: Path) -> None:
    (found,) = findings("DDP203", audited(tmp_path, START + text))
    assert found.span.line == _line(text, "inner")
    assert _line(text, "outer") in [related.line for related in found.related]


@pytest.mark.parametrize("text", TWO.values(), ids=TWO)
def test_two_decisions_are_two_findings(text: str, tmp_path: Path) -> None:
    lines = [found.span.line for found in findings("DDP203", audited(tmp_path, START + text))]
    assert lines == [_line(text, "inner"), _line(text, "outer")]


def test_nothing_is_left_where_the_ranks_agree(tmp_path: Path) -> None:
    text = ONE["a name"].replace("        if loss > 4", "        dist.all_reduce(loss)\n        if loss > 4")
    assert not findings("DDP203", audited(tmp_path, START + text))
