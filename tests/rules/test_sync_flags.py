"""The flag require_backward_grad_sync in all its places: the next forward of the wrapper reads it, wherever it is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import os, contextlib, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
bare = torch.nn.Linear(4, 4)
model = DDP(bare)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
a = 4
batches = [torch.randn(8, 4) for _ in range(16)]
"""
NESTED = """\
for it in range(5):
    for micro in range(a):
        x = torch.randn(8, 4)
        FIRST
        loss = model(x).pow(2).mean() / a
        loss.backward()
        LAST
    opt.step(); opt.zero_grad()
    END
dist.destroy_process_group()
"""
FLAT = """\
for i, x in enumerate(batches):
    loss = model(x).pow(2).mean() / a
    loss.backward()
    LAST
    if (i + 1) % a == 0:
        opt.step(); opt.zero_grad()
    END
dist.destroy_process_group()
"""
SET = "model.require_backward_grad_sync = "


def nested(first: str = "pass", last: str = "pass", end: str = "pass") -> str:
    return HEAD + NESTED.replace("FIRST", first).replace("LAST", last).replace("END", end)


def flat(last: str = "pass", end: str = "pass") -> str:
    return HEAD + FLAT.replace("LAST", last).replace("END", end)


HELPER = "def sync(m, on):\n    m.require_backward_grad_sync = on\n"
CLASS = """\
class Trainer:
    def __init__(self, model):
        self.model = model
    def train(self):
        for it in range(5):
            for micro in range(a):
                self.model(torch.randn(8, 4)).pow(2).mean().div(a).backward()
                self.model.require_backward_grad_sync = WHEN
            opt.step(); opt.zero_grad()
Trainer(model).train()
"""
WRONG = {
    "after the backward": nested(last=f"{SET}micro == a - 1"),
    "negated": nested(last=f"{SET}not micro < a - 1"),
    "ternary": nested(last=f"{SET}True if micro == a - 1 else False"),
    "setattr": nested(last='setattr(model, "require_backward_grad_sync", micro == a - 1)'),
    "helper": HELPER + nested(last="sync(model, micro == a - 1)"),
    "kept in a variable": nested(last=f"last = micro == a - 1; {SET}last"),
    "class": HEAD + CLASS.replace("WHEN", "micro == a - 1"),
    "before, with a forward of the bare module": nested("bare(x)", f"{SET}micro == a - 1"),
    "one loop": flat(f"{SET}(i + 1) % a == 0"),
    "one loop, after the step": flat(end=f"{SET}(i + 1) % a == 0"),
    "end of the outer loop": nested(end=f"{SET}it % 2 == 0"),
    "switched off for good": nested(last=f"{SET}False"),
}
RIGHT = {
    "before the forward": nested(f"{SET}micro == a - 1"),
    "one ahead": nested(last=f"{SET}micro == a - 2"),
    "one ahead, setattr": nested(last='setattr(model, "require_backward_grad_sync", micro + 2 == a)'),
    "one ahead, helper": HELPER + nested(last="sync(model, micro == a - 2)"),
    "one ahead, class": HEAD + CLASS.replace("WHEN", "micro == a - 2"),
    "one ahead, one loop": flat(f"{SET}(i + 2) % a == 0"),
    "one ahead, after the step": flat(end=f"{SET}(i + 2) % a == 0"),
    "on for all": nested(last=f"{SET}True"),
    "exit stack": HEAD
    + """\
for it in range(5):
    for micro in range(a):
        with contextlib.ExitStack() as stack:
            if micro < a - 1:
                stack.enter_context(model.no_sync())
            (model(torch.randn(8, 4)).pow(2).mean() / a).backward()
    opt.step(); opt.zero_grad()
""",
}


def _found(text: str) -> dict[str, str]:
    Path("train.py").write_text(text)
    return {f.code: f.message for f in audit(["train.py"], Options()).findings if f.severity != "info" or f.code == "DDP114"}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", WRONG)
def test_a_flag_that_comes_too_late_is_an_error(form: str) -> None:
    found = _found(WRONG[form])
    assert set(found) & {"DDP105", "DDP112"} and "correct today" not in found.get("DDP114", "")


@pytest.mark.parametrize("form", RIGHT)
def test_a_flag_in_time_is_an_info_at_most(form: str) -> None:
    assert set(_found(RIGHT[form])) <= {"DDP114"}


def test_the_forward_that_reads_the_flag_is_the_next_one_of_the_wrapper() -> None:
    text = nested(last=f"{SET}micro == a - 2", end="bare(x)")
    [message] = [m for code, m in _found(text).items() if code == "DDP114"]
    line = 1 + text[: text.index("model(x)")].count("\n")
    assert f"after the forward of line {line}" in message and "before the forward" not in message
