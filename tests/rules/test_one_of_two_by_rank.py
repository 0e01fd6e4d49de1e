"""One of two objects, or one of two functions, by the rank: what each rank does with the one that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = "dist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP(torch.nn.Linear(4, 1))\n"
SUMS = "class Sums:\n    def show(self, x):\n        dist.all_reduce(x)\n        print(x)\n"
QUIET = "class Quiet:\n    def show(self, x):\n        return None\n"
WRITES = "class Writes:\n    def __init__(self, path):\n        self.path = path\n    def keep(self):\n"
WRITES += "        torch.save(model.state_dict(), self.path)\n"
NOTHING = "class Nothing:\n    def keep(self):\n        pass\n"

ALONE = {
    "two classes": f"{SUMS}{QUIET}{START}log = Sums() if rank == 0 else Quiet()\nlog.show(torch.ones(1))\n",
    "the other way round": f"{SUMS}{QUIET}{START}log = Quiet() if rank else Sums()\nlog.show(torch.ones(1))\n",
    "bound in arms": f"{SUMS}{QUIET}{START}log = Quiet()\nif rank == 0:\n    log = Sums()\nlog.show(torch.ones(1))\n",
    "two functions": f"def one(x):\n    dist.all_reduce(x)\ndef other(x):\n    pass\n{START}do = other if rank != 0 else one\n"
    "do(torch.ones(1))\n",
    "a lambda": f"{START}do = dist.all_reduce if dist.get_rank() == 0 else (lambda x: None)\ndo(torch.ones(1))\n",
    "the class": f"{SUMS}{QUIET}{START}kind = Sums if rank == 0 else Quiet\nlog = kind()\nlog.show(torch.ones(1))\n",
    "a flag of one class": "class Log:\n    def __init__(self, sums):\n        self.sums = sums\n    def show(self, x):\n"
    f"        if self.sums:\n            dist.all_reduce(x)\n{START}log = Log(True) if rank == 0 else Log(False)\nlog.show(torch.ones(1))\n",
}
TOGETHER = {
    "both do it": f"{SUMS}class Too:\n    def show(self, x):\n        dist.all_reduce(x)\n"
    f"{START}log = Sums() if rank == 0 else Too()\nlog.show(torch.ones(1))\n",
    "one class": f"{SUMS}{START}log = Sums() if rank == 0 else Sums()\nlog.show(torch.ones(1))\n",
    "a name of one class": "class Log:\n    def __init__(self, name):\n        self.name = name\n    def show(self, x):\n"
    f"        dist.all_reduce(x)\n        print(self.name, x)\n{START}log = Log('main') if rank == 0 else Log('other')\n"
    "log.show(torch.ones(1))\n",
    "one number of two objects": "class Setting:\n    def __init__(self, passes, name):\n        self.passes, self.name = passes, name\n"
    f"{START}s = Setting(3, 'a') if rank == 0 else Setting(3, 'b')\nfor i in range(s.passes):\n    dist.all_reduce(torch.ones(1))\n",
}
WRITTEN_ONCE = {
    "two classes": f"{WRITES}{NOTHING}{START}log = Writes('a.pt') if rank == 0 else Nothing()\nlog.keep()\n",
    "the other way round": f"{WRITES}{NOTHING}{START}log = Nothing() if rank > 0 else Writes('a.pt')\nlog.keep()\n",
    "two functions": f"def one():\n    torch.save(model.state_dict(), 'a.pt')\ndef other():\n    pass\n{START}"
    "keep = one if rank == 0 else other\nkeep()\n",
    "a name given later": "class Log:\n    def __init__(self):\n        self.path = None\n    def keep(self):\n        if self.path:\n"
    f"            torch.save(model.state_dict(), self.path)\n{START}log = Log() if rank == 0 else Log()\nif rank == 0:\n"
    "    log.path = 'a.pt'\nlog.keep()\n",
}
WRITTEN_BY_ALL = {
    "one class": f"{WRITES}{START}log = Writes('a.pt') if rank == 0 else Writes('a.pt')\nlog.keep()\n",
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", ALONE)
def test_a_collective_of_one_of_them(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP201", audited(tmp_path, HEAD + ALONE[form]))
    assert "rank 0" in finding.message


@pytest.mark.parametrize("form", TOGETHER)
@pytest.mark.parametrize("code", ["DDP201", "DDP202", "DDP203", "DDP213"])
def test_a_collective_of_both(form: str, code: str, tmp_path: Path) -> None:
    assert findings(code, audited(tmp_path, HEAD + TOGETHER[form])) == []


@pytest.mark.parametrize("form", WRITTEN_ONCE)
def test_a_file_of_one_of_them(form: str, tmp_path: Path) -> None:
    assert findings("DDP701", audited(tmp_path, HEAD + WRITTEN_ONCE[form])) == []


@pytest.mark.parametrize("form", WRITTEN_BY_ALL)
def test_a_file_of_both(form: str, tmp_path: Path) -> None:
    assert len(findings("DDP701", audited(tmp_path, HEAD + WRITTEN_BY_ALL[form]))) == 1
