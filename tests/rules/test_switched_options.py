"""Hazards behind an option that is off by default: found one step lower, with the option named; behind two they are only possible."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = (
    HEAD
    + """
import argparse, yaml
from dataclasses import dataclass
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
p = argparse.ArgumentParser()
p.add_argument("--eval", action="store_true")
p.add_argument("--fast", action="store_false")
p.add_argument("--every", type=int, default=0)
p.add_argument("--resume", default=None)
p.add_argument("--mode", choices=["train", "test"], default="train")
p.add_argument("--task", required=True)
p.add_argument("data")
a = p.parse_args()
cfg = yaml.safe_load(open("c.yaml"))
"""
)

ONE_OPTION = {
    "and": ("if a.eval and rank == 0:\n    dist.barrier()\n", "eval", True),
    "rank first": ("if rank == 0 and a.eval:\n    dist.barrier()\n", "eval", True),
    "nested": ("if a.eval:\n    if rank == 0:\n        dist.barrier()\n", "eval", True),
    "in a variable": ("do = a.eval and rank == 0\nif do:\n    dist.barrier()\n", "eval", True),
    "early return": ("def f():\n    if not a.eval or rank != 0:\n        return\n    dist.barrier()\nf()\n", "eval", True),
    "switched off": ("if not a.fast and rank == 0:\n    dist.barrier()\n", "fast", False),
    "a number": (
        "for i in range(9):\n    if a.every > 0 and i % a.every == 0 and rank == 0:\n        dist.barrier()\n",
        "every",
        1,
    ),
    "none": ("if a.resume is not None and rank == 0:\n    dist.barrier()\n", "resume", None),
    "inside of a function": ("def f(on):\n    if on and rank == 0:\n        dist.barrier()\nf(a.eval)\n", "eval", True),
    "three conditions": ("if a.eval and rank == 0 and model is not None:\n    dist.barrier()\n", "eval", True),
}


@pytest.mark.parametrize("form", ONE_OPTION)
def test_one_option_is_named(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body, name, value = ONE_OPTION[form]
    (finding,) = findings("DDP201", audited(tmp_path, START + body))
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert finding.option is not None and (finding.option.name, finding.option.value) == (name, value)
    assert finding.message.startswith(f"If `{name}` is ")


@pytest.mark.parametrize(
    "body",
    [
        "if cfg['eval'] and rank == 0:\n    dist.barrier()\n",
        "if rank == 0 and cfg['eval']:\n    dist.barrier()\n",
        "if a.task == 'test' and rank == 0:\n    dist.barrier()\n",
        "if rank == 0 and a.data:\n    dist.barrier()\n",
        "if not (rank != 0 or not cfg.get('eval')):\n    dist.barrier()\n",
        "if a.fast and rank == 0:\n    dist.barrier()\n",
    ],
)
def test_what_every_run_decides_alike_takes_nothing_away(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (finding,) = findings("DDP201", audited(tmp_path, START + body))
    assert (finding.severity, finding.confidence, finding.option) == ("error", "likely", None)


def test_two_options_are_only_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context = audited(tmp_path, START + "if a.eval and a.every and rank == 0:\n    dist.barrier()\n")
    assert findings("DDP201", context, "possible") != []
    assert findings("DDP201", context) == []


@pytest.mark.parametrize(
    "body",
    [
        "if a.eval and rank == 0:\n    print('here')\n",
        "if a.eval:\n    dist.barrier()\n",
        "if cfg['eval'] and a.task:\n    dist.barrier()\n",
        "if a.eval and rank == 0:\n    dist.barrier()\nelif a.eval:\n    dist.barrier()\n",
        "if cfg['eval'] and rank == 0:\n    dist.barrier()\nelif cfg['eval']:\n    dist.barrier()\n",
    ],
)
def test_conditions_that_ranks_answer_alike_are_left_alone(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP201", audited(tmp_path, START + body)) == []


ALL_SAVE = """
if a.eval:
    if not a.eval or (a.eval and rank == 0):
        torch.save(model.state_dict(), "a.pt")
"""


def test_a_condition_that_the_option_changes_is_asked_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP701", audited(tmp_path, START + ALL_SAVE)) == []
    every = ALL_SAVE.replace("(a.eval and rank == 0)", "a.eval")
    (finding,) = findings("DDP701", audited(tmp_path, START + every))
    assert finding.option is not None and finding.option.name == "eval"


@pytest.mark.parametrize(
    "asserted",
    [
        "assert rank == -1, 'not with several processes'",
        "assert a.task and int(os.environ['LOCAL_RANK']) < 0",
        "assert not distributed",
        "assert a.task == 'one' and not distributed",
    ],
)
def test_nothing_stands_behind_an_assertion_for_one_process(asserted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = START.replace("model = DDP(torch.nn.Linear(4, 1))", "model = torch.nn.Linear(4, 1)")
    head += "distributed = torch.cuda.device_count() > 1\nif distributed:\n    model = DDP(model)\n"
    body = f"if a.eval:\n    {asserted}\n    model.weight.sum()\n"
    assert findings("DDP115", audited(tmp_path, head + body)) == []
    (finding,) = findings("DDP115", audited(tmp_path, head + body.replace(asserted, "assert rank >= 0")))
    assert finding.option is not None and finding.option.name == "eval"


RESUME = """\
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
init_from = "scratch"
out_dir = "out"
exec(open("configurator.py").read())
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.Linear(4, 4)
if init_from == "scratch":
    print("from scratch")
elif init_from == "resume":
    LOADED
elif init_from.startswith("gpt2"):
    OTHERS
net.cuda()
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(torch.randn(8, 4).cuda()).sum().backward()
    opt.step()
    opt.zero_grad()
    if rank == 0:
        torch.save({"model": SAVED}, os.path.join(out_dir, "ckpt.pt"))
dist.destroy_process_group()
"""
LOAD = 'checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location="cpu")\n    net.load_state_dict(checkpoint["model"])'
BEHIND = {
    "map_location": (LOAD.replace(', map_location="cpu"', ""), "pass", "model.module.state_dict()", "DDP603", "resume"),
    "module.": (LOAD.replace('["model"])', '["model"], strict=False)'), "pass", "model.state_dict()", "DDP703", "resume"),
    "a barrier": (f"if rank:\n        dist.barrier()\n    {LOAD}", "pass", "model.module.state_dict()", "DDP201", "resume"),
    "a barrier of the third": ("pass", "if rank:\n        dist.barrier()", "model.module.state_dict()", "DDP201", "gpt2"),
}


@pytest.mark.parametrize("form", BEHIND)
def test_an_option_that_is_compared_is_named_with_what_it_is_compared_with(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded, others, saved, code, value = BEHIND[form]
    text = RESUME.replace("LOADED", loaded).replace("OTHERS", others).replace("SAVED", saved)
    context = audited(tmp_path, text, {"configurator.py": "import sys\n"})
    (finding,) = findings(code, context)
    assert finding.option is not None and (finding.option.name, finding.option.value) == ("init_from", value)
    assert finding.message.startswith(f"If `init_from` is {value!r} (default: 'scratch'): ")


def test_the_right_way_behind_an_option_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = RESUME.replace("LOADED", LOAD).replace("OTHERS", "dist.barrier()").replace("SAVED", "model.module.state_dict()")
    context = audited(tmp_path, text, {"configurator.py": "import sys\n"})
    assert [f for code in ("DDP201", "DDP603", "DDP703") for f in findings(code, context, "possible")] == []
