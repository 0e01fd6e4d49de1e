"""DDP103 and DDP115: functions that are applied to each layer of a wrapped model, and a second model that is made as the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

BLOCK = "class Block(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = torch.nn.Linear(4, 4)\n"
NET = (
    f"{BLOCK}class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = self.make()\n"
)
NET += "    def make(self):\n        return torch.nn.Sequential(*[Block() for _ in range(2)])\n"
WAY = "".join(f"def build{n}():\n    return build{n + 1}()\n" for n in range(5)) + "def build5():\n    return Net()\n"
START = f"{NET}{WAY}dist.init_process_group('gloo')\nmodel = DDP(build0())\n"
APPLIED = {
    "a function": "def reset(m):\n    if m.__class__.__name__.find('Norm') != -1:\n        m.running_mean = torch.zeros_like(m.running_mean)\n"
    f"{START}model.apply(reset)\n",
    "a lambda": f"{START}kept = {{}}\nmodel.apply(lambda m: kept.update({{m: m.momentum}}))\n",
    "a method": "class Run:\n    def look(self, layer):\n        print(layer.weight)\n"
    f"    def all(self, net):\n        net.apply(self.look)\n{START}Run().all(model)\n",
    "nested": f"def look(m):\n    print(m.eps)\ndef each(net):\n    return net.apply(look)\n{START}each(model)\n",
    "of the inner module": f"{START}model.module.apply(lambda m: print(m.weight))\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", APPLIED)
def test_what_is_applied_to_each_layer(form: str, tmp_path: Path) -> None:
    assert findings("DDP115", audited(tmp_path, HEAD + APPLIED[form])) == []


def test_what_the_wrapper_has_not(tmp_path: Path) -> None:
    assert len(findings("DDP115", audited(tmp_path, f"{HEAD}{START}print(model.layers)\n"))) == 1


@pytest.mark.parametrize("second", ["teacher = build0()\n", "if rank >= 0:\n    ema = build0()\n", "nets = [build0(), build0()]\n"])
def test_a_second_model_of_the_same_make(second: str, tmp_path: Path) -> None:
    assert findings("DDP103", audited(tmp_path, f"{HEAD}{START}rank = dist.get_rank()\n{second}")) == []


def test_a_layer_that_is_replaced(tmp_path: Path) -> None:
    train = "for x in range(3):\n    model(torch.ones(4, 4)).sum().backward()\n"
    text = f"{HEAD}{START}model.module.layers = torch.nn.Linear(4, 4)\n{train}"
    assert len(findings("DDP103", audited(tmp_path, text))) == 1
