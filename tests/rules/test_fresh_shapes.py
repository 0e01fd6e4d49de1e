"""Shapes of public code that were judged wrongly at first sight, each with a form in which the hazard is real."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + "dist.init_process_group('nccl')\nrank = dist.get_rank()\nds = TensorDataset(torch.randn(64, 4))\n"
WRAPPED = (
    "model = DDP({inner})\nopt = torch.optim.SGD({parameters}, lr=0.1)\nmodel(torch.randn(2, 4)).sum().backward()\nopt.step()\n"
)


@pytest.mark.parametrize(
    "sampler",
    [
        "ts or idx",
        "(None or ts) or idx",
        "ts and ts",
        "ts if ts else idx",
    ],
)
def test_a_sampler_that_or_chooses_shards(sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = START + "ts = DistributedSampler(ds)\nidx = list(range(64))\n"
    loop = f"for (x,) in DataLoader(ds, sampler={sampler}):\n    model(x).sum().backward()\n    opt.step()\n"
    model = "model = DDP(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    assert findings("DDP301", audited(tmp_path, text + model + loop)) == []
    unsharded = loop.replace(sampler, "None or torch.utils.data.RandomSampler(ds)")
    assert len(findings("DDP301", audited(tmp_path, text + model + unsharded))) == 1


@pytest.mark.parametrize(
    "held",
    [
        "box = torch.nn.ModuleDict()\nfor n in (1, 2):\n    c = torch.nn.Linear(4, 4)\n    box[f'c_{n}'] = c\n    own.append(c)\n",
        "box = torch.nn.ModuleDict()\nc = torch.nn.Linear(4, 4)\nbox.update({'c': c})\nown.append(c)\n",
        "inner = torch.nn.ModuleDict()\nc = torch.nn.Linear(4, 4)\ninner['c' + str(rank * 0)] = c\nbox = torch.nn.ModuleDict()\n"
        "box.update(inner)\nown.append(c)\n",
        "box = torch.nn.ModuleList([torch.nn.Linear(4, 4)])\nc = torch.nn.Linear(4, 4)\nbox[0] = c\nown.append(c)\n",
    ],
    ids=["a key that is computed", "update with a dict", "update with a ModuleDict", "an index"],
)
def test_a_module_in_a_container_is_inside_of_its_wrapper(held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = "class Net(torch.nn.Module):\n    def __init__(self, box):\n        super().__init__()\n        self.box = box\n"
    net += "    def forward(self, x):\n        return sum(layer(x) for layer in self.box.children())\n"
    groups = "[{'params': c.parameters()} for c in own]"
    text = START + net + "own = []\n" + held + WRAPPED.format(inner="Net(box)", parameters="c.parameters()")
    assert findings("DDP102", audited(tmp_path, text)) == []
    outside = (
        text.replace("DDP(Net(box))", "DDP(torch.nn.Linear(4, 4))")
        .replace("model(torch", "model(c(torch")
        .replace("4)).sum", "4))).sum")
    )
    assert len(findings("DDP102", audited(tmp_path, outside))) == 1, groups


SERVED = """
signal = torch.zeros(1)
def closure():
    if rank == 0:
        dist.broadcast(signal, src=0)
    dist.all_reduce(signal)
if rank == 0:
    closure()
    dist.broadcast(signal, src=0)
else:
    while True:
        dist.broadcast(signal, src=0)
        if signal.item() == 0:
            break
        closure()
"""


def test_a_rank_that_others_serve_in_a_loop_is_no_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP201", audited(tmp_path, START + SERVED)) == []
    other = SERVED.replace("        dist.broadcast(signal, src=0)\n        if", "        dist.barrier()\n        if")
    assert findings("DDP201", audited(tmp_path, START + other)) != []


def test_a_group_under_cuda_has_no_collectives_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEAD + "def init():\n    if torch.cuda.is_available():\n        dist.init_process_group('nccl')\ninit()\n"
    text += "if torch.cuda.is_available():\n    dist.all_reduce(torch.ones(1).cuda())\nelse:\n    dist.all_reduce(torch.ones(1))\n"
    assert findings("DDP207", audited(tmp_path, text)) == []
    assert len(findings("DDP207", audited(tmp_path, text.replace("torch.ones(1).cuda()", "torch.ones(1)")))) == 1


@pytest.mark.parametrize(
    "write",
    [
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('loss.png')\n",
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nfig.savefig(fname='loss.png')\n",
        "from torchvision.utils import save_image\nsave_image(torch.rand(3, 8, 8), 'x.png')\n",
        "from torchvision import utils as vutils\nvutils.save_image(torch.rand(3, 8, 8), fp='x.png')\n",
        "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2').save_pretrained('out')\n",
        "import torchaudio\ntorchaudio.save('a.wav', torch.rand(1, 9), 16000)\n",
    ],
)
def test_pictures_and_pretrained_models_are_written_by_one_rank(
    write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(findings("DDP701", audited(tmp_path, START + write))) == 1
    *before, last = write.rstrip().split("\n")
    one = "\n".join([*before, "if rank == 0:", "    " + last]) + "\n"
    assert findings("DDP701", audited(tmp_path, START + one)) == []
    named = write.replace("'loss.png'", "f'loss-{rank}.png'").replace("'x.png'", "f'x-{rank}.png'").replace("'out'", "f'out{rank}'")
    assert findings("DDP701", audited(tmp_path, START + named.replace("'a.wav'", "f'a{rank}.wav'"))) == []
    given = write.replace("('out')", "('out', is_main_process=rank == 0)")
    assert len(findings("DDP701", audited(tmp_path, START + given))) == (0 if "'out'" in write else 1)


LOOP = """
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for step in range(9):
    model(torch.randn(2, 4)).sum().backward()
    opt.step()
    {after}
    if {flag}:
        break
