"""DDP101, DDP105 and DDP112 to DDP115: what each finds, in several styles, and the look-alikes on which it stays quiet.

In a program `# HERE` marks the line that the finding names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ddp_audit.findings import Finding
from ddp_audit.program import lower
from ddp_audit.rule import Context, load_rules
from ddp_audit.source.project import Project

RULES = {rule.code: rule for rule in load_rules()}
MINE = ("DDP101", "DDP105", "DDP112", "DDP113", "DDP114", "DDP115")
LOUD = ("DDP101", "DDP105", "DDP112", "DDP113", "DDP115", "DDP201", "DDP202", "DDP203")

HEAD = """\
from contextlib import nullcontext
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.scale = 1.0
    def forward(self, x):
        return self.layer(x) * self.scale
    def loss(self, x):
        return self.forward(x).mean()

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
"""
PLAIN = HEAD + "net = Net()\nmodel = DDP(net)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

FOUND = {
    ("DDP105", "the last window by a name of the length, in a function"): PLAIN + """
def train(loader, window):
    n = len(loader)
    for i, x in enumerate(loader):
        with nullcontext() if (i + 1) % window == 0 else model.no_sync():
            model(x).mean().backward()
        if (i + 1) % window == 0 or i + 1 == n:
            optimizer.step()  # HERE
            optimizer.zero_grad()
train(torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=8), 3)
""",
    # the inner module by several ways
    ("DDP101", "module called"): PLAIN + """
for step in range(4):
    loss = model.module(torch.randn(8, 4)).mean()
    loss.backward()  # HERE
    optimizer.step()
""",
    ("DDP101", "reference kept from before the wrap"): PLAIN + """
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()  # HERE
    optimizer.step()
""",
    ("DDP101", "unwrapped by a helper, two calls away"): PLAIN + """
def unwrap(model):
    return model.module if hasattr(model, "module") else model
def compute_loss(core, x):
    return core.loss(x)  # HERE
def train(model):
    core = unwrap(model)
    for step in range(4):
        loss = compute_loss(core, torch.randn(8, 4))
        loss.backward()
        optimizer.step()
train(model)
""",
    ("DDP101", "attribute of a trainer class"): HEAD + """
class Trainer:
    def __init__(self):
        self.model = DDP(Net())
        self.raw = self.model.module
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def step(self, x):
        loss = self.raw(x).mean()
        loss.backward()  # HERE
        self.optimizer.step()
trainer = Trainer()
for i in range(4):
    trainer.step(torch.randn(8, 4))
""",
    # conditions of no_sync() and of the step
    ("DDP105", "last batch of a loader"): PLAIN + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
accumulate = 4
for i, x in enumerate(loader):
    if (i + 1) % accumulate != 0:
        with model.no_sync():
            model(x).mean().backward()
    else:
        model(x).mean().backward()
    if (i + 1) % accumulate == 0 or (i + 1) == len(loader):
        optimizer.step()  # HERE
""",
    ("DDP105", "last batch, where a batch with a loss of no use is left out"): PLAIN + """
import math
loader = torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=4)
for i, x in enumerate(loader):
    sync = (i + 1) % 2 == 0
    with nullcontext() if sync else model.no_sync():
        loss = model(x).mean()
        loss.backward()
    if not math.isfinite(loss.item()):
        continue
    if sync or i + 1 == len(loader):
        optimizer.step()  # HERE
""",
    ("DDP105", "off by one"): PLAIN + """
for i, x in enumerate(torch.randn(16, 8, 4)):
    context = model.no_sync() if (i + 1) % 4 != 0 else nullcontext()
    with context:
        loss = model(x).mean()
        loss.backward()
    if i % 4 == 0:
        optimizer.step()  # HERE
""",
    ("DDP105", "step inside no_sync"): PLAIN + """
for i in range(4):
    with model.no_sync():
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()  # HERE
""",
    ("DDP105", "flag set before the forward, first micro-batch instead of last"): PLAIN + """
for step in range(4):
    for micro_step in range(3):
        model.require_backward_grad_sync = micro_step == 0
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()  # HERE
""",
    ("DDP105", "option of the command line, in a class"): HEAD + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
class Trainer:
    def __init__(self, accum):
        self.accum = accum
        self.model = DDP(Net())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def fit(self, loader):
        for i, x in enumerate(loader):
            last = i == len(loader) - 1
            with self.model.no_sync() if (i + 1) % self.accum else nullcontext():
                self.model(x).mean().backward()
            if last or (i + 1) % self.accum == 0:
                self.optimizer.step()  # HERE
