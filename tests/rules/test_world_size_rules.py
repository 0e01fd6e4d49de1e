"""DDP501, DDP503 and DDP507 on more shapes of their hazards and of what looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import rules

from ddp_audit.audit import Options, audit
from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import DEVICE, Event, Site
from ddp_audit.findings import Finding

HEAD = """\
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
parser = argparse.ArgumentParser()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")
    return tmp_path


def check(code: str, text: str, documents: dict[str, str] | None = None, **options: object) -> list[Finding]:
    for name, content in {"train.py": HEAD + text, **(documents or {})}.items():
        Path(name).write_text(content)
    result = audit(["train.py"], Options(select=[code], **options))  # type: ignore[arg-type]
    assert not result.errors
    return result.findings


USE = "args = parser.parse_args()\ndist.init_process_group('nccl')\ntorch.cuda.set_device({rank})\n"
RANK = 'parser.add_argument("--local_rank", type=int, default={})\n'

LEGACY = [
    # program, documents, severity or None, part of the message
    (RANK.format(0) + USE.format(rank="args.local_rank"), {}, "warning", "stays 0, so all ranks of a node use device 0"),
    (RANK.format(-1) + USE.format(rank="args.local_rank"), {}, "warning", "stays -1, and every process"),
    (RANK.format(None) + USE.format(rank="args.local_rank"), {}, "warning", "stays None in every process"),
    ('parser.add_argument("--local_rank", type=int, required=True)\n' + USE.format(rank="args.local_rank"), {}, "warning", "the parser ends"),
    (RANK.format(0) + USE.format(rank="vars(args)['local_rank']"), {}, "warning", "device 0"),
    (RANK.format(0) + USE.format(rank="args.local_rank"), {"run.sh": "torchrun --nproc_per_node=2 train.py\n"}, "warning", "torchrun (run.sh:1) does not pass"),
    (RANK.format(0) + USE.format(rank="dist.get_rank()"), {}, "info", "nothing here reads it"),
    (RANK.format(0) + USE.format(rank="args.local_rank").replace("dist.init", "args.local_rank = dist.get_rank() % 8\ndist.init"), {}, "info", "sets the value itself"),
    (RANK.format("int(os.environ['LOCAL_RANK'])") + USE.format(rank="args.local_rank"), {}, None, ""),
    (RANK.format(0) + USE.format(rank="int(os.environ.get('LOCAL_RANK', args.local_rank))"), {}, None, ""),
    (RANK.format(0) + USE.format(rank="args.local_rank"), {"run.sh": "torchrun --nproc_per_node=2 train.py --local_rank=0\n"}, None, ""),
    ("import deepspeed\n" + RANK.format(0) + USE.format(rank="args.local_rank"), {}, None, ""),
    (RANK.format(0).replace('"--local_rank"', '"--local_rank", "--local-rank"') + USE.format(rank="args.local_rank"),
     {"run.sh": "python -m torch.distributed.launch --nproc_per_node=2 train.py\n"}, None, ""),
    (RANK.format(0) + USE.format(rank="args.local_rank"),
     {"run.sh": "python -m torch.distributed.launch --nproc_per_node=2 train.py\n"}, "warning", "torchrun does not pass"),
    ("parser.add_argument('--rank', type=int)\n" + USE.format(rank="int(os.environ['LOCAL_RANK'])"), {}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("program", "documents", "severity", "part"), LEGACY)
def test_legacy_local_rank_argument(program: str, documents: dict[str, str], severity: str | None, part: str) -> None:
    found = check("DDP507", program, documents)
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all(part in finding.message for finding in found)


SETUP = """\
args = argparse.Namespace(epochs=2, max_steps=100)
dist.init_process_group("gloo")
world_size = dist.get_world_size()
data = TensorDataset(torch.zeros(64, 4))
sampler = DistributedSampler(data)
{before}
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
sched = {schedule}
for epoch in range(2):
    for (rows,) in loader:
        model(rows).mean().backward()
        optimizer.step()
        {step}sched.step()
"""
TORCH = "torch.optim.lr_scheduler."

SCHEDULES = [
    # before the loader, the scheduler, part of the message or None
    ("", TORCH + "CosineAnnealingLR(optimizer, len(data) // 4 * 2)", "T_max counts the batches of the whole data (len(data))"),
    ("", TORCH + "OneCycleLR(optimizer, 0.1, total_steps=2 * len(data) // 4)", "total_steps counts the batches of the whole data"),
    ("", TORCH + "OneCycleLR(optimizer, 0.1, epochs=2, steps_per_epoch=len(data) // 4)", "steps_per_epoch counts"),
    ("whole = DataLoader(data, batch_size=4)", TORCH + "CosineAnnealingLR(optimizer, 2 * len(whole))", "(len(whole))"),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(loader) * world_size)", "multiplies the steps"),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(loader) // world_size)", "by the world size again"),
    ("", "__import__('transformers').get_scheduler('linear', optimizer, 0, 7)", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(loader))", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(data) // (4 * world_size))", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(data) // 4 // dist.get_world_size())", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, 2 * len(sampler) // 4)", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, args.max_steps)", None),
    ("", TORCH + "CosineAnnealingLR(optimizer, 100)", None),
    ("", TORCH + "StepLR(optimizer, 100)", None),
]  # fmt: skip