dist.barrier()
"""
STATE = "class State:\n    def __init__(self):\n        self.stop = False\n    def poll(self):\n        if rank == 0 and input() == 'stop':\n            self.stop = True\n"
HANDLER = "import signal\nclass State:\n    def __init__(self):\n        self.stop = False\n        signal.signal(signal.SIGTERM, self.on)\n"
HANDLER += "    def on(self, number, frame):\n        self.stop = True\n"
GLOBAL = "import signal\nstop = False\ndef on(number, frame):\n    global stop\n    stop = True\nsignal.signal(signal.SIGUSR1, on)"
AGREED = "t = torch.tensor([float({flag})])\n    dist.all_reduce(t)\n    stop_all = t.item() > 0"


@pytest.mark.parametrize(
    ("before", "after", "flag"),
    [
        (STATE + "state = State()", "state.poll()\n    dist.barrier()", "state.stop"),
        ("stop = False", "if rank == 0 and input() == 'stop':\n        stop = True", "stop"),
        ("go_on = True", "if rank == 0 and input() == 'stop':\n        go_on = False", "not go_on"),
        (HANDLER + "state = State()", "pass", "state.stop"),
        (GLOBAL, "pass", "stop"),
    ],
    ids=["a field of an object", "a variable", "a negated variable", "a handler's field", "a handler's global"],
)
def test_a_flag_that_one_rank_sets_is_tested_by_each(
    before: str, after: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = findings("DDP203", audited(tmp_path, START + LOOP.format(before=before, after=after, flag=flag)))
    assert len(found) == 1 and found[0].severity == "error"
    agreed = f"{after}\n    {AGREED.format(flag=flag)}"
    assert findings("DDP203", audited(tmp_path, START + LOOP.format(before=before, after=agreed, flag="stop_all"))) == []
    printed = LOOP.replace("        break\n", "        print('asked to stop')\n").format(before=before, after=after, flag=flag)
    assert findings("DDP203", audited(tmp_path, START + printed)) == []


TAKEN = """
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{generator}
batches = {made}
for step in range(100):
    (x,) = next(batches)
    model(x).sum().backward()
    opt.step()
