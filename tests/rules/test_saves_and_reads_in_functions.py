"""DDP702 where one rank writes a file in one function and all ranks read it in another, and paths that one rank alone has."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

INIT = f"{HEAD}import argparse, json\nrank = int(os.environ['RANK'])\n"
OPTION = "p = argparse.ArgumentParser()\np.add_argument('--test', action='store_true')\na = p.parse_args()\n"
SAVE = "def save(path='out/a.pt'):\n    if rank == 0:\n        torch.save(torch.ones(4), path)\n"
READ = "def read(path='out/a.pt'):\n    return torch.load(path)\n"
JOB = "dist.init_process_group('gloo')\n"

EARLY = {
    "save in a function": f"{INIT}{SAVE}{JOB}save()\nx = torch.load('out/a.pt')\n",
    "read in a function": f"{INIT}{READ}{JOB}if rank == 0:\n    torch.save(torch.ones(4), 'out/a.pt')\nx = read()\n",
    "both in functions": f"{INIT}{SAVE}{READ}{JOB}save()\nx = read()\n",
    "a path that parameters carry": f"{INIT}{SAVE}{READ}{JOB}where = os.path.join('runs', 'b.pt')\nsave(where)\nx = read(where)\n",
    "methods of one object": f"{INIT}class Run:\n    def __init__(self, folder):\n        self.path = os.path.join(folder, 'a.pt')\n"
    "    def save(self):\n        if rank == 0:\n            torch.save(torch.ones(4), self.path)\n"
    f"    def read(self):\n        return torch.load(self.path)\n{JOB}run = Run('out')\nrun.save()\nx = run.read()\n",
    "the guard stands at the call": f"{INIT}def save():\n    torch.save(torch.ones(4), 'a.pt')\ndef read():\n"
    f"    return torch.load('a.pt')\n{JOB}if rank == 0:\n    save()\nx = read()\n",
    "settings as text": f"{INIT}def keep():\n    if rank == 0:\n        with open('a.json', 'w') as f:\n            json.dump({{}}, f)\n"
    f"def settings():\n    with open('a.json') as f:\n        return json.load(f)\n{JOB}keep()\nx = settings()\n",
    "only the best of a loop": f"{INIT}{SAVE}{READ}{JOB}for epoch in range(9):\n    if epoch % 3 == 0:\n        save()\nx = read()\n",
    "its own device is waited for": f"{INIT}{SAVE}{READ}{JOB}save()\ntorch.cuda.synchronize()\nx = read()\n",
    "its own stream": f"{INIT}import torch.cuda as gpu\n{SAVE}{READ}{JOB}save()\ngpu.current_stream().synchronize()\nx = read()\n",
    "elements are picked": f"{INIT}{SAVE}{READ}{JOB}save()\ny = torch.gather(torch.ones(2, 2), 0, torch.zeros(1, 1).long())\nx = read()\n",
    "a sum of numbers": f"{INIT}from functools import reduce\n{SAVE}{READ}{JOB}save()\ny = reduce(max, [1, 2])\nx = read()\n",
    "shapes are made alike": f"{INIT}import numpy as np\n{SAVE}{READ}{JOB}save()\ny = np.broadcast_to(1, 3)\nx = read()\n",
}
IN_TIME = {
    "a barrier between the calls": f"{INIT}{SAVE}{READ}{JOB}save()\ndist.barrier()\nx = read()\n",
    "a barrier behind the save": f"{INIT}{SAVE}    dist.barrier()\n{READ}{JOB}save()\nx = read()\n",
    "a barrier before the read": f"{INIT}{SAVE}def read():\n    dist.barrier()\n    return torch.load('out/a.pt')\n{JOB}save()\nx = read()\n",
    "a library that may wait": f"{INIT}import helpers\n{SAVE}{READ}{JOB}save()\nhelpers.synchronize()\nx = read()\n",
    "a barrier in a helper": f"{INIT}{SAVE}{READ}def wait():\n    if dist.get_world_size() > 1:\n        dist.barrier()\n"
    f"{JOB}save()\nwait()\nx = read()\n",
    "rank 0 reads its own file": f"{INIT}{SAVE}{READ}{JOB}save()\nif rank == 0:\n    x = read()\n",
    "other paths": f"{INIT}{SAVE}{READ}{JOB}save('out/b.pt')\nx = read()\n",
    "read before": f"{INIT}{SAVE}{READ}{JOB}x = read()\nsave()\n",
    "a test of an earlier run": f"{INIT}{OPTION}{SAVE}{READ}{JOB}if a.test:\n    x = read()\nelse:\n    save()\n",
    "the other arm": f"{INIT}{OPTION}{SAVE}{READ}{JOB}if not a.test:\n    save()\nelse:\n    x = read()\n",
    "read where it stands": f"{INIT}{SAVE}def read(path):\n    if os.path.exists(path):\n        return torch.load(path)\n"
    f"{JOB}save()\nx = read('out/b.pt')\n",
    "read by the parent when all have ended": f"{HEAD}import torch.multiprocessing as mp\n{READ}def work(rank):\n"
    "    dist.init_process_group('gloo', rank=rank, world_size=2)\n    if rank == 0:\n        torch.save(torch.ones(4), 'out/a.pt')\n"
    "if __name__ == '__main__':\n    mp.spawn(work, nprocs=2)\n    x = read()\n",
}

LOG = "class Log:\n    def __init__(self, path=None):\n        self.path = path\n    def keep(self):\n        {ask}\n"
LOG += "        os.makedirs(os.path.dirname(self.path), exist_ok=True)\n        torch.save({{}}, self.path)\n"
MADE = "name = os.path.join('runs', time.strftime('%H%M%S'), 'a')\n"
BY_ONE = f"{MADE}log = Log(name) if rank == 0 else Log()\nlog.keep()\n"
MAY_BE_NONE = {
    "returns": LOG.format(ask="if self.path is None: return") + JOB + BY_ONE,
    "returns where it is false": LOG.format(ask="if not self.path: return") + JOB + BY_ONE,
    "two arms": LOG.format(ask="if self.path is None: return")
    + f"{JOB}if rank == 0:\n    log = Log(f'runs/{{time.time_ns()}}/a')\nelse:\n    log = Log()\nlog.keep()\n",
    "a function": f"def keep(path):\n    if path is not None:\n        os.makedirs(path)\n{JOB}{MADE}keep(name if rank == 0 else None)\n",
    "a variable": f"{JOB}{MADE}path = name if rank == 0 else None\nif path:\n    os.makedirs(path)\n",
}


@pytest.mark.parametrize("form", MAY_BE_NONE)
def test_a_path_that_one_rank_has(form: str, tmp_path: Path) -> None:
    assert findings("DDP702", audited(tmp_path, f"{INIT}import time\n{MAY_BE_NONE[form]}")) == []


@pytest.mark.parametrize(
    "use",
    [
        f"{LOG.format(ask='if self.path is None: return')}{JOB}{MADE}log = Log(name)\nlog.keep()\n",
        f"{JOB}{MADE}if name:\n    os.makedirs(name)\n",
    ],
    ids=["one object", "a variable"],
)
def test_a_path_that_all_ranks_ask_for_and_have(use: str, tmp_path: Path) -> None:
    assert len(findings("DDP702", audited(tmp_path, f"{INIT}import time\n{use}"))) >= 1


def test_a_path_of_the_clock_that_nobody_asks_for(tmp_path: Path) -> None:
    text = f"{INIT}import time\n{LOG.format(ask='pass')}{JOB}{MADE}log = Log(name)\nlog.keep()\n"
    assert len(findings("DDP702", audited(tmp_path, text))) >= 1
    other = f"{INIT}import time\n{LOG.format(ask='if rank > 9: return')}{JOB}{MADE}log = Log(name)\nlog.keep()\n"
    assert len(findings("DDP702", audited(tmp_path, other))) >= 1


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", EARLY)
def test_a_read_in_another_function_waits_for_nobody(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP702", audited(tmp_path, EARLY[form]))
    assert "before it is written" in finding.message


@pytest.mark.parametrize("form", IN_TIME)
def test_a_read_that_comes_in_time_is_left_alone(form: str, tmp_path: Path) -> None:
    assert findings("DDP702", audited(tmp_path, IN_TIME[form])) == []
