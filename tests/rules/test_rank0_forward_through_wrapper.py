"""DDP401 on programs in several styles, on look-alikes, and on two real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding
from ddp_audit.program import lower
from ddp_audit.rule import Context
from ddp_audit.source.project import Project
from ddp_audit_rules.buffers.rank0_forward_through_wrapper import Rank0ForwardThroughWrapper

HEAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.register_buffer("mask", torch.ones(4))

    def forward(self, x):
        return self.layer(x * self.mask)

dist.init_process_group("gloo")
rank = dist.get_rank()
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
{before}
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{after}
"""
LONE = "    if rank == 0:\n        with torch.no_grad():\n            model(torch.ones(8, 4))"


def findings(folder: Path, text: str) -> list[Finding]:
    """What the rule says of a script of this text."""
    script = folder / "script.py"
    script.write_text(text)
    project = Project([script])
    return list(Rank0ForwardThroughWrapper().check(Context(lower(project, project.entries[0]))))


def trained(wrap: str, before: str = "    pass", after: str = "    pass", top: str = "") -> str:
    """A training script with something before or after its steps."""
    return HEAD + top + wrap + LOOP.format(before=before, after=after)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (trained("model = DDP(Masked())", after=LONE), "error"),
        (trained("model = DDP(Masked())", after=LONE + "\n    dist.barrier()"), "error"),
        (
            trained("model = DDP(Masked())", before="    if step % every == 0 and rank == 0:\n        with torch.no_grad():\n"
                    "            model(torch.ones(8, 4))", top="import sys\nevery = len(sys.argv)\n"),
            "warning",
        ),
        (
            trained("model = DDP(Masked())", after="    evaluate(model)", top="@torch.inference_mode()\ndef evaluate(net):\n"
                    "    if rank != 0:\n        return\n    net(torch.ones(8, 4))\n"),
            "error",
        ),
        (
            trained("net = Masked()\nmodel = net\nif dist.is_initialized():\n    model = DDP(net)",
                    after="    sample()", top="def main_only(f):\n    return f\ndef sample():\n    if is_main():\n"
                    "        model(torch.ones(8, 4))\ndef is_main():\n    return dist.get_rank() == 0\n"),
            "error",
        ),
    ],
    ids=["after every step", "before a barrier", "now and then, before a step", "early return in the callee", "helper predicate, gradients on"],
)  # fmt: skip
def test_lone_forward_is_found(tmp_path: Path, text: str, severity: str) -> None:
    found = findings(tmp_path, text)
    assert [(f.code, f.severity) for f in found] == [("DDP401", severity)]
    roles = [r.role for r in found[0].related]
    assert "guard" in roles and "wrap" in roles and "buffer" in roles
    assert text.splitlines()[found[0].span.line - 1].strip().startswith(("model(", "net("))


@pytest.mark.parametrize(
    "text",
    [
        trained("model = DDP(torch.nn.Linear(4, 1))", after=LONE),
        trained("model = DDP(Masked(), broadcast_buffers=False)", after=LONE),
        trained("model = DDP(Masked(), forward_sync_buffers=False)", after=LONE),
        trained("model = DDP(Masked())", after=LONE.replace("model(", "model.module(")),
        trained("model = DDP(Masked())", after=LONE.replace("if rank == 0:", "if rank >= 0:")),
        trained("model = DDP(Masked())", after="    x = torch.ones(8, 4)\n    if rank == 0:\n        print(model(x).mean())\n"
                "    else:\n        model(x)"),
        trained("from somewhere import build\nmodel = DDP(build())", after=LONE),
        trained("model = Masked()", after=LONE),
    ],
    ids=["no buffers", "buffers not sent", "buffers not synchronised", "inner module", "all ranks", "both arms", "unknown model", "no wrapper"],
)  # fmt: skip
def test_look_alikes_stay_quiet(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, text) == []


