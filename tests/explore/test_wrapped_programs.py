"""What a wrapped module does in an interpreted run, however a program hands it on: one reduction for each backward that ends in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

from ddp_audit.events import COLLECTIVE
from ddp_audit.explore.exact import Run

HEAD = """
class Net(nn.Module):
    def __init__(self, give=lambda x: x):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.give = give
    def forward(self, x, **more):
        return self.give(self.layer(x))
class Out:
    def __init__(self, logits):
        self.logits = logits
x = torch.ones(2, 4)
"""


def sent(run: Run, rank: int = 0) -> str:
    """Behind the constructors: a bucket with its elements as B, what DDP sends for itself left out, the program's own by size."""
    words = []
    for event in run.sequences[rank]:
        if event.kind == COLLECTIVE and event.origin in ("user", "ddp-bucket", "ddp-unused-map", "ddp-buffers"):
            letter = {"ddp-bucket": "B", "ddp-unused-map": "U", "ddp-buffers": "S"}.get(str(event.origin), "")
            words.append(f"{letter}{event.numel}" if event.numel is not None else event.op)
    return " ".join(words)


SENT = {
    "a tensor": ("model = DDP(Net())\nmodel(x).sum().backward()\n", "B15"),
    "a pair": ("model = DDP(Net(lambda y: (y, 1)))\nmodel(x)[0].sum().backward()\n", "B15"),
    "a list": ("model = DDP(Net(lambda y: [y, y * 2]))\nsum(t.sum() for t in model(x)).backward()\n", "B15"),
    "a dict": ("model = DDP(Net(lambda y: {'logits': y}))\nmodel(x)['logits'].sum().backward()\n", "B15"),
    "an object": ("model = DDP(Net(Out))\nmodel(x).logits.sum().backward()\n", "B15"),
    "nested values": ("model = DDP(Net(lambda y: {'a': [(y, 2)]}))\nmodel(x)['a'][0][0].sum().backward()\n", "B15"),
    "a named argument": ("model = DDP(module=Net())\nmodel(x=x).sum().backward()\n", "B15"),
    "nothing for a part that takes no gradient": (
        "model = DDP(Net(lambda y: (y.detach(), y)))\nmodel(x)[0].sum()\ndist.barrier()\n",
        "barrier",
    ),
    "three steps": ("model = DDP(Net())\nfor _ in range(3):\n    model(x).sum().backward()\n", "B15 B15 B15"),
    "no forward with gradients": (
        "model = DDP(Net())\nwith torch.no_grad():\n    model(x)\nmodel.eval()\nmodel(x).sum().backward()\n",
        "B15",
    ),
    "a forward of the module inside": ("model = DDP(Net())\nmodel.module(x).sum().backward()\nmodel(x).sum().backward()\n", "B15"),
    "the forward by its name": ("model = DDP(Net())\nmodel.forward(x).sum().backward()\n", "B15"),
    "without reductions": (
        "model = DDP(Net())\nwith model.no_sync():\n    model(x).sum().backward()\nmodel(x).sum().backward()\n",
        "B15",
    ),
    "two losses of one forward": (
        "model = DDP(Net(lambda y: (y, y + 1)))\na, b = model(x)\n(a.sum() + b.sum()).backward()\n",
        "B15",
    ),
    "two models": ("a, b = DDP(Net()), DDP(nn.Linear(4, 5))\nb(x).sum().backward()\na(x).sum().backward()\n", "B25 B15"),
    "one model after the other": ("a, b = DDP(Net()), DDP(nn.Linear(3, 2))\nb(a(x)).sum().backward()\n", "B8 B15"),
    "a method that returns the wrapper": (
        "model = DDP(Net()).train()\nmodel = model.to('cpu')\nmodel(x).sum().backward()\n",
        "B15",
    ),
    "parameters that are frozen": (
        "net = Net()\nnet.layer.bias.requires_grad = False\nmodel = DDP(net)\nmodel(x).sum().backward()\n",
        "B12",
    ),
    "parts that are not used": (
        "net = Net()\nnet.spare = nn.Linear(2, 2)\nmodel = DDP(net, find_unused_parameters=True)\nmodel(x).sum().backward()\n",
        "B21 U4",
    ),
    "buffers": ("net = Net()\nnet.norm = nn.BatchNorm1d(3)\nmodel = DDP(net)\nmodel(x)\nmodel(x)\n", "S6 S1 S6 S1"),
    "buffers that stay": (
        "net = Net()\nnet.norm = nn.BatchNorm1d(3)\nmodel = DDP(net, broadcast_buffers=False)\nmodel(x)\nmodel(x)\n",
        "",
    ),
    "small buckets": (
        "model = DDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), bucket_cap_mb=1e-5)\nfor _ in range(2):\n    model(x).sum().backward()\n",
        "B40 B4 B16 B4 B16",
    ),
    "norms over all ranks": (
        "net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))\nmodel = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))\nmodel.eval()\nmodel(x)\n",
        "S6 S1",
    ),
    "parameters that are not known": (
        "import other\nmodel = DDP(other.Net())\nmodel(x).sum().backward()\ndist.barrier()\n",
        "all_reduce barrier",
    ),
    "options that are None": (
        "model = DDP(Net(), None, find_unused_parameters=None, static_graph=None, init_sync=None)\nmodel(x).sum().backward()\n",
        "B15",
    ),
    "a model of a library": (
        "import timm\nmodel = DDP(timm.create_model('resnet18'))\nmodel(x).sum().backward()\ndist.barrier()\n",
        "broadcast all_reduce barrier",
    ),
    "a compiled module": ("model = DDP(torch.compile(Net()))\nmodel(x).sum().backward()\n", "B15"),
    "a compiled wrapper": ("model = torch.compile(DDP(Net()))\nmodel(x).sum().backward()\n", "B15"),
    "a hook on what comes out": (
        "model = DDP(Net())\ny = model(x)\ny.register_hook(lambda g: dist.all_reduce(torch.ones(1 + torch.is_grad_enabled())))\ny.sum().backward()\n",
        "1 B15",
    ),
    "a hook that was taken away": (
        "model = DDP(Net())\ny = model(x)\ny.register_hook(lambda g: dist.barrier()).remove()\ny.sum().backward()\n",
        "B15",
    ),
    "a function with a backward of its own": (
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, y):\n        ctx.save_for_backward(y)\n        return y * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        dist.all_reduce(torch.ones(7))\n        return g * 2\nmodel = DDP(Net())\nTwice.apply(model(x)).sum().backward()\n",
        "7 B15",
    ),
    "a memoised helper": (
        "import functools\n@functools.lru_cache\ndef helper(n):\n    dist.all_reduce(torch.ones(n))\n    return n\nhelper(3)\nhelper(3)\nhelper(4)\n",
        "3 4",
    ),
    "what is left for the end": (
        "import atexit\natexit.register(lambda n: dist.all_reduce(torch.ones(n)), 5)\natexit.register(dist.barrier)\ndist.all_reduce(torch.ones(2))\n",
        "2 barrier 5",
    ),
    "a static graph": ("model = DDP(Net(), static_graph=True)\nfor _ in range(2):\n    model(x).sum().backward()\n", "U2 B15 B15"),
    "an optimizer with a closure": (
        "model = DDP(Net())\nopt = torch.optim.LBFGS(model.parameters())\ndef closure():\n    loss = model(x).sum()\n    loss.backward()\n    return loss\nopt.step(closure)\n",
        "B15",
    ),
    "a hook that compresses": (
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\nmodel = DDP(Net())\nmodel.register_comm_hook(None, default_hooks.fp16_compress_hook)\nmodel(x).sum().backward()\n",
        "B15",
    ),
    "a hook of one's own": (
        "def hook(state, bucket):\n    dist.all_reduce(torch.ones(bucket.buffer().numel() + bucket.index() + bucket.is_last()))\n    return bucket.buffer()\nmodel = DDP(Net())\nmodel.register_comm_hook(None, hook)\nmodel(x).sum().backward()\n",
        "B16",
    ),
    "gradients apart": (
        "model = DDP(Net())\nloss = model(x).sum()\ngrads = torch.autograd.grad(loss, list(model.parameters()))\ndist.all_reduce(grads[0])\ndist.all_reduce(grads[1])\n",
        "12 3",
    ),
    "gradients apart, then a backward": (
        "model = DDP(Net())\nloss = model(x).sum()\ntorch.autograd.grad(loss, list(model.parameters()), retain_graph=True)\nloss.backward()\n",
        "B15",
    ),
    "gradients apart with a graph of their own": (
        "model = DDP(Net())\nloss = model(x).sum()\ngrads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)\n(loss + grads[0].sum()).backward()\n",
        "B15",
    ),
    "gradients by a function": (
        "w, v = torch.ones(4), torch.ones(5)\ndist.all_reduce(torch.func.grad(lambda a, b: (a.sum() + b.sum()))(w, v))\ndist.all_reduce(torch.func.grad(lambda a, b: a.sum() + b.sum(), argnums=1)(w, v))\n"
        "a, b = torch.func.grad(lambda a, b: a.sum() + b.sum(), (0, 1))(w, v)\ndist.all_reduce(b)\n",
        "4 5 5",
    ),
    "a function that is not known": ("import other\nmodel = DDP(Net())\nother.scaled(model(x)).sum().backward()\n", "B15"),
    "a wrapper that is copied": ("model = DDP(Net())\nkept = model\nkept(x).sum().backward()\n", "B15"),
}


