"""Flags, lists and objects on their way from where they are set to where they are asked, each with a clean twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import heapq\nimport importlib\ndist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP(torch.nn.Linear(4, 1))\n"
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nloader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4,\n"
    "                    sampler=DistributedSampler(TensorDataset(torch.randn(64, 4))))\ntotal = torch.zeros(1)\n"
    "def step(x):\n    loss = model(x).mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    return loss.detach()\n"
)
REDUCE = "dist.all_reduce(loss)"
GUARDED = "if rank == 0:\n    {0}\n{1}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FLAGS = {
    "set on the way out of the inner loop": (
        "stop = False\nfor epoch in range(3):\n    for (x,) in loader:\n        loss = step(x)\n        {0}\n        if loss > 4:\n"
        "            stop = True\n            break\n    if stop:\n        break\n"
    ),
    "set before an early return": (
        "class Stopper:\n    def __init__(self):\n        self.stop, self.best = False, 9.0\n    def update(self, loss):\n"
        "        if loss < self.best:\n            self.best = loss\n            return\n        if loss > 2:\n            self.stop = True\n"
        "            return\n        self.best = self.best * 2\nstopper = Stopper()\nfor epoch in range(3):\n    for (x,) in loader:\n"
        "        loss = step(x)\n        {0}\n    stopper.update(loss.item())\n    if stopper.stop:\n        break\n"
    ),
    "a nonlocal name": (
        "def train():\n    stop = False\n    def on_batch(loss):\n        nonlocal stop\n        {0}\n        stop = loss.item() > 4\n"
        "    for (x,) in loader:\n        on_batch(step(x))\n        if stop:\n            break\ntrain()\n"
    ),
    "reduced by a helper that returns nothing": (
        "def agree(loss):\n    {0}\nfor (x,) in loader:\n    done = step(x)\n    agree(done)\n    if done.item() > 4:\n        break\n"
    ),
    "a cell of a dict": (
        "def train():\n    state = {{'stop': False}}\n    def on_batch(loss):\n        {0}\n        if loss.item() > 4:\n"
        "            state['stop'] = True\n    for (x,) in loader:\n        on_batch(step(x))\n        if state['stop']:\n"
        "            break\ntrain()\n"
    ),
    "a cell of a list": (
        "def train():\n    stop = [False]\n    def on_batch(loss):\n        {0}\n        stop[0] = loss.item() > 4\n"
        "    for (x,) in loader:\n        on_batch(step(x))\n        if stop[0]:\n            break\ntrain()\n"
    ),
    "a dict that a helper is given": (
        "def note(flags, loss):\n    {0}\n    if loss.item() > 4:\n        flags['stop'] = True\nflags = {{'stop': False}}\n"
        "for (x,) in loader:\n    note(flags, step(x))\n    if flags['stop']:\n        break\n"
    ),
    "a reason that is there or not": (
        "class Stopper:\n    def __init__(self):\n        self.reason = None\n    def look(self, value):\n        if value != value:\n"
        "            self.reason = 'nan'\n            return\n        if value > 9:\n            self.reason = 'large'\n"
        "stopper = Stopper()\nfor (x,) in loader:\n    loss = step(x)\n    {0}\n    stopper.look(loss.item())\n"
        "    if stopper.reason is not None:\n        break\n"
    ),
    "reduced by a method, given by its name": (
        "class Comm:\n    def agree(self, other, loss):\n        {0}\ncomm = Comm()\nfor (x,) in loader:\n    done = step(x)\n"
        "    comm.agree(loss=done, other=1)\n    if done.item() > 4:\n        break\n"
    ),
}


@pytest.mark.parametrize("text", FLAGS.values(), ids=FLAGS)
def test_a_flag_of_this_rank_leaves_a_loop(text: str, tmp_path: Path) -> None:
    assert findings("DDP203", audited(tmp_path, START + text.format("pass")))
    assert not findings("DDP203", audited(tmp_path, START + text.format(REDUCE)))


def test_a_while_loop_asks_what_its_body_sets(tmp_path: Path) -> None:
    text = (
        "stop, count = False, 0\nbatches = iter(loader)\nwhile not stop and count < 8:\n    (x,) = next(batches)\n    loss = step(x)\n"
        "    {0}\n    stop = loss.item() < 0.1\n    count += 1\n"
    )
    assert findings("DDP205", audited(tmp_path, START + text.format("pass")))
    assert not findings("DDP205", audited(tmp_path, START + text.format(REDUCE)))


def test_a_loop_that_always_goes_on_has_no_count(tmp_path: Path) -> None:
    text = "count = 0\nwhile True:\n    for (x,) in loader:\n        step(x)\n    count += 1\n    if count > 3:\n        break\n"
    assert not findings("DDP205", audited(tmp_path, START + text))


FILLED = {
    "append": "top = []\nfor epoch in range(3):\n    for (x,) in loader:\n        top.append(step(x))\n",
    "heap": (
        "top = []\nfor epoch in range(4):\n    loss = torch.ones(1)\n    heapq.heappush(top, (loss.item(), epoch))\n"
        "    if len(top) > 2:\n        heapq.heappop(top)\n"
    ),
    "extend": "top = []\nfor epoch in range(3):\n    top.extend([epoch, 1])\n",
    "on an object": (
        "class Kept:\n    def __init__(self):\n        self.all = []\nkept = Kept()\nfor (x,) in loader:\n    kept.all.append(step(x))\n"
        "top = kept.all\n"
    ),
}
EMPTY = ("rank == 0 and not top", "rank == 0 and len(top) == 0", "len(top) < 1 and rank == 0")


@pytest.mark.parametrize("test", EMPTY)
@pytest.mark.parametrize("text", FILLED.values(), ids=FILLED)
def test_nobody_is_where_a_list_that_every_pass_fills_is_empty(text: str, test: str, tmp_path: Path) -> None:
    assert not findings("DDP201", audited(tmp_path, START + text + f"if {test}:\n    dist.barrier()\n"))


NOT_FILLED = {
    "under a condition": "top = []\nfor (x,) in loader:\n    if step(x) > 1:\n        top.append(x)\n",
    "after an exit of the pass": "top = []\nfor (x,) in loader:\n    if step(x) > 1:\n        continue\n    top.append(x)\n",
    "no pass known": "top = []\nfor name in os.listdir('.'):\n    top.append(name)\n",
    "taken away again": "top = []\nfor (x,) in loader:\n    top.append(x)\n    top.pop()\n",
    "cleared": "top = []\nfor (x,) in loader:\n    top.append(x)\ntop.clear()\n",
}


@pytest.mark.parametrize("text", NOT_FILLED.values(), ids=NOT_FILLED)
def test_a_list_that_may_be_empty_lets_rank_0_in(text: str, tmp_path: Path) -> None:
    assert findings("DDP201", audited(tmp_path, START + text + "if rank == 0 and not top:\n    dist.barrier()\n"))


METER = (
    "class Meter:\n    def reduce(self):\n        t = torch.ones(1)\n        dist.all_reduce(t)\n        return t.item()\n"
    "    def __str__(self):\n        return f'{self.reduce():.2f}'\nmeter = Meter()\n"
)
SHOWN = [
    "print(meter)",
    "print(f'loss {meter}')",
    "text = str(meter)",
    "print('%s' % meter)",
    "print('{}'.format(meter))",
    "repr(meter)",
]


@pytest.mark.parametrize("shown", SHOWN)
def test_the_text_of_an_object_may_communicate(shown: str, tmp_path: Path) -> None:
    text = METER.replace("__str__", "__repr__") if "repr" in shown else METER
    assert findings("DDP201", audited(tmp_path, START + text + GUARDED.format(shown, "pass")))
    assert not findings("DDP201", audited(tmp_path, START + text + GUARDED.format("pass", shown)))


RANKS = [
    "try:\n    who = int(os.environ['SLURM_PROCID'])\nexcept KeyError:\n    who = int(os.environ['RANK'])\n",
    "try:\n    who = int(os.environ['SLURM_PROCID'])\nexcept KeyError:\n"
    "    who = int(os.environ.get('NODE_RANK', 0)) * 2 + int(os.environ['LOCAL_RANK'])\n",
    "if os.path.exists('cluster'):\n    who = int(os.environ['RANK'])\nelse:\n    who = dist.get_rank()\n",
]


@pytest.mark.parametrize("read", RANKS)
def test_a_rank_that_is_read_in_two_ways_is_one(read: str, tmp_path: Path) -> None:
    guard = "if who == 0:\n    {0}\n{1}\n"
    assert findings("DDP201", audited(tmp_path, START + read + guard.format("dist.all_reduce(total)", "pass")))
    assert not findings("DDP201", audited(tmp_path, START + read + guard.format("pass", "dist.all_reduce(total)")))


MODULES = [
    "comm = importlib.import_module('torch.distributed')\n",
    "comm = importlib.import_module('common')\n",
    "comm = __import__('common')\n",
]


@pytest.mark.parametrize("made", MODULES)
def test_a_module_that_is_imported_by_name(made: str, tmp_path: Path) -> None:
    files = {"common.py": "import torch.distributed as dist\ndef all_reduce(t):\n    dist.all_reduce(t)\n"}
    assert findings("DDP201", audited(tmp_path, START + made + GUARDED.format("comm.all_reduce(total)", "pass"), files))
    assert not findings("DDP201", audited(tmp_path, START + made + GUARDED.format("pass", "comm.all_reduce(total)"), files))


def test_a_class_out_of_globals_and_a_wrapper_out_of_a_module_dict(tmp_path: Path) -> None:
    text = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = torch.nn.Linear(4, 1)\n"
        "    def forward(self, x):\n        return self.a(x)\nname = 'Net'\n"
        "nets = torch.nn.ModuleDict({{'gen': DDP(globals()[name]())}})\nother = torch.optim.SGD(nets.parameters(), lr=0.1)\n"
        "for (x,) in loader:\n    other.zero_grad()\n    nets['gen']{0}(x).mean().backward()\n    other.step()\n"
    )
    assert findings("DDP101", audited(tmp_path, START + text.format(".module")))
    assert not findings("DDP101", audited(tmp_path, START + text.format("")))


@pytest.mark.parametrize("place", ["[3, 1][rank % 2]", "(3, 1)[rank % 2]", "{0: 3, 1: 1}[rank % 2]", "[1, 3][rank % 2 == 0]"])
def test_an_element_at_a_place_that_the_rank_decides(place: str, tmp_path: Path) -> None:
    text = (
        "for (x,) in loader:\n    for m in range(4):\n        model.require_backward_grad_sync = m == {0}\n"
        "        model(x).mean().backward()\n    opt.step()\n    opt.zero_grad()\n"
    )
    assert findings("DDP120", audited(tmp_path, START + text.format(place)))
    assert not findings(
        "DDP120",
        audited(tmp_path, START + text.format(place.replace("1: 1", "1: 3").replace("3, 1", "3, 3").replace("1, 3", "3, 3"))),
    )


def test_the_first_value_is_missing_on_all_ranks_alike(tmp_path: Path) -> None:
    text = (
        "best = None\nfor (x,) in loader:\n    loss = step(x)\n    if best is None:\n        dist.barrier()\n        best = loss\n"
    )
    assert not findings("DDP201", audited(tmp_path, START + text))
