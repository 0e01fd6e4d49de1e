"""Rules on CUDA devices: where the current one is used before it is set, and where checkpoints are restored."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import DEVICE, GROUP, Event, Site

CODES = ["DDP602", "DDP603"]


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


NCCL = f"{HEAD}local_rank = int(os.environ['LOCAL_RANK'])\ndist.init_process_group('nccl')\n"
NO_DEVICE = {
    "cuda()": f"{NCCL}model = DDP(torch.nn.Linear(4, 1).cuda())\n",
    "to cuda": f"{NCCL}model = DDP(torch.nn.Linear(4, 1).to('cuda'))\n",
    "device object": f"{NCCL}device = torch.device('cuda')\nx = torch.ones(4).to(device)\n",
    "if there is one": f"{NCCL}device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nx = torch.ones(4).to(device)\n",
    "made there": f"{NCCL}x = torch.ones(4, device='cuda')\ndist.all_reduce(x)\n",
    "default backend": NCCL.replace("'nccl'", "") + "model = DDP(torch.nn.Linear(4, 1).cuda())\n",
    "option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', default='cuda')\nargs = p.parse_args()\n"
    f"{NCCL}model = DDP(torch.nn.Linear(4, 1).to(args.device))\n",
    "too late": f"{NCCL}model = torch.nn.Linear(4, 1).cuda()\ntorch.cuda.set_device(local_rank)\n",
    "objects": f"{NCCL}x = torch.ones(4).to(local_rank)\nnames = [None]\ndist.broadcast_object_list(names)\n",
    "objects before": f"{NCCL}dist.all_gather_object([None], 1)\ntorch.cuda.set_device(local_rank)\nx = torch.ones(4).cuda()\n",
    "always 0": f"{NCCL}torch.cuda.set_device(0)\nmodel = DDP(torch.nn.Linear(4, 1).cuda())\n",
}
OWN_DEVICE = {
    "set": f"{NCCL}torch.cuda.set_device(local_rank)\nmodel = DDP(torch.nn.Linear(4, 1).cuda())\ndist.barrier()\n",
    "set in a helper": f"def setup():\n    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n{NCCL}setup()\n"
    "model = DDP(torch.nn.Linear(4, 1).cuda())\n",
    "context": f"{NCCL}with torch.cuda.device(local_rank):\n    model = DDP(torch.nn.Linear(4, 1).cuda())\n",
    "device_id": NCCL.replace("'nccl'", "'nccl', device_id=torch.device('cuda', local_rank)") + "x = torch.ones(4).cuda()\n",
    "visible devices": f"{NCCL}os.environ['CUDA_VISIBLE_DEVICES'] = str(local_rank)\nx = torch.ones(4).cuda()\n",
    "gloo": NCCL.replace("nccl", "gloo") + "x = torch.ones(4).cuda()\ndist.barrier()\n",
    "named": f"{NCCL}model = DDP(torch.nn.Linear(4, 1).to(local_rank), device_ids=[local_rank])\n",
    "barrier with a device": f"{NCCL}x = torch.ones(4).to(local_rank)\ndist.barrier(device_ids=[local_rank])\n",
    "barrier alone": f"{NCCL}dist.barrier()\ntorch.cuda.set_device(local_rank)\nx = torch.ones(4).cuda()\n",
    "rank 0 alone": f"{NCCL}if dist.get_rank() == 0:\n    x = torch.ones(4).cuda()\n",
    "accelerate": f"from accelerate import Accelerator\n{NCCL}x = torch.ones(4).cuda()\n",
    "one process": "import torch\nmodel = torch.nn.Linear(4, 1).cuda()\n",
    "elsewhere": f"from lib import set_device\n{NCCL}set_device()\nmodel = DDP(torch.nn.Linear(4, 1).cuda())\n",
}


@pytest.mark.parametrize("style", NO_DEVICE)
def test_device_not_set(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP602", audited(tmp_path, NO_DEVICE[style]))
    assert finding.severity == "warning" and "init" in {r.role for r in finding.related}


@pytest.mark.parametrize("style", OWN_DEVICE)
def test_own_devices_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP602", audited(tmp_path, OWN_DEVICE[style])) == []


SAVED = f"{NCCL}torch.cuda.set_device(local_rank)\nnet = torch.nn.Linear(4, 1).cuda()\ntorch.save(net.state_dict(), 'a.pt')\n"
WRAPPED = f"{NCCL}torch.cuda.set_device(local_rank)\nnet = torch.nn.Linear(4, 1).cuda()\nddp = DDP(net)\n" + (
    "{move}\nif dist.get_rank() == 0:\n    torch.save({state}, 'a.pt')\ndist.barrier()\nnet.load_state_dict(torch.load('a.pt'))\n"
)
BESIDE = WRAPPED.format(
    move="loss = ddp(torch.ones(2, 4).cuda()).mean()\n{score}", state="{{'model': ddp.state_dict(), 'best': best}}"
)
ON_SAVER = {
    "a score of numpy beside it": BESIDE.format(score="best = loss.detach().cpu().numpy()"),
    "a number beside it": BESIDE.format(score="best = loss.item()"),
    "a mean of numpy beside it": BESIDE.format(score="import numpy\nbest = max(0.0, numpy.mean(loss.detach().cpu().numpy()))"),
    "a tensor beside it": BESIDE.format(score="best = loss.cpu()"),
    "a list of scores beside it": BESIDE.format(score="best = [loss.cpu(), 1]"),
    "moved and moved back": WRAPPED.format(move="ddp.cpu()\nddp.cuda()", state="ddp.module.state_dict()"),
    "another one moved": WRAPPED.format(move="torch.nn.Linear(4, 1).cpu()", state="ddp.module.state_dict()"),
    "load": f"{SAVED}net.load_state_dict(torch.load('a.pt'))\n",
    "None": f"{SAVED}state = torch.load('a.pt', map_location=None)\nnet.load_state_dict(state)\n",
    "key": f"{SAVED}ckpt = torch.load('a.pt', weights_only=True)\nnet.load_state_dict(ckpt['model'])\n",
    "helper": f"def read(path):\n    return torch.load(path)\n{SAVED}net.load_state_dict(read('a.pt')['model'])\n",
    "optimizer": f"{SAVED}opt = torch.optim.SGD(net.parameters(), 0.1)\nopt.load_state_dict(torch.load('b.pt'))\n",
}
ELSEWHERE = {
    "cpu": f"{SAVED}net.load_state_dict(torch.load('a.pt', map_location='cpu'))\n",
    "function": f"{SAVED}net.load_state_dict(torch.load('a.pt', lambda s, l: s))\n",
    "keywords": f"import lib\n{SAVED}net.load_state_dict(torch.load('a.pt', **lib.options))\n",
    "rank 0": f"{SAVED}if dist.get_rank() == 0:\n    net.load_state_dict(torch.load('a.pt'))\n",
    "data": f"{SAVED}x = torch.load('x.pt')\n",
    "saved from the CPU": SAVED.replace("torch.save(net", "torch.save(net.cpu()") + "net.load_state_dict(torch.load('a.pt'))\n",
    "moved in place": SAVED.replace("torch.save(", "net.cpu()\ntorch.save(") + "net.load_state_dict(torch.load('a.pt'))\n",
    "the wrapper moved in place": WRAPPED.format(move="ddp.cpu()", state="ddp.module.state_dict()"),
    "the module in the wrapper moved": WRAPPED.format(move="ddp.module.to('cpu')", state="ddp.state_dict()"),
    "moved by its own name": WRAPPED.format(move="net.to('cpu')", state="ddp.module.state_dict()"),
    "moved to a device": WRAPPED.format(move="ddp.to(torch.device('cpu'))", state="ddp.module.state_dict()"),
    "moved, then halved": WRAPPED.format(move="ddp.cpu()\nddp.half()", state="ddp.module.state_dict()"),
    "moved by a helper": WRAPPED.format(move="def away(m):\n    m.cpu()\naway(ddp)", state="ddp.module.state_dict()"),
    "copied entry by entry": WRAPPED.format(move="", state="{'model': {k: v.cpu() for k, v in ddp.state_dict().items()}, 'x': 1}"),
    "gloo": SAVED.replace("nccl", "gloo") + "net.load_state_dict(torch.load('a.pt'))\n",
    "one process": "import torch\nnet = torch.nn.Linear(4, 1)\ntorch.save(net.state_dict(), 'a')\nnet.load_state_dict(torch.load('a'))\n",
}


@pytest.mark.parametrize("style", ON_SAVER)
def test_load_without_map_location(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP603", audited(tmp_path, ON_SAVER[style]))
    assert finding.severity == "warning" and {"use", "save"} <= {r.role for r in finding.related}


@pytest.mark.parametrize("style", ELSEWHERE)
def test_loads_to_a_place_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP603", audited(tmp_path, ELSEWHERE[style])) == []


RESUMED = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume', default='')\na = p.parse_args()\n"
    f"{NCCL}torch.cuda.set_device(local_rank)\nnet = torch.nn.Linear(4, 1).cuda()\nif a.resume:\n"
    "    ckpt = torch.load(a.resume)\n    net.load_state_dict(ckpt['model'])\ntorch.save({'model': net.state_dict()}, 'last.pt')\n"
)


def test_an_option_that_names_a_checkpoint_of_this_script(tmp_path: Path) -> None:
    (finding,) = findings("DDP603", audited(tmp_path, RESUMED))
    assert finding.severity == "warning" and finding.message.startswith("If `resume` is a checkpoint of this script, every rank")


@pytest.mark.parametrize(
    "text",
    [
        RESUMED.replace("{'model'", "{'weights'"),  # another script's
        RESUMED.replace("a.resume)", "a.resume, map_location='cpu')"),
        RESUMED.replace("if a.resume:", "if a.resume and dist.get_rank() == 0:"),
        RESUMED.replace("net.state_dict()", "net.cpu().state_dict()"),
        RESUMED.replace("if a.resume:", "p.add_argument('--old', action='store_true')\na = p.parse_args()\nif a.old:"),
    ],
)
def test_options_that_name_other_checkpoints(text: str, tmp_path: Path) -> None:
    assert [f for f in findings("DDP603", audited(tmp_path, text)) if f.severity != "info"] == []


def test_a_checkpoint_of_others_is_possible(tmp_path: Path) -> None:
    text = SAVED.replace("torch.save(net.state_dict(), 'a.pt')\n", "") + "net.load_state_dict(torch.load('a.pt'))\n"
    (finding,) = findings("DDP603", audited(tmp_path, text), "possible")
    assert finding.confidence == "possible"


def test_ranks_without_devices_of_their_own(tmp_path: Path) -> None:
    rule = rules()["DDP602"]
    (finding,) = findings("DDP602", audited(tmp_path, rule.bad))
    site = Site("/project/train.py", finding.span.line)

    def run(*devices: int | None) -> RecordedRun:
        ranks = {}
        for rank, device in enumerate(devices):
            events = [Event(GROUP, site=site, detail={"action": "init", "backend": "nccl"})]
            events += [] if device is None else [Event(DEVICE, site=site, detail={"index": device})]
            ranks[rank] = RankRun(rank, events, EXITED)
        return RecordedRun(len(ranks), ranks, complete=True)

    assert rule.verify(finding, run(None, None)) == "not-exercised"  # init_process_group may have been given a device
    assert rule.verify(finding, run(0, 0)) == "not-exercised"  # each may see one GPU alone
    assert rule.verify(finding, run(0, 1)) == "not-observed"
    assert rule.verify(finding, RecordedRun(1, {0: RankRun(0, [], EXITED)}, complete=True)) == "not-exercised"
