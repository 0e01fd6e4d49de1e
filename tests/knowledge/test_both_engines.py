"""What one engine knew and the other did not is known to both, since they read the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cli import main

START = """\
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def audit(capsys: pytest.CaptureFixture[str], body: str) -> dict[str, Any]:
    Path("train.py").write_text(START + body + "dist.destroy_process_group()\n")
    main(["check", "--format", "json", "--explain-run", "train.py"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


STEPS = """\
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    with model.no_sync():
        loss = model(torch.randn(8, 4)).pow(2).mean()
        {}
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "backward",
    [
        "loss.backward()",
        "torch.autograd.backward(loss)",
        "torch.autograd.backward([loss])",
        "torch.autograd.backward((loss, loss.detach()))",
        "torch.autograd.backward(tensors=loss)",
    ],
)
def test_a_backward_is_one_however_it_is_called(backward: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = audit(capsys, STEPS.format(backward))
    assert [(f["line"], f["code"]) for f in document["findings"] if f["severity"] == "error"] == [(13, "DDP105")]


@pytest.mark.parametrize("name", ["resnet50", "segmentation.deeplabv3_resnet50", "detection.fasterrcnn_mobilenet_v3_large_fpn"])
def test_a_model_with_batchnorm_is_one_wherever_it_stands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    body = f"model = DDP(torchvision.models.{name}())\nif dist.get_rank() == 0:\n    model(torch.ones(1, 3, 8, 8))\n"
    document = audit(capsys, body)
    assert (9, "DDP401") in [(f["line"], f["code"]) for f in document["findings"]]


def test_a_model_without_batchnorm_has_no_buffers(capsys: pytest.CaptureFixture[str]) -> None:
    body = "model = DDP(torchvision.models.vit_b_16())\nif dist.get_rank() == 0:\n    model(torch.ones(1, 3, 8, 8))\n"
    assert "DDP401" not in {f["code"] for f in audit(capsys, body)["findings"] if f["severity"] == "error"}
