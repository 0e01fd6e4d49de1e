"""Functions of training frameworks that are collective, and methods that are where parameters are sharded (DDP202)."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings

ACCELERATE = """\
import torch
from accelerate import {imported}
{more}
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
rows = []
for step in range(4):
    loss = model(torch.randn(8, 4)).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    rows.append(loss.item())
    {guard}
        {call}
"""
CALLS = [
    ("from accelerate.utils import gather_object", "rows = gather_object(rows)"),
    ("from accelerate.utils import gather as collect", "print(collect(loss))"),
    ("import accelerate.utils", "accelerate.utils.broadcast_object_list(rows)"),
    ("from accelerate import utils", "print(utils.reduce(loss))"),
    ("from accelerate.utils.operations import gather_object", "print(len(gather_object([step])))"),
    ("from accelerate.utils import wait_for_everyone", "wait_for_everyone()"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def accelerated(guard: str, call: str, more: str = "", imported: str = "Accelerator") -> str:
    return ACCELERATE.format(guard=guard, call=call, more=more, imported=imported)


@pytest.mark.parametrize(("more", "call"), CALLS)
def test_functions_of_accelerate(more: str, call: str, tmp_path: Path) -> None:
    alone = audited(tmp_path, accelerated("if accelerator.is_main_process:", call, more))
    assert [finding.severity for finding in findings("DDP202", alone)] == ["error"]
    together = audited(tmp_path, accelerated("if step % 2 == 0:", call, more))
    assert findings("DDP202", together) == []


@pytest.mark.parametrize(
    ("imported", "more"),
    [
        ("Accelerator, DeepSpeedPlugin", ""),
        ("Accelerator", "import deepspeed"),
        ("Accelerator, FullyShardedDataParallelPlugin", "from torch.distributed.fsdp import ShardingStrategy"),
    ],
)
def test_a_state_that_is_sharded(imported: str, more: str, tmp_path: Path) -> None:
    call = "accelerator.save_state('state')"
    text = accelerated("if accelerator.is_main_process:", call, more, imported)
    (finding,) = findings("DDP202", audited(tmp_path, text))
    assert finding.severity == "warning" and finding.message.startswith("Where the parameters are sharded: ")
    plain = accelerated("if accelerator.is_main_process:", call)
    assert findings("DDP202", audited(tmp_path, plain)) == []  # each process saves by itself with DDP
    assert findings("DDP202", audited(tmp_path, accelerated("if step == 2:", call, more, imported))) == []


RAY = """\
import torch
import ray.train
from ray import train
from ray.train import report
from ray.train.torch import TorchTrainer, prepare_model

def fit(config):
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = ray.train.get_context().get_world_rank()
    for epoch in range(3):
        loss = model(torch.randn(8, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        GUARD
            CALL({"loss": loss.item()})

TorchTrainer(fit, scaling_config=None).fit()
"""


@pytest.mark.parametrize("call", ["ray.train.report", "train.report", "report"])
@pytest.mark.parametrize(("guard", "count"), [("if rank == 0:", 1), ("if epoch == 2:", 0), ("if True:", 0)])
def test_reports_to_ray(call: str, guard: str, count: int, tmp_path: Path) -> None:
    assert len(findings("DDP202", audited(tmp_path, RAY.replace("GUARD", guard).replace("CALL", call)))) == count