def test_evaluation_before_training_is_a_warning_that_says_the_run_goes_on(tmp_path: Path) -> None:
    body = "if rank == 0:\n    with torch.no_grad():\n        model(torch.ones(8, 4))"
    text = HEAD + "model = DDP(Masked())\n" + body + LOOP.format(before="    pass", after="    pass")
    found = findings(tmp_path, text)
    assert [f.severity for f in found] == ["warning"]
    assert "the run goes on" in found[0].explanation


def test_buffer_that_depends_on_an_unknown_condition_is_a_warning_that_names_it(tmp_path: Path) -> None:
    conditional = HEAD.replace(
        '        self.register_buffer("mask"', '        if not plain:\n            self.register_buffer("mask"'
    )
    text = (
        "import sys\nplain = len(sys.argv) > 1\n"
        + conditional
        + "model = DDP(Masked())"
        + LOOP.format(before="    pass", after=LONE)
    )
    found = findings(tmp_path, text)
    assert [f.severity for f in found] == ["warning"]
    assert "not plain" in found[0].explanation


# ---- runs that stop for another reason

OTHER = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
one, two = torch.ones(1), torch.ones(2)
{before}
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
{inside}
    if rank == 0 and {when}:
        with torch.no_grad():
            model(torch.randn(8, 4))
{after}
dist.destroy_process_group()
"""
CALLED_OTHERWISE = "    if step == 1:\n        for job in (add, share) if rank == 0 else (share, add):\n            job()"
JOBS = "def add():\n    dist.all_reduce(one)\ndef share():\n    dist.broadcast(two, 0)"
STOPS = {
    "an exit of one rank": {"after": "    if rank == 0 and step == 5:\n        break"},
    "another exit of one rank": {"after": "    if rank == 0 and step == 5:\n        raise SystemExit(0)"},
    "an opposite order": {"before": JOBS, "inside": CALLED_OTHERWISE},
    "a flag by rank": {"before": "syncs = rank == 0", "after": "    if syncs and step == 6:\n        dist.barrier()"},
    "a number of steps by rank": {"steps": "{0: 8, 1: 10}[rank]"},
    "a barrier of one rank at the end": {"after": "if rank == 0:\n    dist.barrier()"},
}
CAUSES = {
    "a barrier after it": {"after": "    if step % 4 == 3:\n        dist.barrier()"},
    "the rebuild of buckets": {"when": "step == 0"},
    "no forward after it": {"when": "step == 7"},
}
NEUTRAL = {"before": "", "inside": "", "after": "", "steps": "8", "when": "step % 4 == 3 and step < 7"}


def loud(folder: Path, text: str) -> dict[str, str]:
    (folder / "train.py").write_text(text)
    return {f.code: f.severity for f in audit([folder / "train.py"], Options()).findings if f.severity != "info"}


@pytest.mark.parametrize("name", STOPS)
def test_a_run_that_stops_for_another_reason_is_not_its_fault(tmp_path: Path, name: str) -> None:
    found = loud(tmp_path, OTHER.format(**{**NEUTRAL, **STOPS[name]}))
    assert found.pop("DDP401", "warning") == "warning"
    assert "error" in found.values()


@pytest.mark.parametrize("name", CAUSES)
def test_a_run_that_its_own_broadcast_stops_is(tmp_path: Path, name: str) -> None:
    assert loud(tmp_path, OTHER.format(**{**NEUTRAL, **CAUSES[name]})).get("DDP401") == "error"


GROUP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
group = dist.new_group([1, 2])
if rank:
    model = DDP(torch.nn.BatchNorm1d(4), process_group=group)
    for step in range(2):
        {guard}model(torch.randn(3, 4)).sum().backward()
"""


def test_a_forward_of_all_members_of_a_group_is_not_alone(tmp_path: Path) -> None:
    assert "DDP401" not in loud(tmp_path, GROUP.format(guard=""))
    assert "DDP401" in loud(tmp_path, GROUP.format(guard="if rank == 1: "))


