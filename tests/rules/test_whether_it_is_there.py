"""DDP201 and DDP203: conditions on whether something is there, and on where in a loop it stands, against those on data."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

PROGRAM = HEAD + (
    "from rows import Rows, compute\ndist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP(torch.nn.Linear(4, 4))\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\ndata = Rows()\nextra = None\n"
    "loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), drop_last=True)\n"
    "for x, y in loader:\n    optimizer.zero_grad()\n{0}    optimizer.step()\ndist.destroy_process_group()\n"
)
AGREED = {
    "the last view has no partner": "    for k, view in enumerate(x):\n        views = [view]\n        if k < len(x) - 1:\n"
    "            views = x[k:k + 2]\n        else:\n            break\n        model(views).sum().backward()\n",
    "the last of a range": "    for i in range(len(x)):\n        if i == len(x) - 1:\n            break\n        model(x[i]).sum().backward()\n",
    "parts of the loss": "    loss = compute(model(x), y)\n    more = None\n    if isinstance(loss, (list, tuple)):\n        loss, more = loss\n"
    "    loss.backward()\n    if more:\n        for one in more:\n            dist.all_reduce(one)\n",
    "parts of the loss, or none": "    got = compute(model(x), y)\n    loss, more = got if isinstance(got, tuple) else (got, None)\n"
    "    loss.backward()\n    if more:\n        dist.all_reduce(more[0])\n",
    "that of the last pass": "    loss = model(x).sum()\n    loss.backward()\n    if extra is not None:\n        dist.all_reduce(extra)\n"
    "    extra = loss.detach()\n",
}
OWN = {
    "not a number": "    loss = model(x).sum()\n    loss.backward()\n    if torch.isnan(loss):\n        dist.all_reduce(loss)\n",
    "how many were kept": "    kept = x[x > 0.5]\n    loss = model(x).sum()\n    loss.backward()\n    if len(kept) > 3:\n        dist.all_reduce(loss)\n",
    "None, or what was found": "    loss = model(x).sum()\n    bad = None\n    if os.environ.get('CHECK'):\n        bad = loss.isnan().item()\n"
    "    loss.backward()\n    if bad:\n        dist.all_reduce(loss)\n",
    "there where the loss is large": "    loss = model(x).sum()\n    bad = None\n    if loss.item() > 3:\n        bad = [1]\n    loss.backward()\n"
    "    if bad:\n        dist.all_reduce(loss)\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", AGREED)
@pytest.mark.parametrize("code", ["DDP201", "DDP203"])
def test_what_all_ranks_answer_alike(form: str, code: str, tmp_path: Path) -> None:
    assert findings(code, audited(tmp_path, PROGRAM.format(AGREED[form]))) == []


@pytest.mark.parametrize("form", OWN)
def test_what_each_rank_answers_by_its_data(form: str, tmp_path: Path) -> None:
    assert len(findings("DDP201", audited(tmp_path, PROGRAM.format(OWN[form])))) == 1


def test_a_jump_by_data(tmp_path: Path) -> None:
    text = "    for i, row in enumerate(x):\n        if row.sum() > 3:\n            break\n        model(row).sum().backward()\n"
    assert len(findings("DDP203", audited(tmp_path, PROGRAM.format(text)))) == 1