Trainer(args.accum).fit(torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8))
""",
    # the flag after the forward
    ("DDP112", "in a window"): PLAIN + """
for step in range(4):
    for micro_step in range(2):
        loss = model(torch.randn(8, 4)).mean()
        model.require_backward_grad_sync = micro_step == 1  # HERE
        loss.backward()
    optimizer.step()
""",
    ("DDP112", "by setattr in a helper"): PLAIN + """
def sync(model, on):
    setattr(model, "require_backward_grad_sync", on)  # HERE
for i in range(8):
    loss = model(torch.randn(8, 4)).mean()
    sync(model, i % 2 == 1)
    loss.backward()
    if i % 2 == 1:
        optimizer.step()
""",
    # no_sync() around the backward alone
    ("DDP113", "if and else"): PLAIN + """
for i in range(8):
    loss = model(torch.randn(8, 4)).mean()
    if i % 2 == 0:
        with model.no_sync():  # HERE
            loss.backward()
    else:
        loss.backward()
        optimizer.step()
""",
    ("DDP113", "model that is not followed"): """
import contextlib
def train(model, loader, optimizer):
    for i, x in enumerate(loader):
        loss = model(x)
        with model.no_sync() if i % 2 else contextlib.nullcontext():  # HERE
            loss.backward()
        optimizer.step()
""",
    # the flag before the forward
    ("DDP114", "before the forward"): PLAIN + """
for step in range(4):
    for micro_step in range(2):
        model.require_backward_grad_sync = micro_step == 1  # HERE
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    # attributes of the inner module
    ("DDP115", "method"): PLAIN + """
loss = model.loss(torch.randn(8, 4))  # HERE
""",
    ("DDP115", "on one rank, in a helper"): PLAIN + """
def report(model):
    print(model.scale)  # HERE
if dist.get_rank() == 0:
    report(model)
dist.barrier()
""",
}  # fmt: skip