"""
ENDLESS = "def endless(loader):\n    while True:\n        for batch in loader:\n            yield batch\n"
DELEGATED = "def endless(loader):\n    while 1:\n        yield from loader\n"
COUNTED = "def endless(loader, sampler):\n    epoch = 0\n    while True:\n        sampler.set_epoch(epoch)\n        epoch += 1\n        for batch in loader:\n            yield batch\n"
METHOD = "class Source:\n    def __init__(self, loader):\n        self.loader = loader\n    def batches(self):\n        while True:\n            for batch in self.loader:\n                yield batch\n"
LOADER = "DataLoader(ds, 8, sampler=sampler)"


@pytest.mark.parametrize(
    ("generator", "made", "found"),
    [
        (ENDLESS, f"endless({LOADER})", 1),
        (ENDLESS, f"iter(endless({LOADER}))", 1),
        (METHOD, f"Source({LOADER}).batches()", 1),
        (DELEGATED, f"endless({LOADER})", 1),
        (COUNTED, f"endless({LOADER}, sampler)", 0),
        (ENDLESS, "endless(DataLoader(ds, 8, sampler=DistributedSampler(ds, shuffle=False)))", 0),
        (ENDLESS.replace("    while True:\n        for", "    if True:\n        for"), f"endless({LOADER})", 0),
    ],
)
def test_an_endless_loader_needs_its_epochs(
    generator: str, made: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = START + "sampler = DistributedSampler(ds)\n" + TAKEN.format(generator=generator, made=made)
    assert len(findings("DDP302", audited(tmp_path, text))) == found


ORDERS = {
    "two arms": (
        "if rank == 0:\n    {a}\n    {b}\nelse:\n    {b}\n    {a}\n",
        "if rank == 0:\n    {a}\n    {b}\nelse:\n    {a}\n    {b}\n",
    ),
    "helpers": (
        "def first():\n    {a}\ndef second():\n    {b}\nif rank:\n    second()\n    first()\nelse:\n    first()\n    second()\n",
        "def first():\n    {a}\ndef second():\n    {b}\nif rank:\n    first()\n    second()\nelse:\n    first()\n    second()\n",
    ),
    "an early return": (
        "def f():\n    if rank == 0:\n        {a}\n        {b}\n        return\n    {b}\n    {a}\nf()\n",
        "def f():\n    if rank == 0:\n        {a}\n        {b}\n        return\n    {a}\n    {b}\nf()\n",
    ),
    "in a loop": (
        "for i in range(3):\n    if rank == 0:\n        {a}\n        {b}\n    else:\n        {b}\n        {a}\n",
        "for i in range(3):\n    if rank == 0:\n        {a}\n        {b}\n    else:\n        {a}\n        {b}\n",
    ),
    "under what all ranks answer alike": (
        "if torch.cuda.is_available():\n    if rank == 0:\n        {a}\n        {b}\n    else:\n        {b}\n        {a}\n",
        "if torch.cuda.is_available():\n    {a}\n    {b}\nelse:\n    {b}\n    {a}\n",
    ),
}


@pytest.mark.parametrize("form", ORDERS)
def test_collectives_in_opposite_order(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad, good = (text.format(a="dist.all_reduce(s)", b="dist.broadcast(g, 0)") for text in ORDERS[form])
    tensors = "s, g = torch.ones(1), torch.ones(2)\n"
    found = findings("DDP201", audited(tmp_path, START + tensors + bad))
    assert [f.severity for f in found] == ["error"]
    assert findings("DDP201", audited(tmp_path, START + tensors + good)) == []


@pytest.mark.parametrize(
    ("before", "fills"),
    [
        ("h = []", "heapq.heappush(h, 1)"),
        ("h = []", "bisect.insort(h, loss)"),
        ("h = [3, 1]", "heapq.heappop(h)"),
        ("h = [loss]", "heapq.heapify(h)"),
        ("h = [1]", "best = heapq.heapreplace(h, loss)"),
    ],
)
def test_what_a_function_puts_into_a_list_is_in_it(
    before: str, fills: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = HEAD + "import bisect, heapq\ndist.init_process_group('gloo')\nrank = dist.get_rank()\nloss = float(input())\n"
    empty = "if rank == 0 and not h:\n    dist.barrier()\n"
    assert findings("DDP201", audited(tmp_path, f"{head}{before}\n{fills}\n{empty}")) == []
    assert findings("DDP201", audited(tmp_path, f"{head}{before}\n{fills}\n{empty.replace('not h', 'h')}"))


GIVEN_RANKS = {
    "an option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--me', type=int)\na = p.parse_args()\n{init}rank=a.me)\nme = a.me\n",
    "SLURM or none": "try:\n    me = int(os.environ['SLURM_PROCID']) * 2\nexcept KeyError:\n    me = 0\nme = me * 8 + gpu\n{init}rank=me)\n",
    "argv": "import sys\nme = int(sys.argv[1])\n{init}rank=me)\n",
    "a file": "me = int(open('rank.txt').read())\n{init}rank=me)\n",
    "by position": "import sys\nme = int(sys.argv[1])\n{init}None, None, 8, me)\n",
}


@pytest.mark.parametrize("text", GIVEN_RANKS.values(), ids=GIVEN_RANKS)
def test_what_the_group_is_given_as_the_rank_is_the_rank(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    init = "dist.init_process_group('nccl', " if "None, None" in text else "dist.init_process_group('nccl', world_size=8, "
    head = HEAD + "gpu = int(os.environ['LOCAL_RANK'])\n" + text.format(init=init)
    assert findings("DDP201", audited(tmp_path, f"{head}if me == 0:\n    dist.barrier()\n"))
    assert findings("DDP201", audited(tmp_path, f"{head}if me >= 0:\n    dist.barrier()\n")) == []
    other = "other = int(open('other.txt').read())\n"  # of another variable nothing is known
    assert findings("DDP201", audited(tmp_path, f"{head}{other}me = 3\nif me == 0:\n    dist.barrier()\n")) == []
