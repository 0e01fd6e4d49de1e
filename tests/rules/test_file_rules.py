"""Rules on checkpoints and files: other styles of each hazard, and look-alikes that must stay quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import LOADED, PARAMETERS, SAVE, Event, Site

CODES = ["DDP701", "DDP702", "DDP703", "DDP803"]
INIT = f"{HEAD}import time\nfrom pathlib import Path\nrank = int(os.environ['RANK'])\ndist.init_process_group('gloo')\n"
MODEL = "model = DDP(torch.nn.Linear(4, 1))\n"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("code", CODES)
def test_examples(code: str, tmp_path: Path) -> None:
    rule = rules()[code]
    bad = findings(code, audited(tmp_path, rule.bad))
    assert [(f.code, f.severity) for f in bad] == [(code, rule.level)]
    assert bad[0].message.endswith(".") and "\n" not in bad[0].message
    for other in CODES:
        assert findings(other, audited(tmp_path, rule.good), "possible") == []


ALL_WRITE = {
    "save in a loop": ("error", f"{INIT}{MODEL}for e in range(3):\n    torch.save(model.state_dict(), f'out/{{e}}.pt')\n"),
    "save by a callee": ("error", f"def save(m, p):\n    torch.save(m, p)\n{INIT}{MODEL}save(model, 'last.pt')\n"),
    "open file given to save": ("error", f"{INIT}{MODEL}with open('a.pt', 'wb') as f:\n    torch.save(model, f)\n"),
    "value of the rank": ("error", f"{INIT}with open('a.txt', 'w') as f:\n    f.write(f'rank {{rank}}')\n"),
    "settings with the rank": (
        "error",
        "import argparse, pickle\np = argparse.ArgumentParser()\np.add_argument('--rank', type=int)\nargs = p.parse_args()\n"
        f"{INIT}pickle.dump(args, open('args.pkl', 'wb'))\n",
    ),
    "own loss": (
        "warning",
        f"{INIT}{MODEL}loss = model(torch.ones(4))\nwith open('l.txt', 'a') as f:\n    f.write(str(loss.item()))\n",
    ),
    "table": (
        "error",
        f"import csv\n{INIT}{MODEL}f = open('l.csv', 'w')\nrows = csv.writer(f)\nrows.writerow([model(torch.ones(4)).item()])\n",
    ),
    "print": ("error", f"{INIT}{MODEL}f = open('l.txt', 'w')\nprint(model(torch.ones(4)).item(), file=f)\n"),
    "mkdir": ("error", f"{INIT}os.makedirs('runs')\n"),
    "looks and makes": ("warning", f"{INIT}if not os.path.exists('runs'):\n    os.mkdir('runs')\n"),
    "rmtree": ("error", f"import shutil\n{INIT}shutil.rmtree('runs')\n"),
    "path rename": ("error", f"{INIT}Path('a.tmp').rename('a.pt')\n"),
    "both arms": ("error", f"{INIT}{MODEL}if rank == 0:\n    print('x')\nelse:\n    pass\ntorch.save(model, 'a.pt')\n"),
    "an option that decides nothing but this": (
        "warning",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--distributed', action='store_true')\n"
        f"args = p.parse_args()\n{INIT}{MODEL}if not args.distributed or rank == 0:\n    torch.save(model, 'a.pt')\n",
    ),
    "an option lets all through": (
        "warning",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--only_first', action='store_true')\nargs = p.parse_args()\n"
        f"{INIT}{MODEL}if not args.only_first or rank == 0:\n    torch.save(model, 'a.pt')\n",
    ),
}
ONE_WRITES = {
    "rank by a library's name": f"import other.comm as comm\n{HEAD}dist.init_process_group('gloo')\n{MODEL}if comm.rank() == 0:\n"
    "    torch.save(model, 'a.pt')\n",
    "wrapped by a tool that trains nothing": f"{HEAD}{MODEL}torch.save(model.module, 'a.pt')\n",
    "rest of a download": f"""{INIT}{MODEL}from pathlib import Path
def fetch(url, file):
    file = Path(file)
    try:
        torch.hub.download_url_to_file(url, str(file))
    except Exception:
        file.unlink()
    finally:
        if not file.exists() or file.stat().st_size < 10:
            if file.exists():
                file.unlink()