TRAINED = """\
    opt.zero_grad()
    model({x}).sum().backward()
    opt.step()
"""
LATE_HEAD = (
    HEAD
    + """\
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
model = DDP(Masked())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(640, 4))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
"""
)
STEPS = "for step in range(50_000):\n" + TRAINED.format(x="torch.randn(8, 4)")
BATCHES = "for step, (x,) in enumerate(loader):\n" + TRAINED.format(x="x")
LATE = {
    "batches": BATCHES + "    if rank == 0 and not (step + 1) % 40:\n        {call}\ndist.barrier()\n",
    "the step first": STEPS + "    if not (step + 1) % 40_000 and rank == 0:\n        {call}\n    dist.barrier()\n",
    "the rank first": STEPS + "    if rank == 0 and not (step + 1) % 40_000:\n        {call}\n    dist.barrier()\n",
    "negated": STEPS + "    if not (rank != 0) and (step + 1) % 30_000 == 0:\n        {call}\n    dist.barrier()\n",
    "the other arm": STEPS + "    if rank or (step + 1) % 30_000:\n        pass\n    else:\n        {call}\n    dist.barrier()\n",
    "passed over": STEPS + "    if rank != 0 or step == 0 or step % 5_000 != 0:\n        continue\n    {call}\ndist.barrier()\n",
    "a name": BATCHES + "    due = (step + 1) % 37 == 0\n    if due and rank == 0:\n        {call}\n    dist.barrier()\n",
}


@pytest.mark.parametrize("text", LATE.values(), ids=LATE)
def test_a_lone_forward_late_in_a_run_is_found(text: str, tmp_path: Path) -> None:
    call = "print(model(torch.randn(8, 4)).sum())"
    bad = LATE_HEAD + text.format(call=f"with torch.no_grad(): {call}")
    (found,) = findings(tmp_path, bad)
    assert found.severity != "info" and call in bad.split("\n")[found.span.line - 1]
    assert not findings(tmp_path, bad.replace(call, call.replace("model(", "model.module(")))


def test_the_other_ranks_forward_in_the_other_arm(tmp_path: Path) -> None:
    text = STEPS + "    if rank == 0 and not (step + 1) % 30_000:\n        print(model(torch.randn(8, 4)))\n"
    text += "    elif not (step + 1) % 30_000:\n        model(torch.randn(8, 4))\n    dist.barrier()\n"
    assert not findings(tmp_path, LATE_HEAD + text)


def test_each_of_several_lone_forwards_is_found(tmp_path: Path) -> None:
    call = "            {} = model{}(torch.ones(8, 4))"
    lone = LONE.replace(
        "            model(torch.ones(8, 4))", "\n".join(call.format(n, m) for n, m in zip("ab", ("", ".forward"), strict=True))
    )
    text = trained("model = DDP(Masked())", before=lone, after="    dist.barrier()\n" + lone)
    places = [text.split("\n")[finding.span.line - 1].strip() for finding in findings(tmp_path, text)]
    assert sorted(places) == sorted(["a = model(torch.ones(8, 4))", "b = model.forward(torch.ones(8, 4))"] * 2)


ACCUMULATED = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    if step % EVERY == 0 and dist.get_rank() == 0:
        with torch.no_grad():
            model(torch.randn(8, 4))
    for micro in range(2):
        model.require_backward_grad_sync = FLAG
        model(torch.randn(8, 4)).mean().div(2).backward()
    opt.step(); opt.zero_grad()
    END
dist.destroy_process_group()
"""
LAST = "micro == 1"


@pytest.mark.parametrize("every", ["4", "int(input())"])
@pytest.mark.parametrize(
    ("flag", "end", "cause"),
    [
        (f"{LAST} or dist.get_rank() > 0", "pass", "DDP120"),
        (f"{LAST} and dist.get_rank() == 0", "pass", "DDP120"),
        (LAST, "if step == 5 and dist.get_rank(): break", "DDP203"),
        (LAST, "dist.all_reduce(torch.ones(1 + dist.get_rank()))", "DDP207"),
    ],
)
def test_the_evaluation_is_not_to_blame_for_what_happens_without_it(
    every: str, flag: str, end: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ACCUMULATED.replace("EVERY", every).replace("FLAG", flag).replace("END", end))
    found = {f.code: f.severity for f in audit(["train.py"], Options()).findings if f.severity != "info"}
    assert cause in found and found.get("DDP401") != "error", found
