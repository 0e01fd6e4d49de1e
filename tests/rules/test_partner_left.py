"""DDP210 where the partner's process has ended: gloo raises in the call, so that no rank stands in it any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import rules
from test_data_and_device_runs import finding_in, torchrun

from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

pytest.importorskip("torch")

HEAD = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.zeros(1_000_000)
"""


@pytest.mark.parametrize(
    "text",
    ["dist.barrier()\nif dist.get_rank() == 1:\n    dist.recv(value, 0)\n", "if dist.get_rank() == 0:\n    dist.send(value, 1)\n"],
    ids=["recv", "send"],
)
def test_a_message_whose_partner_has_left_is_confirmed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(HEAD + text)
    torchrun(tmp_path, "-m", "ddp_audit.trace", "--directory", "traced", "train.py", code=1)
    finding = finding_in("DDP210", tmp_path, monkeypatch, HEAD + text)
    assert rules()["DDP210"].verify(finding, load_run(tmp_path / "traced")) == "confirmed"