fetch('http://localhost/a', 'a.bin')
""",
    "guard": f"{INIT}{MODEL}if rank == 0:\n    torch.save(model, 'a.pt')\n",
    "not rank": f"{INIT}{MODEL}if not rank:\n    torch.save(model, 'a.pt')\n",
    "early return": f"def save(m):\n    if dist.get_rank():\n        return\n    torch.save(m, 'a.pt')\n{INIT}{MODEL}save(model)\n",
    "decorator": f"from lib import rank_zero_only\n@rank_zero_only\ndef save(m):\n    torch.save(m, 'a.pt')\n{INIT}{MODEL}save(model)\n",
    "several processes or not": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--many', action='store_true')\n"
    "args = p.parse_args()\nmodel, rank = torch.nn.Linear(4, 1), 0\nif args.many:\n    dist.init_process_group('gloo')\n"
    "    model, rank = DDP(model), dist.get_rank()\nif not args.many or rank == 0:\n    torch.save(model, 'a.pt')\n",
    "object of rank 0": f"class W:\n    def save(self, m):\n        torch.save(m, 'a.pt')\n{INIT}{MODEL}"
    "w = W() if rank == 0 else None\nif w is not None:\n    w.save(model)\n",
    "name with the rank": f"{INIT}{MODEL}torch.save(model, 'state_' + str(rank) + '.pt')\n",
    "name that says so": f"import lib\n{INIT}{MODEL}torch.save(model, lib.shard_path)\n",
    "exist_ok": f"{INIT}os.makedirs('runs', exist_ok=True)\nPath('x').mkdir(exist_ok=True)\n",
    "in try": f"{INIT}try:\n    os.makedirs('runs')\nexcept FileExistsError:\n    pass\n",
    "same text": f"{INIT}with open('settings.txt', 'w') as f:\n    f.write('lr = 0.1')\n",
    "to memory": f"import io\n{INIT}{MODEL}torch.save(model, io.BytesIO())\n",
    "lines that say who": f"{INIT}{MODEL}f = open('log.txt', 'a+')\nf.write(f'{{rank}}: {{model(torch.ones(4)).item()}}')\n",
    "reads": f"{INIT}text = open('settings.txt').read()\n",
    "local rank": f"{INIT}{MODEL}if int(os.environ['LOCAL_RANK']) == 0:\n    torch.save(model, 'a.pt')\n",
    "before the spawn": "import torch.multiprocessing as mp\nimport torch.distributed as dist\nimport os\ndef work(rank):\n"
    "    dist.init_process_group('gloo')\nos.makedirs('runs')\nmp.spawn(work, nprocs=2)\n",
    "one process": "import torch\nmodel = torch.nn.Linear(4, 1)\ntorch.save(model, 'a.pt')\n",
    "in turn": f"{INIT}if rank != 0:\n    dist.barrier()\nif not os.path.exists('a'):\n    os.mkdir('a')\nif rank == 0:\n    dist.barrier()\n",
}


@pytest.mark.parametrize("style", ALL_WRITE)
def test_all_ranks_write(style: str, tmp_path: Path) -> None:
    severity, text = ALL_WRITE[style]
    (finding,) = findings("DDP701", audited(tmp_path, text))
    assert finding.severity == severity


@pytest.mark.parametrize("style", ONE_WRITES)
def test_one_writer_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP701", audited(tmp_path, ONE_WRITES[style])) == []


def test_one_writer_a_node_is_possible(tmp_path: Path) -> None:
    (finding,) = findings("DDP701", audited(tmp_path, ONE_WRITES["local rank"]), "possible")
    assert finding.confidence == "possible" and "One rank of each node" in finding.message


def test_an_option_that_lets_all_through_is_named(tmp_path: Path) -> None:
    (finding,) = findings("DDP701", audited(tmp_path, ALL_WRITE["an option lets all through"][1]))
    assert finding.message.startswith("With only_first = False, every rank")


def test_other_ranks_write_one_path(tmp_path: Path) -> None:
    rule = rules()["DDP701"]
    (finding,) = findings("DDP701", audited(tmp_path, rule.bad))
    site = Site("/project/train.py", finding.span.line)

    def run(*paths: str) -> RecordedRun:
        ranks = {n: RankRun(n, [Event(SAVE, site=site, detail={"path": path})], EXITED) for n, path in enumerate(paths)}
        return RecordedRun(len(ranks), ranks, complete=True)

    assert rule.verify(finding, run("last.pt", "last.pt")) == "confirmed"
    assert rule.verify(finding, run("0.pt", "1.pt")) == "not-observed"
    assert rule.verify(finding, RecordedRun(1, {0: RankRun(0, [], EXITED)}, complete=True)) == "not-exercised"
    other = rules()["DDP702"]
    assert other.verify(finding, run("0.pt", "1.pt")) == "confirmed"
    assert other.verify(finding, run("0.pt", "0.pt")) == "not-observed"


def test_what_an_opened_file_is_filled_with_decides(tmp_path: Path) -> None:
    """As the rule's page says: nothing of a constant, possible where it is computed, likely where it is seen to differ."""
    texts = {"b'1'": [], "repr(model.state_dict()).encode()": ["possible"], "str(rank).encode()": ["likely"]}
    for content, confidence in texts.items():
        text = f"{INIT}{MODEL}with open('a.bin', 'wb') as f:\n    f.write({content})\n"
        assert [f.confidence for f in findings("DDP701", audited(tmp_path, text), "possible")] == confidence


