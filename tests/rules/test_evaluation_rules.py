"""Rules on metrics, evaluation, batch normalisation and buffers: other styles of a hazard, look-alikes that must stay quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import COLLECTIVE, DDP_BUFFERS, FORWARD, Event

CODES = ["DDP307", "DDP402", "DDP403", "DDP404"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("code", CODES)
def test_examples(code: str, tmp_path: Path) -> None:
    rule = rules()[code]
    bad = findings(code, audited(tmp_path, rule.bad))
    assert [(f.code, f.severity) for f in bad] == [(code, rule.level)]
    assert bad[0].message.endswith(".") and "\n" not in bad[0].message
    assert findings(code, audited(tmp_path, rule.good), "possible") == []


def run_of(*ranks: list[Event]) -> RecordedRun:
    """A whole run of these ranks."""
    return RecordedRun(len(ranks), {n: RankRun(n, events, EXITED) for n, events in enumerate(ranks)}, complete=True)


SETUP = "dist.init_process_group('gloo')\n"
MODEL = "model = DDP(torch.nn.Linear(4, 1))\n"
WHOLE = "data = TensorDataset(torch.ones(8, 4))\n"
TRAINED = "loader = DataLoader(data, sampler=DistributedSampler(data))\nfor x in loader:\n    model(x[0]).sum().backward()\n"

# ---- metrics of one rank

TRAINING = (
    f"{SETUP}{MODEL}data = TensorDataset(torch.ones(8, 4))\nloader = DataLoader(data, sampler=DistributedSampler(data))\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x in loader:\n    loss = model(x[0]).sum()\n    loss.backward()\n"
)
EVALUATION = (
    "def evaluate():\n    total = 0.0\n    with torch.no_grad():\n        for x in loader:\n"
    "            total += model(x[0]).sum().item()\n    return total\n"
)
LOCAL_METRICS = {
    "loss": (f"{TRAINING}    print(f'loss {{loss.item():.3f}}')\n", "loss.item()"),
    "rank 0": (f"{TRAINING}    if dist.get_rank() == 0:\n        print('loss', loss.item())\n", "loss.item()"),
    "number before": (f"{TRAINING}    lossf = loss.item() * 2\n    print(lossf)\n", "lossf ="),
    "writer": (
        f"from torch.utils.tensorboard import SummaryWriter\nw = SummaryWriter()\n{TRAINING}    w.add_scalar('loss', loss, 0)\n",
        "add_scalar",
    ),
    "wandb": (f"import wandb\n{TRAINING}    wandb.log({{'train/loss': loss.item()}})\n", "wandb.log"),
    "evaluation first": (
        f"{TRAINING}    print(loss)\n{EVALUATION}val_loss = evaluate()\nprint('validation', val_loss)\n",
        "'validation'",
    ),
    "scheduler": (
        f"{TRAINING}    print(loss)\nscheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n{EVALUATION}"
        "val_loss = evaluate()\nscheduler.step(val_loss)\n",
        "scheduler.step",
    ),
    "best": (
        f"{TRAINING}{EVALUATION}best_loss = 9.0\nval_loss = evaluate()\nif val_loss < best_loss:\n    print('better')\n",
        "if val_loss",
    ),
}
GLOBAL_METRICS = {
    "all-reduced": f"{TRAINING}    shown = loss.detach()\n    dist.all_reduce(shown)\n    print('loss', shown.item())\n",
    "reduced": f"{TRAINING}    shown = loss.detach()\n    dist.reduce(shown, 0)\n    print('loss', shown.item())\n",
    "helper": "def mean(t):\n    t = t.clone()\n    dist.all_reduce(t)\n    return t / 2\n"
    f"{TRAINING}    print('loss', mean(loss).item())\n",
    "gathered": f"{TRAINING}    losses = [torch.zeros(()) for _ in range(2)]\n    dist.all_gather(losses, loss)\n"
    "    print('loss', sum(losses).item())\n",
    "rank 0 evaluates": f"{TRAINING}{EVALUATION}if dist.get_rank() == 0:\n    val_loss = evaluate()\n    print('validation', val_loss)\n",
    "reduced by a library": f"import library\n{TRAINING}{EVALUATION}val_loss = evaluate()\nval_loss = library.all_reduce_item(val_loss)\n"
    "print('validation', val_loss)\n",
    "reduced where there are several": "def mean(v):\n    if os.environ.get('DISTRIBUTED'):\n        t = torch.tensor(v)\n"
    "        dist.all_reduce(t)\n        r = t.item() / 2\n    else:\n        r = v\n    return r\n"
    f"{TRAINING}{EVALUATION}val_loss = mean(evaluate())\nprint('validation', val_loss)\n",
    "rank 0 evaluates here": f"{TRAINING}if dist.get_rank() == 0:\n    top1 = 0.0\n    with torch.no_grad():\n        for x in loader:\n"
    "            top1 += model.module(x[0]).sum().item()\n    print(top1)\n",
    "no metric": f"{TRAINING}    print(x[0].shape, len(loader))\n",
    "progress bar": f"from tqdm import tqdm\n{TRAINING.replace('in loader', 'in (bar := tqdm(loader))')}"
    "    bar.set_postfix(loss=loss.item())\n",
    "one process": f"{TRAINING.replace('DDP(torch.nn.Linear(4, 1))', 'torch.nn.Linear(4, 1)')}    print('loss', loss.item())\n",
    "accelerate": f"import accelerate\n{TRAINING}    print('loss', loss.item())\n",
}


@pytest.mark.parametrize("style", LOCAL_METRICS)
def test_metric_of_one_rank(style: str, tmp_path: Path) -> None:
    text, place = LOCAL_METRICS[style]
    context = audited(tmp_path, HEAD + text)
    (finding,) = findings("DDP404", context)
    assert finding.severity == "info" and place in context.program.line("train.py", finding.span.line)


@pytest.mark.parametrize("style", GLOBAL_METRICS)
def test_metric_of_all_ranks_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP404", audited(tmp_path, HEAD + GLOBAL_METRICS[style])) == []


# ---- batch normalisation

NORMED = "net = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))\n"
STEPS = "for i in range(3):\n    model(torch.ones(2, 4)).sum().backward()\n"
OWN_NET = "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.norm = torch.nn.BatchNorm2d(4)\n"
LOCAL_NORMS = {
    "sequence": f"{SETUP}{NORMED}model = DDP(net)\n{STEPS}",
    "class": f"{OWN_NET}{SETUP}model = DDP(Net())\n{STEPS}",
    "broadcast off": f"{SETUP}{NORMED}model = DDP(net, broadcast_buffers=False)\n{STEPS}",
    "library": f"import torchvision\n{SETUP}model = DDP(torchvision.models.resnet18())\n{STEPS}",
    "two models": f"{SETUP}{NORMED}model = DDP(net)\nother = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4)))\n"
    "for i in range(3):\n    (model(torch.ones(2, 4)).sum() + other(torch.ones(2, 4)).sum()).backward()\n",
}
EQUAL_NORMS = {
    "sync": f"{SETUP}{NORMED}model = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net))\n{STEPS}",
    "layer norm": f"{SETUP}model = DDP(torch.nn.Sequential(torch.nn.LayerNorm(4)))\n{STEPS}",
    "no statistics": f"{SETUP}model = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4, track_running_stats=False)))\n{STEPS}",
    "averaged": f"{SETUP}{NORMED}model = DDP(net)\n{STEPS}for b in net.buffers():\n    dist.all_reduce(b)\n",
    "by a helper": f"import timm\n{SETUP}{NORMED}model = DDP(net)\n{STEPS}timm.utils.distribute_bn(model, 2)\n",
    "not trained": f"{SETUP}{NORMED}model = DDP(net)\nwith torch.no_grad():\n    model(torch.ones(2, 4))\n",
    "another model": f"{SETUP}{NORMED}net.eval()\nmodel = DDP(torch.nn.Linear(4, 1))\n{STEPS}",
    "one process": f"{NORMED}model = net\n{STEPS}",
    "lightning": f"import lightning\n{SETUP}{NORMED}model = DDP(net)\n{STEPS}",
}


@pytest.mark.parametrize("style", LOCAL_NORMS)
def test_statistics_of_one_rank(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP402", audited(tmp_path, HEAD + LOCAL_NORMS[style]))
    assert finding.severity == "info" and "buffer" in {r.role for r in finding.related}
    assert ("also keeps its own" in finding.message) == (style == "broadcast off")


@pytest.mark.parametrize("style", EQUAL_NORMS)
def test_statistics_of_all_ranks_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP402", audited(tmp_path, HEAD + EQUAL_NORMS[style])) == []


# ---- evaluation with repeated rows

EVALUATED = (
    f"def evaluate(m, batches):\n    total = torch.zeros(1)\n    with torch.no_grad():\n        for x in batches:\n"
    f"            total += m(x[0]).sum()\n    dist.all_reduce(total)\n    return total\n"
    f"{SETUP}{MODEL}{WHOLE}loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))\n"
)
PADDED = {
    "sums": f"{EVALUATED}evaluate(model, loader)\n",
    "all-reduced by the caller": EVALUATED.replace("    dist.all_reduce(total)\n", "")
    + "total = evaluate(model, loader)\ndist.all_reduce(total)\n",
    "gathered": EVALUATED.replace(
        "dist.all_reduce(total)", "everywhere = [None] * 2\n    dist.all_gather_object(everywhere, total)"
    )
    + "evaluate(model, loader)\n",
    "in the loop": EVALUATED.replace("sum()\n    dist.all_reduce(total)", "sum()\n            dist.all_reduce(total)")
    + "evaluate(model, loader)\n",
    "decorated": EVALUATED.replace("def evaluate", "@torch.no_grad()\ndef evaluate").replace(
        "    with torch.no_grad():", "    if True:"
    )
    + "for epoch in range(2):\n    evaluate(model, loader)\n",
}
EXACT = {
    "drop_last": f"{EVALUATED.replace('shuffle=False', 'shuffle=False, drop_last=True')}evaluate(model, loader)\n",
    "parts": EVALUATED.replace(
        "DataLoader(data, sampler=DistributedSampler(data, shuffle=False))",
        "DataLoader(torch.utils.data.Subset(data, range(dist.get_rank(), 8, 2)))",
    )
    + "evaluate(model, loader)\n",
    "kept on the rank": f"{EVALUATED}evaluate(model, loader)\n".replace("    dist.all_reduce(total)\n", ""),
    "cut": PADDED["gathered"].replace("return total", "return sum(everywhere, [])[: len(batches.dataset)]"),
    "by number": PADDED["gathered"].replace("return total", "return {index: row for part in everywhere for index, row in part}"),
    "by id, one by one": PADDED["gathered"].replace(
        "return total",
        "merged = {}\n    for part in everywhere:\n        for row in part:\n            merged[row['id']] = row\n    return merged",
    ),
    "rank 0": f"{EVALUATED}if dist.get_rank() == 0:\n    evaluate(model, loader)\n",
    "training": f"{SETUP}{MODEL}{WHOLE}{TRAINED}dist.all_reduce(torch.ones(1))\n",
    "whole": f"{EVALUATED.replace(', sampler=DistributedSampler(data, shuffle=False)', '')}evaluate(model, loader)\n",
    "accelerate": f"import accelerate\n{EVALUATED}evaluate(model, loader)\n",
    "a flag": f"{EVALUATED}evaluate(model, loader)\n".replace("all_reduce(total)", "all_reduce(stop_flag)").replace(
        "    return total", "    return 0"
    ),
}


@pytest.mark.parametrize("style", PADDED)
def test_repeated_rows_are_counted(style: str, tmp_path: Path) -> None:
    context = audited(tmp_path, HEAD + PADDED[style])
    (finding,) = findings("DDP307", context)
    assert finding.severity == "info" and "DistributedSampler" in context.program.line("train.py", finding.span.line)
    assert ("interleaved" in finding.message) == (style == "gathered")


@pytest.mark.parametrize("style", EXACT)
def test_exact_evaluation_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP307", audited(tmp_path, HEAD + EXACT[style])) == []


# ---- buffers of each rank

HOLDER = (
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = torch.nn.Linear(4, 1)\n"
    "        self.register_buffer('kept', torch.zeros(4))\n    def forward(self, x):\n        {}\n        return self.inner(x)\n"
    f"{SETUP}model = DDP(Net(){{}})\n{STEPS}"
)
FILLED = {
    "copied": HOLDER.format("self.kept.copy_(x.mean(0))", ""),
    "assigned": HOLDER.format("self.kept = x.detach().mean(0)", ""),
    "element": HOLDER.format("self.kept[0] = x.sum()", ""),
    "running": HOLDER.format("mean = x.mean(0)\n        self.kept.mul_(0.9).add_(mean, alpha=0.1)", ""),
    "in a method": HOLDER.format("self.note(x)", "").replace(
        "    def forward", "    def note(self, keys):\n        self.kept[:] = keys[0]\n    def forward"
    ),
    "inside": HOLDER.format("self.kept += x[0]", "").replace("DDP(Net())", "DDP(torch.nn.Sequential(Net()))"),
    "said so": HOLDER.format("self.kept.copy_(x.mean(0))", ", broadcast_buffers=True"),
}
UNTOUCHED = {
    "counter": HOLDER.format("self.kept += 1", ""),
    "size": HOLDER.format("self.kept += x.shape[0]", ""),
    "read": HOLDER.format("x = x + self.kept", ""),
    "attribute": HOLDER.format("self.last = x.mean(0)", ""),
    "gathered": HOLDER.format("dist.all_reduce(x)\n        self.kept.copy_(x.mean(0))", ""),
    "switched off": HOLDER.format("self.kept.copy_(x.mean(0))", ", broadcast_buffers=False"),
    "switched off anew": HOLDER.format("self.kept.copy_(x.mean(0))", ", forward_sync_buffers=False"),
    "an option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--b', action='store_true')\na = p.parse_args()\n"
    + HOLDER.format("self.kept.copy_(x.mean(0))", ", broadcast_buffers=a.b"),
    "not from forward": HOLDER.format("pass", "").replace(
        "    def forward", "    def load(self, keys):\n        self.kept[:] = keys[0]\n    def forward"
    ),
    "batch norm": f"{SETUP}{NORMED}model = DDP(net)\n{STEPS}",
    "one process": HOLDER.format("self.kept.copy_(x.mean(0))", "").replace("DDP(Net())", "Net()"),
    "lightning": "import lightning\n" + HOLDER.format("self.kept.copy_(x.mean(0))", ""),
}


@pytest.mark.parametrize("style", FILLED)
def test_buffer_filled_from_the_batch(style: str, tmp_path: Path) -> None:
    context = audited(tmp_path, HEAD + FILLED[style])
    (finding,) = findings("DDP403", context)
    assert finding.severity == "info" and "self.kept" in context.program.line("train.py", finding.span.line)


@pytest.mark.parametrize("style", UNTOUCHED)
def test_buffer_that_is_the_same_everywhere_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP403", audited(tmp_path, HEAD + UNTOUCHED[style])) == []


@pytest.mark.parametrize(("broadcasts", "verdict"), [(0, "not-observed"), (1, "confirmed")])
def test_buffers_in_a_run(broadcasts: int, verdict: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP403", audited(tmp_path, rules()["DDP403"].bad))
    forward = Event(FORWARD, detail={"grad": True})
    sent = [Event(COLLECTIVE, "broadcast", origin=DDP_BUFFERS)] * broadcasts
    rank = [forward, forward, *sent]
    assert rules()["DDP403"].verify(finding, run_of(rank, rank)) == verdict
    assert rules()["DDP403"].verify(finding, run_of([forward, *sent], [forward, *sent])) == "not-exercised"
