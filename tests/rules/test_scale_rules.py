"""Rules on the scale of losses and gradients: other styles of each hazard, and look-alikes that must stay quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun

CODES = ["DDP801", "DDP802", "DDP804", "DDP805"]
SETUP = (
    f"{HEAD}import torch.nn.functional as F\nfrom torch import nn\ndist.init_process_group('gloo')\nworld = dist.get_world_size()\n"
    "model = DDP(torch.nn.Linear(4, 3))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
ADAM = SETUP.replace("SGD(", "AdamW(")
STEP = "    optimizer.step()\n    optimizer.zero_grad()\n"
LOOP = f"{SETUP}for i, (x, y, mask) in enumerate(loader):\n"
AFTER = f"    loss.backward()\n{STEP}"


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


WINDOW = "    if (i + 1) % 4 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n"
FACTOR = {
    "in place": f"{LOOP}    loss = F.cross_entropy(model(x), y)\n    loss /= world\n{AFTER}",
    "module": f"{SETUP}criterion = nn.MSELoss()\nfor x, y in loader:\n    (criterion(model(x), y) / world).backward()\n{STEP}",
    "mean of elements": f"{LOOP}    loss = (model(x) - y).abs().mean() / dist.get_world_size()\n{AFTER}",
    "environment": f"{SETUP}n = int(os.environ['WORLD_SIZE'])\nfor x, y in loader:\n    loss = F.mse_loss(model(x), y) / n\n{AFTER}",
    "inverse": f"{LOOP}    loss = F.mse_loss(model(x), y) * (1 / world)\n{AFTER}",
    "times the world": f"{LOOP}    loss = F.mse_loss(model(x), y) * world\n{AFTER}",
    "scaler": f"{SETUP}scaler = torch.amp.GradScaler('cuda')\nfor x, y in loader:\n    loss = F.mse_loss(model(x), y) / world\n"
    f"    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    "sum that autograd sees": f"import torch.distributed.nn.functional\n{LOOP}    loss = F.mse_loss(model(x), y)\n"
    f"    loss = torch.distributed.nn.functional.all_reduce(loss)\n{AFTER}",
    "value reduced, gradient divided": f"{LOOP}    loss = F.mse_loss(model(x), y)\n    dist.all_reduce(loss)\n    loss = loss / world\n{AFTER}",
    "Adam with clipping": f"{ADAM}for x, y in loader:\n    loss = F.mse_loss(model(x), y) / world\n    loss.backward()\n"
    f"    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{STEP}",
    "window and world": f"{LOOP}    loss = F.mse_loss(model(x), y) / (4 * world)\n    loss.backward()\n{WINDOW}",
    "window": f"{LOOP}    loss = F.mse_loss(model(x), y)\n    loss.backward()\n{WINDOW}",
    "window twice": f"{LOOP}    loss = F.mse_loss(model(x), y) / 4\n    loss = loss / 4\n    loss.backward()\n{WINDOW}",
    "Accelerate divides too": f"from accelerate import Accelerator\n{HEAD}steps = int(os.environ.get('STEPS', 4))\n"
    "accelerator = Accelerator(gradient_accumulation_steps=steps)\nmodel, loader = accelerator.prepare(model, loader)\n"
    "for x, y in loader:\n    with accelerator.accumulate(model):\n        loss = model(x, y).loss / steps\n"
    "        accelerator.backward(loss)\n",
    "inner loop": f"{SETUP}accum = int(os.environ.get('ACCUM', 4))\nfor step in range(9):\n    for micro in range(accum):\n"
    f"        x, y = next(batches)\n        F.mse_loss(model(x), y).backward()\n{STEP}",
}
IGNORED = "F.cross_entropy(model(x), y"
NESTED = f"{SETUP}def batch():\n    return torch.randn(8, 4), torch.randn(8, 3)\nfor step in range(9):\n"
PASSES = {
    "a number": f"{NESTED}    for j in range(4):\n        x, y = batch()\n        F.mse_loss(model(x), y).backward()\n{STEP}",
    "a name": f"n = 4\n{NESTED}    for j in range(n):\n        x, y = batch()\n        F.mse_loss(model(x), y).backward()\n{STEP}",
    "drawn in the call": f"{NESTED}    for j in range(4):\n        model(torch.randn(8, 4)).square().mean().backward()\n{STEP}",
    "fetched ahead": f"{NESTED}    x, y = batch()\n    for j in range(4):\n        loss = F.mse_loss(model(x), y)\n        x, y = batch()\n"
    f"        loss.backward()\n{STEP}",
    "zip": f"{NESTED}    for j, (x, y) in zip(range(4), loader):\n        F.mse_loss(model(x), y).backward()\n{STEP}",
    "a counter": f"{SETUP}seen = 0\nfor x, y in loader:\n    F.mse_loss(model(x), y).backward()\n    seen += 1\n    if seen == 4:\n"
    "        optimizer.step()\n        optimizer.zero_grad()\n        seen = 0\n",
    "a loss of the model": f"{SETUP}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.line = nn.Linear(4, 3)\n    def forward(self, x, y=None):\n        out = self.line(x)\n        loss = None\n"
    "        if y is not None:\n            loss = F.mse_loss(out, y)\n        return out, loss\nmodel = DDP(Net())\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor step in range(9):\n    for j in range(4):\n"
    f"        x, y = torch.randn(8, 4), torch.randn(8, 3)\n        _, loss = model(x, y)\n        loss.backward()\n{STEP}",
}
FACTOR |= {f"passes, {name}": text for name, text in PASSES.items()}
DIVIDED = {
    name: text.replace("F.mse_loss(model(x), y)", "(F.mse_loss(model(x), y) / 4)")
    .replace("square().mean()", "square().mean().div(4)")
    .replace("_, loss = model(x, y)", "_, loss = model(x, y)\n        loss = loss / 4")
    for name, text in PASSES.items()
}
RIGHT = {
    **{f"divided, {name}": text for name, text in DIVIDED.items()},
    "divided by an equal number": f"{NESTED}    a = 8 // 2\n    for j in range(a):\n        x, y = batch()\n        loss = F.mse_loss(model(x), y) / (8 // 2)\n"
    f"        loss.backward()\n{STEP}",
    "views of one batch": f"{NESTED}    x, y = batch()\n    for j in range(3):\n        F.mse_loss(model(x * j), y).backward()\n{STEP}",
    "parts of one batch": f"{NESTED}    x, y = batch()\n    for j in range(3):\n        part = x[j].float()\n        model(part).mean().backward()\n{STEP}",
    "one pass": f"{NESTED}    for j in range(1):\n        x, y = batch()\n        F.mse_loss(model(x), y).backward()\n{STEP}",
    "an epoch": f"{NESTED}    for x, y in loader:\n        F.mse_loss(model(x), y).backward()\n{STEP}",
    "mean": f"{LOOP}    loss = F.mse_loss(model(x), y)\n{AFTER}",
    "logged": f"{LOOP}    loss = F.mse_loss(model(x), y)\n    loss.backward()\n{STEP}    print(loss.item() / world)\n",
    "sum": f"{LOOP}    loss = F.mse_loss(model(x), y, reduction='sum') / world\n{AFTER}",
    "sum of elements": f"{LOOP}    loss = (model(x) - y).abs().sum() * world\n{AFTER}",
    "global count": f"{LOOP}    n = mask.sum()\n    dist.all_reduce(n)\n"
    f"    loss = F.cross_entropy(model(x), y, reduction='sum') * world / n\n{AFTER}",
    "mean that autograd sees": f"import torch.distributed.nn.functional\n{LOOP}    loss = F.mse_loss(model(x), y)\n"
    f"    loss = torch.distributed.nn.functional.all_reduce(loss) / world\n{AFTER}",
    "hook that sums": f"{SETUP}model.register_comm_hook(None, hook)\nfor x, y in loader:\n    loss = F.mse_loss(model(x), y) / world\n{AFTER}",
    "by hand": f"{LOOP}    loss = F.mse_loss(model(x), y) / world\n    loss.backward()\n    for p in model.parameters():\n"
    f"        p.grad.mul_(world)\n{STEP}",
    "weight of a term": f"{LOOP}    out = model(x)\n    loss = F.mse_loss(out, y) + out.abs().mean() / world\n{AFTER}",
    "window": f"{LOOP}    loss = F.mse_loss(model(x), y) / 4\n    loss.backward()\n{WINDOW}",
    "window option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--accum', type=int, default=4)\na = p.parse_args()\n"
    f"{LOOP}    loss = F.mse_loss(model(x), y)\n    loss = loss / a.accum\n    loss.backward()\n"
    "    if (i + 1) % a.accum == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "window by hand": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    if (i + 1) % 4 == 0:\n        for p in model.parameters():\n"
    "            p.grad /= 4\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "prints every fourth": f"{LOOP}    loss = F.mse_loss(model(x), y)\n{AFTER}    if i % 4 == 0:\n        print(i)\n",
    "Adam": f"{ADAM}for x, y in loader:\n    loss = F.mse_loss(model(x), y) / world\n{AFTER}",
    "accelerate": f"from accelerate import Accelerator\n{LOOP}    loss = F.mse_loss(model(x), y) / world\n{AFTER}",
    "Accelerate divides": f"from accelerate import Accelerator\n{HEAD}steps = int(os.environ.get('STEPS', 4))\n"
    "accelerator = Accelerator(gradient_accumulation_steps=steps)\nmodel, loader = accelerator.prepare(model, loader)\n"
    "for x, y in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(x, y).loss)\n",
    "Accelerate does not divide": f"from accelerate import Accelerator\n{HEAD}accelerator = Accelerator()\n"
    "model, loader = accelerator.prepare(model, loader)\nfor x, y in loader:\n    accelerator.backward(model(x, y).loss / 4)\n",
    "no wrapper": "import torch\nimport torch.nn.functional as F\nmodel = torch.nn.Linear(4, 1)\nloss = F.mse_loss(model(x), y) / 2\n"
    "loss.backward()\n",
    "steps in time": f"{SETUP}for x in loader:\n    for t in range(4):\n        F.mse_loss(model(x[t]), x[t]).backward()\n{STEP}",
}
OWN_COUNT = {
    "left out, written": f"{LOOP}    y[mask] = -100\n    loss = {IGNORED})\n{AFTER}",
    "left out, compared": f"{LOOP}    y = y.clone()\n    y[y == 0] = -1\n    loss = {IGNORED}, ignore_index=-1)\n{AFTER}",
    "left out, filled": f"{LOOP}    loss = F.cross_entropy(model(x), y.masked_fill(mask, -100))\n{AFTER}",
    "left out, where": f"{LOOP}    y = torch.where(mask, y, -1)\n    loss = {IGNORED}.view(-1), ignore_index=-1)\n{AFTER}",
    "left out, module": f"{SETUP}criterion = nn.CrossEntropyLoss()\nfor x, y, mask in loader:\n    y[~mask] = -100\n"
    f"    loss = criterion(model(x), y)\n{AFTER}",
    "left out, padded": f"{LOOP}    y = torch.nn.utils.rnn.pad_sequence(y, batch_first=True, padding_value=-100)\n    loss = {IGNORED})\n{AFTER}",
    "mask": f"{LOOP}    losses = F.cross_entropy(model(x), y, reduction='none')\n    loss = (losses * mask).sum() / mask.sum()\n{AFTER}",
    "labels": f"{LOOP}    n = (y != -100).sum()\n    loss = F.cross_entropy(model(x), y, reduction='sum') / n\n{AFTER}".replace(
        "F.cross_entropy(model(x), y, reduction='sum')", "F.cross_entropy(model(x), y, reduction='none').sum()"
    ),
    "clamped": f"{LOOP}    losses = F.mse_loss(model(x), y, reduction='none')\n"
    f"    loss = torch.sum(losses * mask) / (mask.sum().clamp(min=1) + 1e-6)\n{AFTER}",
    "selection": f"{LOOP}    losses = F.mse_loss(model(x), y, reduction='none')\n    loss = losses[mask].mean()\n{AFTER}",
    "boxes": f"{SETUP}for x, targets in loader:\n    number = max(sum(len(t['boxes']) for t in targets), 1)\n"
    f"    loss = F.l1_loss(model(x), targets, reduction='none').sum() / number\n{AFTER}",
    "selected inputs": f"{LOOP}    valid = y != -100\n    loss = F.cross_entropy(model(x)[valid], y[valid])\n{AFTER}",
    "helper": f"def masked(losses, mask):\n    return (losses * mask).sum() / mask.sum().float()\n"
    f"{LOOP}    loss = masked(F.mse_loss(model(x), y, reduction='none'), mask) + 0.1\n{AFTER}",
    "sum of a loss function": f"{LOOP}    valid = y >= 0\n    loss = F.nll_loss(model(x), y, reduction='sum') / valid.sum()\n{AFTER}",
}
SAME_COUNT = {
    "left out at fixed places": f"{LOOP}    y[:, :4] = -100\n    loss = {IGNORED})\n{AFTER}",
    "another number": f"{LOOP}    y[mask] = -1\n    loss = {IGNORED})\n{AFTER}",
    "nothing is left out": f"{LOOP}    loss = {IGNORED}.view(-1), ignore_index=-1)\n{AFTER}",
    "all-reduced": f"{LOOP}    n = mask.sum()\n    dist.all_reduce(n)\n    losses = F.mse_loss(model(x), y, reduction='none')\n"
    f"    loss = (losses * mask).sum() / (n / world).clamp(min=1)\n{AFTER}",
    "sum that autograd sees": f"import torch.distributed.nn.functional\n{LOOP}    n = torch.distributed.nn.functional.all_reduce(mask.sum())\n"
    f"    losses = F.mse_loss(model(x), y, reduction='none')\n    loss = (losses * mask).sum() * world / n\n{AFTER}",
    "all-reduced where it is divided": "def mean(t):\n    t = t.clone()\n    dist.all_reduce(t.div_(dist.get_world_size()))\n    return t\n"
    f"{LOOP}    losses = F.mse_loss(model(x), y, reduction='none')\n    loss = (losses * mask).sum() / mean(mask.sum())\n{AFTER}",
    "size of the batch": f"{LOOP}    loss = F.mse_loss(model(x), y, reduction='none').sum() / x.size(0)\n{AFTER}",
    "elements": f"{LOOP}    loss = (model(x) - y).abs().sum() / y.numel()\n{AFTER}",
    "of sequences": f"{LOOP}    losses = F.mse_loss(model(x), y, reduction='none')\n"
    f"    loss = ((losses * mask).sum(dim=1) / mask.sum(dim=1)).mean()\n{AFTER}",
    "printed": f"{LOOP}    losses = F.mse_loss(model(x), y, reduction='none')\n    print((losses * mask).sum() / mask.sum())\n"
    f"    loss = losses.mean()\n{AFTER}",
    "ignore_index": f"{LOOP}    loss = F.cross_entropy(model(x), y, ignore_index=-1)\n{AFTER}",
    "row of a batch": f"{LOOP}    loss = F.mse_loss(model(x), y, reduction='none')[0].mean()\n{AFTER}",
    "weights of a model": f"{LOOP}    loss = F.mse_loss(model(x), y) / 3\n{AFTER}",
}


@pytest.mark.parametrize("style", FACTOR)
def test_wrong_loss_factor(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP802", audited(tmp_path, FACTOR[style]))
    assert finding.severity == "warning" and ("forward" in {r.role for r in finding.related} or "Accelerate" in style)


@pytest.mark.parametrize("style", RIGHT)
def test_right_factors_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP802", audited(tmp_path, RIGHT[style])) == []


def test_a_factor_that_adam_divides_out_is_possible(tmp_path: Path) -> None:
    (finding,) = findings("DDP802", audited(tmp_path, RIGHT["Adam"]), "possible")
    assert finding.confidence == "possible"


def test_the_direction_of_the_factor_is_told(tmp_path: Path) -> None:
    (down,) = findings("DDP802", audited(tmp_path, FACTOR["in place"]))
    (up,) = findings("DDP802", audited(tmp_path, FACTOR["times the world"]))
    assert "divided by the world size" in down.message and "multiplied by the world size" in up.message


@pytest.mark.parametrize("style", OWN_COUNT)
def test_mean_of_means(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP801", audited(tmp_path, OWN_COUNT[style]))
    assert finding.severity == "warning" and {"forward", "wrap"} <= {r.role for r in finding.related}


@pytest.mark.parametrize("style", SAME_COUNT)
def test_equal_counts_are_left_alone(style: str, tmp_path: Path) -> None:
    text = SAME_COUNT[style] if SAME_COUNT[style].startswith(HEAD) else f"{HEAD}{SAME_COUNT[style]}"
    assert findings("DDP801", audited(tmp_path, text)) == []


def test_labels_that_are_ignored_are_possible(tmp_path: Path) -> None:
    (finding,) = findings("DDP801", audited(tmp_path, SAME_COUNT["ignore_index"]), "possible")
    assert finding.confidence == "possible"


@pytest.mark.parametrize("code", CODES)
def test_one_run_cannot_tell_the_scale(code: str, tmp_path: Path) -> None:
    (finding,) = findings(code, audited(tmp_path, rules()[code].bad))
    assert rules()[code].verify(finding, RecordedRun(1, {0: RankRun(0, [], EXITED)}, complete=True)) == "not-exercised"


CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
BACKWARD = f"{LOOP}    loss = F.mse_loss(model(x), y) / 4\n    loss.backward()\n"
SCALED = f"{SETUP}scaler = torch.amp.GradScaler('cuda')\nfor x, y in loader:\n    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
SCALED_STEP = "    scaler.step(optimizer)\n    scaler.update()\n"
CLIPPED = {
    "inside of no_sync, the step in the other arm": f"{LOOP}    if (i + 1) % 4:\n        with model.no_sync():\n"
    "            F.mse_loss(model(x), y).backward()\n            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    f"    else:\n        F.mse_loss(model(x), y).backward()\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "every micro-batch": f"{BACKWARD}{CLIP}{WINDOW}",
    "by value": f"{BACKWARD}    nn.utils.clip_grad_value_(model.parameters(), 1.0)\n{WINDOW}",
    "inner loop": f"{SETUP}for step in range(9):\n    for micro in range(accum_steps):\n        F.mse_loss(model(x), y).div(accum_steps).backward()\n"
    f"        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{STEP}",
    "inside of no_sync": f"{SETUP}for x, y in loader:\n    with model.no_sync():\n        F.mse_loss(model(x), y).backward()\n"
    f"        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{STEP}",
    "scaled": f"{SCALED}    scaler.scale(loss).backward()\n{CLIP}{SCALED_STEP}",
    "scaled under a flag": f"{SCALED}    if amp:\n        scaler.scale(loss).backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    f"        scaler.step(optimizer)\n    else:\n        loss.backward()\n        optimizer.step()\n",
    "summed norm": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)\n"
    f"    dist.all_reduce(norm)\n    scale = 1.0 / norm\n{STEP}",
    "summed in a helper": "def total(params):\n    found = 0\n    for p in params:\n        if p.grad is not None:\n"
    f"            found += p.grad.pow(2).sum()\n    dist.all_reduce(found)\n    return found.sqrt()\n{LOOP}"
    f"    F.mse_loss(model(x), y).backward()\n    limit = 1.0 / total(model.parameters())\n{STEP}",
    "summed squares": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    total = 0.0\n    for p in model.parameters():\n"
    f"        total = total + p.grad.norm() ** 2\n    dist.all_reduce(total, op=dist.ReduceOp.SUM)\n    total = total.sqrt()\n{STEP}",
}
CLIPPED_WELL = {
    "in the other arm than no_sync": f"{LOOP}    if (i + 1) % 4:\n        with model.no_sync():\n"
    "            F.mse_loss(model(x), y).backward()\n    else:\n        F.mse_loss(model(x), y).backward()\n"
    "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "on the step": f"{BACKWARD}    if (i + 1) % 4 == 0:\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "        optimizer.step()\n        optimizer.zero_grad()\n",
    "said twice": f"{BACKWARD}    if (i + 1) % 4 == 0:\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{WINDOW}",
    "every step": f"{BACKWARD}{CLIP}{STEP}",
    "behind the window": f"{SETUP}for step in range(9):\n    for micro in range(accum_steps):\n        F.mse_loss(model(x), y).backward()\n{CLIP}{STEP}",
    "unscaled": f"{SCALED}    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n{CLIP}{SCALED_STEP}",
    "no scaler": f"{SCALED}    loss.backward()\n{CLIP}    optimizer.step()\n",
    "scaler that is off": SCALED.replace("'cuda')", "'cuda', enabled=False)")
    + f"    scaler.scale(loss).backward()\n{CLIP}{SCALED_STEP}",
    "mean of norms": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    f"    dist.all_reduce(norm)\n    norm = norm / world\n{STEP}",
    "greatest norm": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    f"    dist.all_reduce(norm, op=dist.ReduceOp.MAX)\n{STEP}",
    "norm for the log": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    norm = torch.cat([p.grad for p in model.parameters()]).norm()\n"
    f"    dist.all_reduce(norm)\n    print(norm.item())\n{STEP}",
    "norm of shards": f"{LOOP}    F.mse_loss(model(x), y).backward()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    f"    dist.all_reduce(norm, group=shards)\n{STEP}",
    "norm of outputs": f"{LOOP}    out = model(x)\n    norm = out.norm()\n    dist.all_reduce(norm)\n    F.mse_loss(out, y).backward()\n{STEP}",
    "no wrapper": "import torch\nmodel = torch.nn.Linear(4, 1)\n",
}


@pytest.mark.parametrize("style", CLIPPED)
def test_clip_at_wrong_place(style: str, tmp_path: Path) -> None:
    text = CLIPPED[style] if CLIPPED[style].startswith(HEAD) else f"{HEAD}{CLIPPED[style]}"
    (finding,) = findings("DDP804", audited(tmp_path, text))
    assert finding.severity == "warning" and finding.related


@pytest.mark.parametrize("style", CLIPPED_WELL)
def test_clips_in_their_place_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP804", audited(tmp_path, CLIPPED_WELL[style])) == []


ROWS = f"{SETUP}for x, y in loader:\n    z = model(x)\n    every = [torch.zeros_like(z) for _ in range(world)]\n    dist.all_gather(every, z)\n"
CUT = {
    "list": f"{ROWS}    loss = (z @ torch.cat(every).T).mean()\n{AFTER}",
    "into a tensor": f"{SETUP}for x, y in loader:\n    z = F.normalize(model(x))\n    every = torch.empty(8, 2)\n"
    f"    dist.all_gather_into_tensor(every, z)\n    loss = F.cross_entropy(z @ every.t() / 0.1, y)\n{AFTER}",
    "helper without gradients": "@torch.no_grad()\ndef gather(t):\n    out = [torch.ones_like(t) for _ in range(dist.get_world_size())]\n"
    f"    dist.all_gather(out, t)\n    return torch.cat(out, dim=0)\n{SETUP}for x, y in loader:\n    z = model(x)\n"
    f"    loss = (z @ gather(z).T).logsumexp(1).mean()\n{AFTER}",
    "inside of the wrapped module": "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.body = torch.nn.Linear(4, 2)\n    def forward(self, x):\n        z = F.normalize(self.body(x))\n"
    "        out = [torch.ones_like(z) for _ in range(dist.get_world_size())]\n        dist.all_gather(out, z)\n"
    "        return (z @ torch.cat(out).T).logsumexp(1).mean()\n"
    "dist.init_process_group('gloo')\nmodel = DDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    f"for x in loader:\n    loss = model(x)\n{AFTER}",
    "criterion": "class Loss(torch.nn.Module):\n    def forward(self, a, b):\n        out = [torch.ones_like(b) for _ in range(2)]\n"
    f"        dist.all_gather(out, b)\n        return F.cross_entropy(a @ torch.cat(out).T, labels)\n{SETUP}criterion = Loss()\n"
    f"for x, y in loader:\n    loss = criterion(model(x), model(y))\n{AFTER}",
}
KEPT = {
    "own part back": f"{ROWS}    every[dist.get_rank()] = z\n    loss = (z @ torch.cat(every).T).mean()\n{AFTER}",
    "own part back unless": f"{ROWS}    if not args.local_loss:\n        every[dist.get_rank()] = z\n    loss = (z @ torch.cat(every).T).mean()\n{AFTER}",
    "joined beside": f"{ROWS}    others = every[:rank] + every[rank + 1:]\n    loss = (z @ torch.cat([z] + others).T).mean()\n{AFTER}",
    "with a graph": f"import torch.distributed.nn.functional\n{SETUP}for x, y in loader:\n    z = model(x)\n"
    f"    every = torch.cat(torch.distributed.nn.functional.all_gather(z))\n    loss = (z @ every.T).mean()\n{AFTER}",
    "own function": "class Gather(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, t):\n        out = [torch.ones_like(t)]\n"
    f"        dist.all_gather(out, t)\n        return tuple(out)\n{SETUP}for x, y in loader:\n    z = model(x)\n"
    f"    loss = (z @ torch.cat(Gather.apply(z)).T).mean()\n{AFTER}",
    "teacher": f"{SETUP}for x, y in loader:\n    with torch.no_grad():\n        k = teacher(x)\n    every = [torch.zeros_like(k) for _ in range(world)]\n"
    f"    dist.all_gather(every, k)\n    loss = (model(x) @ torch.cat(every).T).mean()\n{AFTER}",
    "labels": f"{SETUP}for x, y in loader:\n    every = [torch.zeros_like(y) for _ in range(world)]\n    dist.all_gather(every, y)\n"
    f"    loss = F.mse_loss(model(x), torch.cat(every))\n{AFTER}",
    "detached on purpose": f"{SETUP}for x, y in loader:\n    z = model(x)\n    every = [torch.zeros_like(z) for _ in range(world)]\n"
    f"    dist.all_gather(every, z.detach())\n    loss = (z @ torch.cat(every).T).mean()\n{AFTER}",
    "teacher inside of the wrapped module": "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.body, self.teacher = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)\n    def forward(self, x):\n"
    "        z = self.body(x)\n        with torch.no_grad():\n            k = self.teacher(x)\n"
    "        out = [torch.ones_like(k) for _ in range(dist.get_world_size())]\n        dist.all_gather(out, k)\n"
    "        return (z @ torch.cat(out).T).logsumexp(1).mean()\n"
    "dist.init_process_group('gloo')\nmodel = DDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    f"for x in loader:\n    loss = model(x)\n{AFTER}",
    "measured": f"{ROWS}    print(torch.cat(every).std())\n    loss = z.mean()\n{AFTER}",
}


@pytest.mark.parametrize("style", CUT)
def test_gather_without_gradient(style: str, tmp_path: Path) -> None:
    text = CUT[style] if CUT[style].startswith(HEAD) else f"{HEAD}import torch.nn.functional as F\n{CUT[style]}"
    (finding,) = findings("DDP805", audited(tmp_path, text))
    assert finding.severity == "warning" and {"forward", "backward"} <= {r.role for r in finding.related}


@pytest.mark.parametrize("style", KEPT)
def test_gathers_that_keep_the_gradient_are_left_alone(style: str, tmp_path: Path) -> None:
    text = KEPT[style] if KEPT[style].startswith(HEAD) else f"{HEAD}{KEPT[style]}"
    assert findings("DDP805", audited(tmp_path, text)) == []
