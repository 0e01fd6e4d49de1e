"""Backward passes through a gradient alone (DDP117), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "from torch import autograd\ndist.init_process_group('gloo')\n"
    "D = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))\n"
    "opt = torch.optim.SGD(D.parameters(), lr=0.1)\nx = torch.randn(8, 4, requires_grad=True)\nout = {model}(x)\n"
)
GRADIENTS = [
    "(g,) = torch.autograd.grad(out.sum(), x, create_graph=True)\n",
    "g = autograd.grad(outputs=out.sum(), inputs=x, create_graph=True)[0]\n",
    "def slope(y, at):\n    return autograd.grad(y.sum(), at, create_graph=True, only_inputs=True)[0]\ng = slope(out, x)\n",
    "g = autograd.grad([out.mean()], [x], create_graph=True)[0].view(8, -1)\n",
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("loss", ["g.pow(2).mean()", "(10 * ((g.norm(dim=1) - 1) ** 2).mean())", "(g ** 2).sum()"])
def test_a_loss_of_a_gradient_alone(gradient: str, loss: str, tmp_path: Path) -> None:
    text = gradient + f"({loss}).backward()\nopt.step()\n"
    assert len(findings("DDP117", audited(tmp_path, START.format(model="D") + text))) == 1
    assert findings("DDP117", audited(tmp_path, START.format(model="D.module") + text)) == []


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("loss", ["g.pow(2).mean() + out.mean()", "g.pow(2).mean() + 0 * out[0].sum()", "(g.norm() * out).mean()"])
def test_a_loss_with_the_output_too(gradient: str, loss: str, tmp_path: Path) -> None:
    assert findings("DDP117", audited(tmp_path, START.format(model="D") + gradient + f"({loss}).backward()\nopt.step()\n")) == []


def test_a_gradient_that_ends_there(tmp_path: Path) -> None:
    text = "g = autograd.grad(out.sum(), x)[0]\nwith D.no_sync():\n    D(x + g).mean().backward()\n"
    assert findings("DDP117", audited(tmp_path, START.format(model="D") + text)) == []