QUIET = {
    ("DDP115", "the arms of a conditional expression that asks the opposite"): PLAIN + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--alone", action="store_true")
args = parser.parse_args()
model = Net()
if not args.alone:
    model = DDP(model)
print(model.scale if args.alone else model.module.scale)
""",
    ("DDP114", "an attribute of the project's own object"): PLAIN + """
class Policy:
    def __init__(self):
        self.require_backward_grad_sync = True
policy = Policy()
for i in range(4):
    policy.require_backward_grad_sync = i % 2 == 1
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP101", "evaluation and saving through the inner module"): PLAIN + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    with torch.no_grad():
        print(model.module.loss(torch.randn(8, 4)))
torch.save(model.module.state_dict(), "net.pt")
""",
    ("DDP101", "armed by a wrapped forward that is dropped"): PLAIN + """
for step in range(4):
    model(torch.randn(8, 4))
    model.module(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP101", "gradients reduced by the program"): PLAIN + """
for step in range(4):
    model.module(torch.randn(8, 4)).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
""",
    ("DDP101", "a target from the inner module, detached"): PLAIN + """
for step in range(4):
    target = model.module.loss(torch.randn(8, 4)).detach()
    (model(torch.randn(8, 4)).mean() - target).backward()
    optimizer.step()
""",
    ("DDP105", "one boolean for both"): PLAIN + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
for i, x in enumerate(loader):
    sync = (i + 1) % 4 == 0 or i + 1 == len(loader)
    with nullcontext() if sync else model.no_sync():
        model(x).mean().backward()
    if sync:
        optimizer.step()
""",
    ("DDP105", "only the forward inside, later micro-batch synced"): PLAIN + """
for step in range(4):
    for micro_step in range(3):
        last = micro_step == 2
        if last:
            loss = model(torch.randn(8, 4)).mean()
        else:
            with model.no_sync():
                loss = model(torch.randn(8, 4)).mean()
        loss.backward()
    optimizer.step()
""",
    ("DDP105", "all but the last in a first loop"): PLAIN + """
for step in range(4):
    with model.no_sync():
        for micro_step in range(3):
            model(torch.randn(8, 4)).mean().backward()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP105", "leftovers carried into the next epoch"): PLAIN + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
for i, x in enumerate(loader, start=1):
    with model.no_sync() if i % 4 else nullcontext():
        model(x).mean().backward()
    if i % 4 == 0:
        optimizer.step()
""",
    ("DDP105", "a step condition that cannot be computed"): PLAIN + """
for i, x in enumerate(torch.randn(16, 8, 4)):
    with model.no_sync() if not window_is_full(i) else nullcontext():
        model(x).mean().backward()
    if ready():
        optimizer.step()
""",
    ("DDP112", "the reducer is prepared by hand"): PLAIN + """
for i in range(4):
    loss = model(torch.randn(8, 4)).mean()
    model.require_backward_grad_sync = True
    model.reducer.prepare_for_backward([])
    loss.backward()
""",
    ("DDP112", "FSDP2 reads its switch in backward"): """
import torch
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(4, 1)
fully_shard(model)
for i in range(4):
    loss = model(torch.randn(8, 4)).mean()
    model.set_requires_gradient_sync(i % 2 == 1)
    loss.backward()
""",
    ("DDP113", "forward and backward inside, in a helper"): PLAIN + """
def micro_step(x):
    loss = model(x).mean()
    loss.backward()
for i in range(4):
    with model.no_sync() if i % 2 == 0 else nullcontext():
        micro_step(torch.randn(8, 4))
    if i % 2 == 1:
        optimizer.step()
""",
    ("DDP113", "forward inside, backward outside"): PLAIN + """
for i in range(4):
    with model.no_sync() if i % 2 == 0 else nullcontext():
        loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    if i % 2 == 1:
        optimizer.step()
""",
    ("DDP114", "no_sync"): PLAIN + """
with model.no_sync():
    model(torch.randn(8, 4)).mean().backward()
model(torch.randn(8, 4)).mean().backward()
optimizer.step()
""",
    ("DDP114", "the flag is read, not set"): PLAIN + """
print(model.require_backward_grad_sync)
""",
    ("DDP115", "asked for first"): PLAIN + """
core = model.module if hasattr(model, "module") else model
print(core.scale)
if hasattr(model, "scale"):
    print(model.scale)
print(getattr(model, "scale", None))
""",
    ("DDP115", "set on the wrapper"): PLAIN + """
model.scale = 2.0
print(model.scale, model.training, model.device_ids)
""",
    ("DDP115", "a subclass that passes attributes on"): HEAD + """
class Passing(DDP):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
print(Passing(Net()).scale)
""",
    ("DDP115", "an error that is expected"): PLAIN + """
try:
    print(model.scale)
except AttributeError:
    print(model.module.scale)
""",
}  # fmt: skip

Check = Callable[..., list[Finding]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """A function that writes a program as train.py and answers with what the named rules find in it."""

    def run(text: str, *codes: str) -> list[Finding]:
        monkeypatch.chdir(tmp_path)
        Path("train.py").write_text(text)
        project = Project(["train.py"])
        context = Context(lower(project, project.files[0]))
        return [finding for code in codes for finding in RULES[code].check(context)]

    return run


@pytest.mark.parametrize(("code", "name"), FOUND)
def test_found_at_the_marked_line(check: Check, code: str, name: str) -> None:
    text = FOUND[code, name]
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "# HERE" in row)
    found = [f for f in check(text, *MINE) if f.code in (code, *LOUD)]
    assert [(f.code, f.span.line) for f in found] == [(code, line)]
    assert found[0].confidence in ("likely", "certain")
    assert found[0].message.endswith(".") and found[0].explanation.endswith(".")


@pytest.mark.parametrize(("code", "name"), QUIET)
def test_quiet_on_look_alikes(check: Check, code: str, name: str) -> None:
    assert [(f.code, f.span.line, f.message) for f in check(QUIET[code, name], code)] == []


@pytest.mark.parametrize("code", MINE)
def test_examples_of_the_page(check: Check, code: str) -> None:
    rule = RULES[code]
    assert {f.code for f in check(rule.bad, *LOUD, "DDP114")} == {code}
    assert check(rule.good, *LOUD) == []
    assert rule.code not in {f.code for f in check(rule.good, code)}


def test_message_names_the_position(check: Check) -> None:
    (found,) = check(FOUND["DDP105", "last batch of a loader"], "DDP105")
    assert "i = 4" in found.message and "len(loader) = 5" in found.message
    assert {related.role for related in found.related} >= {"forward", "sync", "guard"}


def test_behind_an_option_it_is_a_warning_that_names_the_option(check: Check) -> None:
    text = (
        PLAIN
        + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--bypass", action="store_true")
if parser.parse_args().bypass:
    model.module(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""
    )
    (found,) = check(text, "DDP101")
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert found.option is not None and found.option.name == "bypass" and "`bypass` is True" in found.message
