"""Switches of synchronisation that are on for some ranks only, in the forms that a script can give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import contextlib, os, random, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
a = 4
for it in range(5):
    for micro in range(a):
        x = torch.randn(8, 4)
"""
TAIL = """\
    opt.step(); opt.zero_grad()
dist.destroy_process_group()
"""
TRAIN = "model(x).pow(2).mean().div(a).backward()\n"
SET = "model.require_backward_grad_sync = "


def _flag(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines) + f"        {TRAIN}" + TAIL


def _block(context: str) -> str:
    return HEAD + f"        with {context}:\n            {TRAIN}" + TAIL


PARTED = {
    "ternary": _flag(f"{SET}micro == a - 1 if rank == 0 else True"),
    "or": _flag(f"{SET}(micro == a - 1) | (rank > 0)"),
    "and": _flag(f"{SET}micro == a - 1 and not rank"),
    "shifted by the rank": _flag(f"{SET}micro == a - 1 - rank"),
    "position against the rank": _flag(f"{SET}micro % world == rank"),
    "in a variable": _flag("last = micro == a - 1", "mine = last or rank == world - 1", f"{SET}mine"),
    "environment": _flag(f'{SET}micro == a - 1 or os.environ["RANK"] != "0"'),
    "setattr": _flag('setattr(model, "require_backward_grad_sync", micro == a - 1 or rank != 0)'),
    "set again on one rank": _flag(f"{SET}micro == a - 1", "if rank:", f"    {SET}True"),
    "two arms": _flag("if rank == 0:", f"    {SET}micro == a - 1", "else:", f"    {SET}micro >= a - 2"),
    "block on one rank": _block("model.no_sync() if micro < a - 1 and rank == 0 else contextlib.nullcontext()"),
    "block by rank in a helper": HEAD.replace(
        "for it", "def context(m):\n    return model.no_sync() if m < a - 1 and rank else contextlib.nullcontext()\nfor it"
    )
    + f"        with context(micro):\n            {TRAIN}"
    + TAIL,
    "one arm in a block": HEAD
    + f"        if rank == 0 and micro < a - 1:\n            with model.no_sync():\n                {TRAIN}"
    + f"        else:\n            {TRAIN}"
    + TAIL,
}
ALIKE = {
    "last": _flag(f"{SET}micro == a - 1"),
    "same on all ranks": _flag(f"{SET}micro == a - 1 or rank >= world"),
    "world size": _flag(f"{SET}micro == a - 1 or world == 1"),
    "same in both arms": _flag("if rank == 0:", f"    {SET}micro == a - 1", "else:", f"    {SET}micro + 1 == a"),
    "printed by one rank": _flag(f"{SET}micro == a - 1", "if rank == 0:", "    print(micro)"),
    "block": _block("model.no_sync() if micro < a - 1 else contextlib.nullcontext()"),
    "reduced first": _flag("total = x.sum()", "dist.all_reduce(total)", f"{SET}bool(total.item() > 0) or micro == a - 1"),
    "the last of each rank's own number": _flag(f"{SET}micro == a - 1").replace("a = 4", "a = 4 + rank"),
    "in an epoch of all": _flag(f"{SET}micro == a - 1 or it == 0"),
}


def _found(text: str) -> dict[str, str]:
    Path("train.py").write_text(text)
    return {f.code: f.severity for f in audit(["train.py"], Options()).findings}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", PARTED)
def test_a_switch_of_some_ranks_is_an_error(form: str) -> None:
    found = _found(PARTED[form])
    assert found.get("DDP120") == "error" and "DDP114" not in found


@pytest.mark.parametrize("form", ALIKE)
def test_a_switch_that_is_equal_on_all_ranks_is_none(form: str) -> None:
    assert "DDP120" not in _found(ALIKE[form])


def test_a_switch_by_the_loss_of_a_rank_is_a_warning() -> None:
    text = _flag("loss = model(x).pow(2).mean()", f"{SET}bool(loss.item() < 1)")
    assert _found(text).get("DDP120") == "warning"


def test_a_flag_that_is_always_on_costs_its_traffic() -> None:
    for value in ("True", "micro >= 0", "micro < a", "not micro < 0"):
        found = _found(_flag(f"{SET}{value}"))
        assert "DDP119" in found and "DDP114" not in found, value
    assert "DDP119" not in _found(_flag(f"{SET}micro < a - 1"))


def test_a_flag_that_is_one_ahead_is_right_before_the_backward_too() -> None:
    body = ("loss = model(x).pow(2).mean() / a", f"{SET}micro == a - 2", "loss.backward()", "#")
    text = HEAD + "".join(f"        {line}\n" for line in body) + TAIL
    assert {code for code in _found(text) if code in ("DDP105", "DDP112", "DDP114")} == {"DDP114"}
    for count, codes in ((2, {"DDP114"}), (1, {"DDP112"})):
        found = _found(text.replace("a = 4", f"a = {count}"))
        assert {code for code in found if code in ("DDP105", "DDP112", "DDP114")} == codes, count


def test_an_option_with_which_alone_a_step_is_wrong_is_named() -> None:
    text = HEAD.replace(
        "a = 4", 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--a", type=int, default=8)\na = p.parse_args().a'
    )
    text += f"        {TRAIN}        {SET}micro == a - 2\n" + TAIL
    Path("train.py").write_text(text)
    [finding] = [f for f in audit(["train.py"], Options()).findings if f.code == "DDP105"]
    assert finding.severity == "warning" and finding.option is not None
    assert (finding.option.name, finding.option.default, finding.option.value) == ("a", 8, 1)