@pytest.mark.parametrize(("before", "schedule", "part"), SCHEDULES)
def test_schedule_ignores_world(before: str, schedule: str, part: str | None) -> None:
    found = check("DDP503", SETUP.format(before=before, schedule=schedule, step=""))
    assert [(part or "") in finding.message for finding in found] == ([] if part is None else [True])


def test_a_schedule_that_is_not_stepped_by_batch_is_quiet() -> None:
    program = SETUP.format(before="", schedule=TORCH + "CosineAnnealingLR(optimizer, len(data) // 4)", step="pass\n    ")
    assert check("DDP503", program) == []
    unshared = SETUP.format(before="", schedule=TORCH + "CosineAnnealingLR(optimizer, len(data) // 4)", step="").replace(
        ", sampler=sampler", ""
    )
    assert check("DDP503", unshared) == []


ACCELERATED = """\
from accelerate import Accelerator
from transformers import get_scheduler
accelerator = Accelerator({options})
data = TensorDataset(torch.zeros(64, 4))
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
max_steps = 100
{early}
sched = get_scheduler("cosine", optimizer, 0, num_training_steps={steps})
model, optimizer, {prepared} = accelerator.prepare(model, optimizer, {prepared})
for (rows,) in loader:
    accelerator.backward(model(rows).mean())
    optimizer.step()
    sched.step()
"""
PREPARED = [
    ({"steps": "max_steps"}, True),
    ({"steps": "2 * max_steps"}, True),
    ({"steps": "max_steps * accelerator.num_processes"}, False),
    ({"steps": "len(loader) * 2"}, False),
    ({"steps": "len(loader) * 2", "early": "loader = accelerator.prepare(loader)", "prepared": "sched"}, False),
    ({"steps": "max_steps", "options": "split_batches=True"}, False),
    ({"steps": "max_steps", "options": "step_scheduler_with_optimizer=False"}, False),
    ({"steps": "max_steps", "prepared": "loader"}, False),
]


@pytest.mark.parametrize(("words", "found"), PREPARED)
def test_a_prepared_scheduler_of_accelerate(words: dict[str, str], found: bool) -> None:
    program = ACCELERATED.format(**({"options": "", "early": "", "prepared": "loader, sched"} | words))
    findings = check("DDP503", program)
    assert len(findings) == int(found)
    assert all("steps the scheduler once a process" in finding.message for finding in findings)
    assert all(finding.fix is not None and "by num_processes" in finding.fix.description for finding in findings)


