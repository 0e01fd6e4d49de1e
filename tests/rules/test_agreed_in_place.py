"""Ranks that agree on a tensor in place, by another name than the one that is asked afterwards (DDP203), and some that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
{helpers}
def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4)).sum()
        loss.backward()
        optimizer.step()
        {decision}
            break
    dist.destroy_process_group()
main()
"""
AGREED = {
    "a_keyword": (
        "def agree(*, flag):\n    dist.all_reduce(flag, op=dist.ReduceOp.MAX)",
        "stop = torch.tensor([int(loss.item() < 0)])\n        agree(flag=stop)\n        if stop.item():",
    ),
    "a_call_in_a_call": (
        "def send(x):\n    dist.broadcast(x, 0)\ndef outer(value, n=1):\n    if n > 0:\n        send(value)",
        "stop = (loss < 0).float()\n        outer(stop)\n        if stop.item() > 0:",
    ),
    "an_asynchronous_method": (
        "class Sync:\n    def run(self, t):\n        work = dist.all_reduce(t, async_op=True)\n        work.wait()",
        "m = loss.detach().clone()\n        Sync().run(m)\n        if m.item() < 0:",
    ),
    "where_there_is_a_group": (
        "def agree(t):\n    if dist.is_initialized():\n        dist.all_reduce(t)",
        "m = loss.detach().clone()\n        agree(m)\n        if m.item() < 0:",
    ),
    "a_list": (
        "def agree(tensors):\n    for t in tensors:\n        dist.all_reduce(t)",
        "a = loss.detach().clone()\n        b = torch.ones(1) * loss.item()\n        agree([a, b])\n        if a < 0 and b < 3:",
    ),
    "many_arguments": (
        "def agree(*tensors):\n    for t in tensors:\n        dist.all_reduce(t)",
        "a = loss.detach().clone()\n        agree(a)\n        if a < 0:",
    ),
    "values_of_a_dict": (
        "def agree(d):\n    for _, v in d.items():\n        dist.all_reduce(v)",
        "d = {'loss': loss.detach().clone()}\n        agree(d)\n        if d['loss'].item() < 0:",
    ),
    "a_dict_by_its_keys": (
        "def agree(d):\n    for k in d:\n        dist.all_reduce(d[k])",
        "d = {'loss': loss.detach().clone()}\n        agree(d)\n        if d['loss'].item() < 0:",
    ),
    "a_view": ("", "a = loss.detach().clone()\n        v = a.view(-1)\n        dist.all_reduce(v)\n        if a.item() < 0:"),
    "its_data": ("", "a = loss.clone()\n        dist.all_reduce(a.data)\n        if a.item() < 0:"),
    "an_attribute": (
        "class State: pass\ndef agree(s):\n    dist.all_reduce(s.total)",
        "s = State()\n        s.total = loss.detach().clone()\n        agree(s)\n        if s.total.item() < 0:",
    ),
    "a_list_of_objects": (
        "def share(box):\n    dist.broadcast_object_list(box, src=0)",
        "box = [loss.item() < 0]\n        share(box)\n        if box[0]:",
    ),
    "a_gathered_list": (
        "def collect(out, x):\n    dist.all_gather(out, x)",
        "out = [torch.zeros(()) for _ in range(dist.get_world_size())]\n        collect(out, loss.detach())\n"
        "        if sum(o.item() for o in out) < 0:",
    ),
    "a_copy_that_is_put_back": (
        "",
        "a = loss.detach().clone()\n        b = a.clone()\n        dist.all_reduce(b)\n        a.copy_(b)\n        if a.item() < 0:",
    ),
    "tensors_and_numbers": (
        "",
        "a, b = loss.detach().clone(), loss.detach() * 2\n        for t, n in zip([a, b], [1, 2]):\n"
        "            dist.all_reduce(t)\n        if a < b:",
    ),
    "a_lambda": ("agree = lambda t: dist.all_reduce(t)", "a = loss.detach().clone()\n        agree(a)\n        if a.item() < 0:"),
}
NOT_AGREED = {
    "a_list_that_is_gone": (
        "def agree(found):\n    dist.broadcast_object_list(found, src=0)",
        "stop = loss.item() < 0\n        agree([stop])\n        if stop:",
    ),
    "a_copy": (
        "def agree(t):\n    t = t.clone()\n    dist.all_reduce(t)",
        "a = loss.detach() * 2\n        agree(a)\n        if a.item() < 0:",
    ),
    "a_new_value": (
        "def agree(t):\n    t = t + 0\n    dist.all_reduce(t)",
        "a = loss.detach() * 2\n        agree(a)\n        if a.item() < 0:",
    ),
    "another_argument": (
        "def agree(t, u):\n    dist.all_reduce(u)",
        "a = loss.detach().clone()\n        b = loss.detach().clone()\n        agree(a, b)\n        if a.item() < 0:",
    ),
    "the_result_is_dropped": (
        "def agree(t):\n    x = t * 1\n    dist.all_reduce(x)\n    return x",
        "a = loss.detach() * 2\n        agree(a)\n        if a.item() < 0:",
    ),
    "written_again_afterwards": (
        "def agree(t):\n    dist.all_reduce(t)",
        "a = loss.detach() * 2\n        agree(a)\n        a = loss.detach() * 3\n        if a.item() < 0:",
    ),
    "put_into_a_part": (
        "",
        "a = torch.stack([loss.detach(), loss.detach() * 2])\n        b = loss.detach() * 3\n        dist.all_reduce(b)\n"
        "        a[0].copy_(b)\n        if a.sum() < 0:",
    ),
    "put_into_a_copy": (
        "",
        "a = loss.detach() * 2\n        b = loss.detach() * 3\n        dist.all_reduce(b)\n        c = a.clone()\n"
        "        c.copy_(b)\n        if a.item() < 0:",
    ),
    "an_own_value_is_put_in": (
        "",
        "a = loss.detach() * 2\n        b = loss.detach() * 3\n        a.copy_(b)\n        if a.item() < 0:",
    ),
    "another_element_of_a_list_in_a_list": (
        "def agree(groups):\n    dist.all_reduce(groups[0][1])",
        "g = [[loss.detach() * 2, loss.detach() * 3]]\n        agree(g)\n        if g[0][0].item() < 0:",
    ),
    "copies_in_lists_in_a_list": (
        "def agree(groups):\n    for group in groups:\n        for t in group:\n            t = t * 2\n            dist.all_reduce(t)",
        "a = loss.detach().clone()\n        agree([[a], [torch.ones(1)]])\n        if a.item() < 0:",
    ),
    "a_slice": (
        "def agree(t):\n    dist.all_reduce(t)",
        "a = torch.stack([loss.detach(), loss.detach() * 2])\n        agree(a[0])\n        if a[1].item() < 0:",
    ),
    "before_the_loop_ends": (
        "def agree(tensors):\n    for t in tensors:\n        if t.ndim:\n            break\n        dist.all_reduce(t)",
        "a = loss.detach() * 2\n        agree([a])\n        if a.item() < 0:",
    ),
}