@pytest.mark.parametrize("name", SENT)
def test_what_a_wrapped_module_sends(name: str, tmp_path: Path) -> None:
    text, stated = SENT[name]
    run = predicted(tmp_path, HEAD + text)
    assert [sent(run, rank) for rank in (0, 1)] == [stated] * 2, (run.raised, run.cut, run.bounds)


SETTINGS = {
    "a rate": ("opt = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1))\nopt.step()\n", [("lr", "0.1", "0.2")]),
    "a rate of a group": (
        "opt = torch.optim.SGD([{'params': model.module.layer.weight}, {'params': [model.module.layer.bias], 'lr': rank + 1.0}], lr=0.5)\nopt.step()\n",
        [("lr", "1.0", "2.0")],
    ),
    "a pair of numbers": ("torch.optim.Adam(model.parameters(), betas=(0.9, 0.99 if rank else 0.9)).step()\n", [("betas", "(0.9, 0.9)", "(0.9, 0.99)")]),
    "a decay that is set later": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nopt.step()\nopt.param_groups[0]['weight_decay'] = (rank + 1) / 4\nopt.step()\n",
        [("weight_decay", "0.25", "0.5")],
    ),
    "a rate that one rank alone changes": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nopt.step()\nif rank:\n    opt.param_groups[0]['lr'] = 0.5\nopt.step()\n",
        [("lr", "0.1", "0.5")],
    ),
    "a rate that one rank changes back": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor n in range(3):\n    opt.param_groups[0]['lr'] = 0.5 if rank == 0 and n == 1 else 0.1\n    opt.step()\n",
        [("lr", "0.5", "0.1")],
    ),
    "a rate that changes for more steps of one rank": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nopt.step()\nif rank:\n    opt.param_groups[0]['lr'] = 0.5\n    opt.step()\n",
        [],
    ),
    "a rate that all change alike": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor n in range(4):\n    opt.param_groups[0]['lr'] = 0.1 / (n + 1)\n    opt.step()\n",
        [],
    ),
    "a rate of which one rank draws its own": (
        "import random\nopt = torch.optim.SGD(model.parameters(), lr=random.random() if rank else 0.1)\nopt.step()\n",
        [("lr", "0.1", "a value of its own")],
    ),
    "a limit of one rank": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nif rank:\n    nn.utils.clip_grad_norm_(model.parameters(), 2.0)\nopt.step()\n",
        [("max_norm", "none", "2.0")],
    ),
    "two limits": (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nnn.utils.clip_grad_value_(model.parameters(), clip_value=1 + rank)\nopt.step()\n",
        [("clip_value", "1", "2")],
    ),
    "equal settings": ("opt = torch.optim.SGD(model.parameters(), lr=0.1)\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\nopt.step()\n", []),
    "a rate that is unknown alike": ("opt = torch.optim.SGD(model.parameters(), lr=float(os.environ['A']))\nopt.step()\n", []),
    "a model that is not wrapped": ("opt = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1 * (rank + 1))\nopt.step()\n", []),
    "a limit without a step": ("if rank:\n    nn.utils.clip_grad_norm_(model.parameters(), 2.0)\n", []),
}  # fmt: skip