NAMES = f"{INIT}folder = os.path.join('runs', time.strftime('%H%M%S'))\n"
DIFFERS = {
    "makes": f"{NAMES}os.makedirs(folder, exist_ok=True)\n",
    "datetime": f"from datetime import datetime\n{INIT}out = f'runs/{{datetime.now():%H%M}}'\nPath(out).mkdir(exist_ok=True)\n",
    "all save": f"{NAMES}{MODEL}torch.save(torch.get_rng_state(), folder + '/a.pt')\n",
    "all load": f"{NAMES}{MODEL}dist.barrier()\nmodel.load_state_dict(torch.load(folder + '/a.pt'))\n",
    "reads at once": f"{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\nx = torch.load('a.pt')\n",
    "rank 0 makes the folder": f"{INIT}if rank == 0:\n    os.makedirs('out/x')\ntorch.save(torch.ones(4), f'out/x/{{0}}.pt')\n",
    "drawn": f"import uuid\n{INIT}os.makedirs('runs/' + uuid.uuid4().hex, exist_ok=True)\n",
    "shards in the folder of rank 0": f"{INIT}if rank == 0:\n    os.makedirs('out/x')\ntorch.save(torch.ones(4), f'out/x/{{rank}}.pt')\n",
    "writer of summaries": f"from torch.utils.tensorboard import SummaryWriter\n{NAMES}w = SummaryWriter(log_dir=folder)\n",
    "downloads": f"import torchvision\n{INIT}data = torchvision.datasets.MNIST('data', train=True, download=True)\n",
    "fetches": f"import urllib.request\n{INIT}urllib.request.urlretrieve('http://a/b', 'b.zip')\n",
}
AGREES = {
    "broadcast": f"{INIT}name = [time.strftime('%H')]\ndist.broadcast_object_list(name, 0)\nos.makedirs(name[0], exist_ok=True)\n",
    "rank 0 alone": f"{NAMES}if rank == 0:\n    os.makedirs(folder)\n",
    "own name on purpose": f"{INIT}os.makedirs(f'runs/{{time.time()}}-{{rank}}', exist_ok=True)\n",
    "summaries of rank 0": f"from torch.utils.tensorboard import SummaryWriter\n{NAMES}w = SummaryWriter(folder) if rank == 0 else None\n",
    "temporary": f"import tempfile\n{INIT}folder = tempfile.mkdtemp()\ntorch.save(torch.ones(4), os.path.join(folder, 'a.pt'))\n",
    "option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--name', default='x')\n"
    f"{INIT}os.makedirs(p.parse_args().name, exist_ok=True)\n",
    "barrier": f"{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\ndist.barrier()\nx = torch.load('a.pt')\n",
    "a helper of a library": f"from lib import comm\n{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\ncomm.synchronize()\n"
    "x = torch.load('a.pt')\n",
    "the constructor waits": f"{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\n{MODEL}x = torch.load('a.pt')\n",
    "folder of the parent": "import torch.multiprocessing as mp\nimport torch\nimport torch.distributed as dist\nimport os\n"
    "def work(rank):\n    dist.init_process_group('gloo')\n    if rank == 0:\n        os.makedirs('out', exist_ok=True)\n"
    "    torch.save(torch.ones(4), f'out/{rank}.pt')\nos.makedirs('out', exist_ok=True)\nmp.spawn(work, nprocs=2)\n",
    "resumes from the folder": f"{INIT}if rank == 0:\n    os.makedirs('out', exist_ok=True)\nx = torch.load('out/a.pt')\n",
    "another file": f"{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\nx = torch.load('b.pt')\n",
    "rank 0 reads what it wrote": f"{INIT}if rank == 0:\n    torch.save(torch.ones(4), 'a.pt')\n    x = torch.load('a.pt')\n",
    "downloaded before": f"import torchvision\n{INIT}if rank == 0:\n    torchvision.datasets.MNIST('data', download=True)\n"
    "dist.barrier()\ndata = torchvision.datasets.MNIST('data', download=True)\n",
    "one goes first": f"import torchvision\n{INIT}if rank != 0:\n    dist.barrier()\n"
    "data = torchvision.datasets.MNIST('data', download=True)\nif rank == 0:\n    dist.barrier()\n",
    "no download": f"import torchvision\n{INIT}data = torchvision.datasets.MNIST('data', download=False)\n",
    "hub": f"from transformers import AutoModel\n{INIT}net = AutoModel.from_pretrained('gpt2')\n",
    "time of a step": f"{INIT}start = time.time()\nopen('settings.txt').read()\nprint(time.time() - start)\n",
}