def told(folder: Path, helpers: str, decision: str) -> set[str]:
    """The codes of the findings of level error."""
    (folder / "train.py").write_text(TRAIN.format(helpers=helpers, decision=decision))
    result = audit([str(folder / "train.py")], Options(launch="torchrun --nproc-per-node 2 train.py"))
    assert not result.errors
    return {finding.code for finding in result.findings if finding.severity == "error"}


@pytest.mark.parametrize("form", AGREED)
def test_a_tensor_that_was_reduced_by_another_name_is_equal_on_all_ranks(tmp_path: Path, form: str) -> None:
    assert told(tmp_path, *AGREED[form]) == set()


@pytest.mark.parametrize("form", NOT_AGREED)
def test_a_tensor_that_was_not_reduced_stays_a_decision_of_each_rank(tmp_path: Path, form: str) -> None:
    assert told(tmp_path, *NOT_AGREED[form]) == {"DDP203"}


LOADER = """\
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def make_loader(args, data):
    if {test}:
        return DataLoader(data, batch_size=4, shuffle=True)
    return DataLoader(data, batch_size=4, sampler=DistributedSampler(data))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--debug", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = make_loader(args, TensorDataset(torch.randn(64, 4)))
    for x, in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
main()
"""


@pytest.mark.parametrize(("test", "expected"), [("args.debug", set()), ("not args.debug", {"DDP301"}), ("data.part", {"DDP301"})])
def test_what_is_returned_for_an_option_alone_is_no_error_of_the_run_without_it(
    tmp_path: Path, test: str, expected: set[str]
) -> None:
    (tmp_path / "train.py").write_text(LOADER.format(test=test))
    result = audit([str(tmp_path / "train.py")], Options(launch="torchrun --nproc-per-node 2 train.py"))
    assert {finding.code for finding in result.findings if finding.severity == "error"} == expected