DEVICES = "num_gpus = 4\nglobal_batch = 64\nmicro = 4\n{count}\ndist.init_process_group('gloo')\n"
FIXED = [
    # the division, options of the audit, part of the message or None
    ("per_gpu = global_batch // num_gpus", {}, "on 8 processes an update has 128."),
    ("per_gpu = global_batch // num_gpus", {"world_size": 2}, "on 2 processes an update has 32."),
    ("per_gpu = global_batch // num_gpus", {"world_size": 4}, None),
    ("per_gpu = global_batch // dist.get_world_size()", {}, None),
    ("per_gpu = global_batch // micro", {}, None),
    ("hidden = micro // num_gpus", {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("count", "options", "part"), FIXED)
def test_a_number_of_devices_in_the_source(count: str, options: dict[str, object], part: str | None) -> None:
    found = check("DDP501", DEVICES.format(count=count), **options)
    assert [(part or "") in finding.message for finding in found] == ([] if part is None else [True])
    assert all(finding.severity == "info" and finding.span.line == 8 for finding in found)


COUNTED = """\
parser.add_argument("--accum", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
dist.init_process_group("gloo")
"""
LAUNCHES = [
    ("torchrun --nproc_per_node=2 train.py\ntorchrun --nproc_per_node=8 train.py\n", "", True),
    ("torchrun --nproc_per_node=2 train.py --accum 8\ntorchrun --nproc_per_node=8 train.py --accum 2\n", "", False),
    ("torchrun --nproc_per_node=2 train.py\ntorchrun --nproc_per_node=gpu train.py\n", "", False),
    ("torchrun --nproc_per_node=2 train.py --accum 8\ntorchrun --nproc_per_node=8 train.py --accum 8\n", "per_rank = args.accum // dist.get_world_size()\n", False),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "division", "found"), LAUNCHES)
def test_documented_launches_with_equal_arguments(commands: str, division: str, found: bool) -> None:
    findings = check("DDP501", COUNTED + division, {"run.sh": commands})
    assert len(findings) == int(found)
    for finding in findings:
        assert (finding.span.path, finding.span.line) == ("run.sh", 2)
        assert "16 samples an update (2 processes), this launch with 64 (8): accum is already per process" in finding.message


RATES = [
    ("global_batch // world", "lr=0.1 * world", "SGD", True),
    ("global_batch // world", "lr=0.1 * world", "AdamW", False),
    ("global_batch // world", "lr=0.1", "SGD", False),
    ("8", "lr=0.1 * world", "SGD", False),
    ("global_batch // world", "lr=0.1 * global_batch / 256", "SGD", False),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "rate", "optimizer", "found"), RATES)
def test_a_rate_that_grows_with_the_processes(batch: str, rate: str, optimizer: str, found: bool) -> None:
    program = (
        "dist.init_process_group('gloo')\nworld = dist.get_world_size()\nglobal_batch = 64\nmodel = DDP(torch.nn.Linear(4, 1))\n"
        f"loader = DataLoader(TensorDataset(torch.zeros(64, 4)), batch_size={batch})\n"
        f"optimizer = torch.optim.{optimizer}(model.parameters(), {rate})\n"
    )
    findings = check("DDP501", program)
    assert ["grows with the number of processes" in finding.message for finding in findings] == ([True] if found else [])


def recorded(*devices: int | None) -> RecordedRun:
    """A run in which each rank chose the device given for it, or none."""
    run = RecordedRun(len(devices))
    for rank, index in enumerate(devices):
        events = [] if index is None else [Event(DEVICE, site=Site("train.py", 9), detail={"index": index})]
        run.ranks[rank] = RankRun(rank, events, EXITED, 0)
    return run


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (recorded(0, 0), "not-exercised"),  # each may see one GPU alone
        (recorded(0, 1), "not-observed"),
        (recorded(0), "not-exercised"),
        (recorded(None, None), "not-exercised"),
    ],
)
def test_verdict_on_a_legacy_local_rank_argument(run: RecordedRun, verdict: str) -> None:
    (finding,) = check("DDP507", RANK.format(0) + USE.format(rank="args.local_rank"))
    assert rules()["DDP507"].verify(finding, run) == verdict