@pytest.mark.parametrize("style", DIFFERS)
def test_path_differs_by_rank(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP702", audited(tmp_path, DIFFERS[style]))
    assert finding.severity == "warning"


@pytest.mark.parametrize("style", AGREES)
def test_agreed_paths_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP702", audited(tmp_path, AGREES[style])) == []


SAVES = f"{INIT}path = 'a.pt'\nnet = torch.nn.Linear(4, 1)\n{MODEL}if rank == 0:\n    torch.save(model.state_dict(), path)\ndist.barrier()\n"
HIDDEN = {
    "whole file": f"{SAVES}net.load_state_dict(torch.load(path), strict=False)\n",
    "key": SAVES.replace("model.state_dict(),", "{'net': model.state_dict(), 'epoch': 1},")
    + "state = torch.load(path)\nnet.load_state_dict(state['net'], strict=False)\n",
    "positional": f"{SAVES}net.load_state_dict(torch.load(path), False)\n",
    "the other way round": SAVES.replace("model.state_dict()", "model.module.state_dict()")
    + "model.load_state_dict(torch.load(path), strict=False)\n",
    "through module": f"{SAVES}model.module.load_state_dict(torch.load(path), strict=False)\n",
    "helper": f"def read(net, path):\n    net.load_state_dict(torch.load(path, map_location='cpu'), strict=False)\n{SAVES}read(net, path)\n",
}
COMPILED = f"{INIT}path = 'a.pt'\nnet = torch.nn.Linear(4, 1)\nother = torch.nn.Linear(4, 1)\nmodel = torch.compile(net)\n" + (
    "wrapped = torch.nn.parallel.DistributedDataParallel(model)\nif rank == 0:\n    torch.save({'net': wrapped.module.state_dict()}, path)\n"
)
READ = "other.load_state_dict(torch.load(path)['net'], strict=False)\n"
HIDDEN |= {
    "compiled, inside of the wrapper": f"{COMPILED}{READ}",
    "compiled, through the wrapper": COMPILED.replace("wrapped.module.state", "wrapped.state") + READ,
    "wrapper, compiled": COMPILED.replace("model = torch.compile(net)", "model = net")
    .replace("if rank", "wrapped = torch.compile(wrapped)\nif rank")
    .replace("wrapped.module.state", "wrapped.state")
    + f"wrapped._orig_mod.{READ[6:]}",
    "compiled without a wrapper": f"from torch import compile as fast\n{COMPILED}".replace("torch.compile(", "fast(").replace(
        "wrapped.module.state", "model.state"
    )
    + READ,
    "plain into compiled": COMPILED.replace("wrapped.module.state", "net.state") + f"model.{READ[6:]}",
    "compiled by default": f"use = True\n{COMPILED}".replace(
        "model = torch.compile(net)", "model = net\nif use:\n    model = torch.compile(model)"
    )
    + READ,
    "compiled in a helper": f"def fast(net):\n    return torch.compile(net, dynamic=True)\n{COMPILED}".replace(
        "torch.compile(net)", "fast(net)"
    )
    + READ,
    "compiled as an attribute": COMPILED.replace(
        "model = torch.compile(net)\n", "class Job:\n    pass\njob = Job()\njob.model = torch.compile(net)\n"
    ).replace("(model)", "(job.model)")
    + READ,
}
PLAIN = {
    "compiled, saved as it was": COMPILED.replace("wrapped.module.state", "wrapped.module._orig_mod.state") + READ,
    "compiled, its first name saved": COMPILED.replace("wrapped.module.state", "net.state") + READ,
    "compiled in place": COMPILED.replace("model = torch.compile(net)", "net.compile()\nmodel = net") + READ,
    "compiled on both sides": f"{COMPILED}other = torch.compile(other)\n{READ}",
    "compiled by one option on both sides": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--fast', action='store_true')\n"
    + "args = p.parse_args()\n"
    + COMPILED.replace("model = torch.compile(net)", "model = torch.compile(net) if args.fast else net")
    + f"if args.fast:\n    other = torch.compile(other)\n{READ}",
    "a compiled function": COMPILED.replace("torch.compile(net)", "net\nloss = torch.compile(torch.nn.functional.mse_loss)") + READ,
    "prefix taken off in a loop": f"{COMPILED}state = torch.load(path)['net']\nfor k, v in list(state.items()):\n    if k.startswith('_orig_mod.'):\n"
    "        state[k[len('_orig_mod.'):]] = state.pop(k)\nother.load_state_dict(state, strict=False)\n",
    "prefix taken off in a helper": f"{COMPILED}state = torch.load(path)\ndef clean(s):\n    for k in list(s):\n        s[k.split('.', 1)[1]] = s.pop(k)\n"
    "clean(state['net'])\nother.load_state_dict(state['net'], strict=False)\n",
    "prefix of torch.compile consumed": f"{COMPILED}state = torch.load(path)['net']\n"
    "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, '_orig_mod.')\nother.load_state_dict(state, strict=False)\n",
    "strict": f"{SAVES}net.load_state_dict(torch.load(path))\n",
    "wrapper to wrapper": f"{SAVES}model.load_state_dict(torch.load(path), strict=False)\n",
    "module to module": SAVES.replace("model.state_dict()", "model.module.state_dict()")
    + "net.load_state_dict(torch.load(path), strict=False)\n",
    "looked at": f"{SAVES}result = net.load_state_dict(torch.load(path), strict=False)\nprint(result)\n",
    "printed": f"{SAVES}print(net.load_state_dict(torch.load(path), strict=False))\n",
    "prefix taken off": f"{SAVES}state = torch.load(path)\n"
    "net.load_state_dict({k[7:]: v for k, v in state.items()}, strict=False)\n",
    "prefix consumed": f"{SAVES}state = torch.load(path)\n"
    "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, 'module.')\nnet.load_state_dict(state, strict=False)\n",
    "another checkpoint": f"{INIT}net = torch.nn.Linear(4, 1)\nnet.load_state_dict(torch.load('pretrained.pt'), strict=False)\n",
    "another key": SAVES.replace("model.state_dict(),", "{'ddp': model.state_dict(), 'net': net.state_dict()},")
    + "net.load_state_dict(torch.load(path)['net'], strict=False)\n",
}


@pytest.mark.parametrize("style", HIDDEN)
def test_prefix_hidden_by_strict_false(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP703", audited(tmp_path, HIDDEN[style]))
    assert finding.severity == "warning" and "save" in {r.role for r in finding.related}


@pytest.mark.parametrize("style", PLAIN)
def test_keys_that_fit_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP703", audited(tmp_path, PLAIN[style])) == []


def test_keys_hidden_by_an_option_that_compiles(tmp_path: Path) -> None:
    options = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--fast', action='store_true')\nargs = p.parse_args()\n"
    )
    for made in (
        "model = net\nif args.fast:\n    model = torch.compile(model)",
        "model = torch.compile(net) if args.fast else net",
        "model = net if not args.fast else torch.compile(net)",
    ):
        source = f"{options}{COMPILED}{READ}".replace("model = torch.compile(net)", made)
        (finding,) = findings("DDP703", audited(tmp_path, source))
        assert finding.severity == "info" and finding.option is not None and finding.option.name == "fast"
        assert "If `fast` is True (default: False)" in finding.message and "`_orig_mod.`" in finding.message


PARTS = f"""{INIT}from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.act = nn.ReLU()
        self.head = nn.Linear(4, 1)
    def forward(self, x):
        return self.head(self.act(self.block(x)))
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net()
net, other, path = Net(), Net(), 'a.pt'
net.block = torch.compile(net.block)
model = DDP(net)
if rank == 0:
    torch.save({{'net': model.module.state_dict()}}, path)
dist.barrier()
other.load_state_dict(torch.load(path)['net'], strict=False)
"""
COMPILE, LOAD = "net.block = torch.compile(net.block)\n", "other.load_state_dict("
PARTS_HIDDEN = {
    "before the wrap": PARTS,
    "through the wrapper, after it": PARTS.replace(COMPILE, "").replace("if rank", f"{COMPILE}if rank"),
    "wrapper on both sides": PARTS.replace("model.module.state", "model.state").replace(LOAD, f"other = DDP(other)\n{LOAD}"),
    "plain into compiled": PARTS.replace(COMPILE, "other.block = torch.compile(other.block)\n"),
    "in a helper": PARTS.replace(
        COMPILE, "def fast(m):\n    m.block = torch.compile(m.block, dynamic=True)\n    return m\nnet = fast(net)\n"
    ),
    "part of a part": PARTS.replace("net, other, path = Net(), Net()", "net, other, path = Outer(), Outer()").replace(
        COMPILE, "net.inner.block = torch.compile(net.inner.block)\n"
    ),
    "by setattr": PARTS.replace(COMPILE, "setattr(net, 'block', torch.compile(net.block))\n"),
    "compiled back too late": PARTS.replace(LOAD, f"net.block = net.block._orig_mod\n{LOAD}"),
    "by a constant": PARTS.replace(COMPILE, f"use = True\nif use:\n    {COMPILE}"),
    "wrapped, not compiled": PARTS.replace(COMPILE, "net.block = DDP(net.block)\n"),
}
PARTS_FIT = {
    "no parameters": PARTS.replace(COMPILE, "net.act = torch.compile(net.act)\n"),
    "both": PARTS.replace(LOAD, f"other.block = torch.compile(other.block)\n{LOAD}"),
    "in the constructor": PARTS.replace(COMPILE, "").replace(
        "nn.Sequential(nn.Linear(4, 4), nn.ReLU())", "torch.compile(nn.Linear(4, 4))"
    ),
    "another name": PARTS.replace(COMPILE, "fast = torch.compile(net.block)\n"),
    "in place": PARTS.replace(COMPILE, "net.block.compile()\n"),
    "taken out before the save": PARTS.replace("model = DDP", "net.block = net.block._orig_mod\nmodel = DDP"),
    "compiled after the save": PARTS.replace(COMPILE, "").replace("dist.barrier()\n", f"dist.barrier()\n{COMPILE}"),
    "loaded before it is compiled": PARTS.replace(COMPILE, "") + "other.block = torch.compile(other.block)\n",
    "loaded by itself": f"{PARTS}other.block.load_state_dict(torch.load('block.pt'))\n",
    "looked at": PARTS.replace(LOAD, f"result = {LOAD}") + "print(result)\n",
    "strict": PARTS.replace(", strict=False", ""),
    "names rewritten": PARTS.replace(
        "torch.load(path)['net']", "{k.replace('_orig_mod.', ''): v for k, v in torch.load(path)['net'].items()}"
    ),
}


@pytest.mark.parametrize("style", PARTS_HIDDEN)
def test_keys_of_a_part_hidden_by_strict_false(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP703", audited(tmp_path, PARTS_HIDDEN[style]))
    name = "inner.block" if style == "part of a part" else "block"
    assert finding.severity == "warning" and f"keys of `{name}` begin with `{name}." in finding.message


@pytest.mark.parametrize("style", PARTS_FIT)
def test_keys_of_parts_that_fit_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP703", audited(tmp_path, PARTS_FIT[style])) == []


def test_a_part_compiled_by_an_option(tmp_path: Path) -> None:
    options = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--fast', action='store_true')\nargs = p.parse_args()\n"
    )
    source = options + PARTS.replace(COMPILE, f"if args.fast:\n    {COMPILE}")
    (finding,) = findings("DDP703", audited(tmp_path, source))
    assert finding.severity == "info" and finding.option is not None and finding.option.name == "fast"
    both = source.replace(LOAD, f"if args.fast:\n    other.block = torch.compile(other.block)\n{LOAD}")
    assert findings("DDP703", audited(tmp_path, both)) == []


@pytest.mark.parametrize(("unexpected", "verdict"), [(2, "confirmed"), (0, "not-observed")])
def test_a_run_tells_of_a_part(unexpected: int, verdict: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP703", audited(tmp_path, PARTS))
    site = Site(finding.span.path, finding.span.line)
    event = Event(LOADED, site=site, detail={"given": 4, "unexpected": unexpected})
    ranks = {n: RankRun(n, [event], EXITED) for n in range(2)}
    assert rules()["DDP703"].verify(finding, RecordedRun(2, ranks, complete=True)) == verdict


SCALER = f"{INIT}{MODEL}scaler = torch.amp.GradScaler('cuda')\nstate = torch.load('a.pt', map_location='cpu')\n"
STARTED = """import argparse
from multiprocessing import Process
{head}
def work(options):
    model = DDP(torch.nn.Linear(4, 1))
    if {test}:
        torch.save(model.state_dict(), 'last.pt')

def start(rank, size, work, options):
    dist.init_process_group('gloo', rank=rank, world_size=size)
    work(options)

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--node', type=int, default=0)
    parser.add_argument('--processes', type=int, default=1)
    options = parser.parse_args()
    for index in range(options.processes):
        options.number = index + options.node * options.processes
        Process(target=start, args=(options.number, options.processes, work, options)).start()
"""


@pytest.mark.parametrize(("test", "count"), [("options.number == 0", 0), ("options.processes", 1)])
def test_options_that_a_process_is_handed(test: str, count: int, tmp_path: Path) -> None:
    assert len(findings("DDP701", audited(tmp_path, STARTED.format(head=HEAD, test=test)))) == count


SCALERS_DIFFER = {
    "restored by rank 0, where there is a file": f"import os\n{SCALER}if rank == 0 and os.path.exists('a.pt'):\n"
    "    scaler.load_state_dict(state['scaler'])\n",
    "restored by rank 0": f"{SCALER}if rank == 0:\n    scaler.load_state_dict(state['scaler'])\n",
    "restored in a callee": f"def restore(s, state):\n    if dist.get_rank() != 0:\n        return\n    s.load_state_dict(state)\n"
    f"{SCALER}restore(scaler, state)\n",
    "made by rank": f"{INIT}scaler = torch.cuda.amp.GradScaler(init_scale=2.0 ** (10 + rank))\n",
    "updated by rank": f"{SCALER}scaler.update(new_scale=1.0 + rank)\n",
}
SCALERS_AGREE = {
    "all restore": f"{SCALER}scaler.load_state_dict(state['scaler'])\n",
    "both arms": f"{SCALER}if rank == 0:\n    scaler.load_state_dict(state)\nelse:\n    scaler.load_state_dict(state)\n",
    "if there is one": f"{SCALER}if 'scaler' in state:\n    scaler.load_state_dict(state['scaler'])\n",
    "options": f"{SCALER}other = torch.amp.GradScaler('cuda', init_scale=1024.0, enabled=False)\nscaler.update()\n",
    "model of rank 0": f"{SCALER}if rank == 0:\n    model.load_state_dict(state)\n",
}


@pytest.mark.parametrize("style", SCALERS_DIFFER)
def test_scaler_differs(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP803", audited(tmp_path, SCALERS_DIFFER[style]))
    assert finding.severity == "info"


@pytest.mark.parametrize("style", SCALERS_AGREE)
def test_equal_scalers_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP803", audited(tmp_path, SCALERS_AGREE[style])) == []


def test_parameters_that_drift_confirm_the_scalers(tmp_path: Path) -> None:
    rule = rules()["DDP803"]
    (finding,) = findings("DDP803", audited(tmp_path, rule.bad))
    site = Site("/project/train.py", finding.span.line)

    def run(*hashes: str) -> RecordedRun:
        ranks = {n: RankRun(n, [Event(PARAMETERS, site=site, detail={"hash": h, "step": 1})], EXITED) for n, h in enumerate(hashes)}
        return RecordedRun(len(ranks), ranks, complete=True)

    assert rule.verify(finding, run("a", "b")) == "confirmed"
    assert rule.verify(finding, run("a", "a")) == "not-observed"
    assert rule.verify(finding, RecordedRun(2, {n: RankRun(n, [], EXITED) for n in (0, 1)}, complete=True)) == "not-exercised"