@pytest.mark.parametrize(("text", "stated"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_differ_between_ranks(text: str, stated: list[tuple[str, str, str]], tmp_path: Path) -> None:
    run = predicted(tmp_path, f"{HEAD}model = DDP(Net())\nmodel(x).sum().backward()\n{text}")
    assert [(one.setting.name, one.values[0], one.values[1]) for one in run.unequal] == stated


def test_a_graph_that_was_used_up_has_no_second_backward(tmp_path: Path) -> None:
    for first in ("torch.autograd.grad(loss, list(model.parameters()))", "loss.backward()", "loss.backward(retain_graph=False)"):
        run = predicted(tmp_path, f"{HEAD}model = DDP(Net())\nloss = model(x).sum()\n{first}\nloss.backward()\ndist.barrier()\n")
        assert "second time" in run.raised[0] and "barrier" not in sent(run), first
    run = predicted(
        tmp_path, f"{HEAD}model = DDP(Net())\nloss = model(x).sum()\nloss.backward(retain_graph=True)\nloss.backward()\n"
    )
    assert run.raised == {}


STEPS = {
    "the optimizer's own": "opt.step()\n",
    "a scaler's": "scaler = torch.amp.GradScaler('cuda')\nscaler.scale(model(x).sum()).backward()\nscaler.unscale_(opt)\nscaler.step(opt)\nscaler.update()\n",
    "one with a closure": "opt.step(lambda: model(x).sum())\n",
}


@pytest.mark.parametrize("text", STEPS.values(), ids=STEPS)
def test_a_step_is_a_step_however_it_is_called(text: str, tmp_path: Path) -> None:
    run = predicted(
        tmp_path, f"{HEAD}model = DDP(Net())\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(x).sum().backward()\n{text}"
    )
    assert [event.kind for event in run.sequences[0]].count("step") == 1


def test_values_that_are_too_large_are_not_made(tmp_path: Path) -> None:
    for made in ("[0] * 10**10", "'a' * 10**10", "10 ** 10**7", "list(range(10**9))", "1 << 10**9", "'{:>999999999}'.format(1)"):
        run = predicted(tmp_path, f"dist.barrier()\nx = {made}\ndist.all_reduce(torch.ones(2))\n")
        assert sent(run).startswith("barrier") and (run.bounds or run.cut), made
        assert all("script.py:" in bound for bound in run.bounds), made
