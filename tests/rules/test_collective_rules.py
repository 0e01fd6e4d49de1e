"""DDP201, DDP202 and DDP203: what each finds, in several styles and across files, and the look-alikes on which it stays quiet.

In a program `# HERE` marks the line that the finding names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from collective_programs import FOUND, HEAD, TRAIN

from ddp_audit.findings import Finding
from ddp_audit.program import lower
from ddp_audit.rule import Context, load_rules
from ddp_audit.source.project import Project

RULES = {rule.code: rule for rule in load_rules()}
MINE = ("DDP201", "DDP202", "DDP203")
LOUD = ("DDP101", "DDP105", "DDP112", "DDP113", "DDP115", *MINE)

QUIET = {
    ("DDP203", "an exit with failure, which the launcher answers"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    if loss < 0.1:
        raise SystemExit(1)
""",
    ("DDP203", "a list of local values whose length is that of the steps"): TRAIN + """
losses = []
for x in loader:
    loss = model(x).mean()
    loss.backward()
    losses.append(loss.item())
    if len(losses) >= 4:
        break
kept = []
for value in losses:
    kept.append(torch.tensor(value))
for value in kept:
    dist.all_reduce(value)
if len(kept) == 4:
    dist.barrier()
""",
    ("DDP201", "a branch that a list which stays empty never takes"): TRAIN + """
names = []
for x in loader:
    if len(names) > 4 and rank == 0:
        dist.barrier()
""",
    ("DDP202", "a moved metric that does not sync"): TRAIN + """
import torchmetrics
mean = torchmetrics.MeanMetric(sync_on_compute=False).to("cpu")
if rank == 0:
    print(mean.compute())
""",
    ("DDP201", "both branches"): HEAD + """
if rank == 0:
    print("saving")
    dist.barrier()
else:
    dist.barrier()
""",
    ("DDP201", "first and then"): HEAD + """
if rank != 0:
    dist.barrier()
data = list(range(100))
if rank == 0:
    dist.barrier()
""",
    ("DDP201", "first and then, as a context manager"): HEAD + """
from contextlib import contextmanager
@contextmanager
def first(local_rank):
    if local_rank != 0:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
with first(rank):
    print("reading")
""",
    ("DDP201", "first and then, each under conditions of its own"): HEAD + """
if os.environ.get("CACHE"):
    if rank != 0:
        dist.barrier()
if os.environ.get("CACHE") and rank == 0:
    dist.barrier()
""",
    ("DDP201", "sender and receivers of one broadcast"): HEAD + """
if rank == 0:
    value = torch.ones(1)
    dist.broadcast(value, src=0)
else:
    value = torch.empty(1)
    dist.broadcast(value, src=0)
""",
    ("DDP201", "group of the tested ranks"): HEAD + """
pair = dist.new_group([0, 1])
if rank < 2:
    dist.barrier(group=pair)
""",
    ("DDP201", "group that is not followed"): HEAD + """
groups = make_groups()
if rank == 0:
    dist.barrier(group=groups[rank])
""",
    ("DDP201", "several processes at all"): HEAD + """
if world_size > 1:
    dist.barrier()
if rank >= 0:
    dist.barrier()
if dist.is_initialized() and os.environ.get("RANK") is not None:
    dist.barrier()
""",
    ("DDP201", "point to point"): HEAD + """
value = torch.ones(1)
if rank == 0:
    dist.send(value, 1)
elif rank == 1:
    dist.recv(value, 0)
""",
    ("DDP201", "all ranks return"): HEAD + """
def reduced(value):
    if world_size < 2:
        return value
    dist.all_reduce(value)
    return value
print(reduced(torch.ones(1)))
""",
    ("DDP201", "decided by a reduced value"): TRAIN + """
for x in loader:
    loss = model(x).mean().detach()
    dist.all_reduce(loss)
    if loss > 1:
        dist.barrier()
""",
    ("DDP201", "a counter beside the batch"): TRAIN + """
for step, x in enumerate(loader):
    loss = model(x).mean().detach()
    if (step + 1) % 10 == 0:
        dist.all_reduce(loss)
""",
    ("DDP202", "all ranks consolidate"): HEAD + """
from torch.distributed.optim import ZeroRedundancyOptimizer
optimizer = ZeroRedundancyOptimizer(torch.nn.Linear(4, 1).parameters(), torch.optim.Adam)
optimizer.consolidate_state_dict(to=0)
if rank == 0:
    torch.save(optimizer.state_dict(), "optimizer.pt")
""",
    ("DDP202", "state dicts of plain DDP"): TRAIN + """
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")
""",
    ("DDP202", "MPI in both branches"): HEAD + """
from mpi4py import MPI
if MPI.COMM_WORLD.Get_rank() == 0:
    MPI.COMM_WORLD.bcast(1)
else:
    MPI.COMM_WORLD.bcast(None)
""",
    ("DDP203", "the flag is reduced"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    bad = (~torch.isfinite(loss)).float()
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad.item() > 0:
        continue
    loss.backward()
    optimizer.step()
""",
    ("DDP203", "the value is broadcast as an object"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    decision = [loss.item() < 0.1]
    dist.broadcast_object_list(decision, src=0)
    if decision[0]:
        break
""",
    ("DDP203", "step counter and option"): TRAIN + """
max_steps = int(os.environ.get("MAX_STEPS", "100"))
for step, x in enumerate(loader):
    model(x).mean().backward()
    optimizer.step()
    if step >= max_steps:
        break
""",
    ("DDP203", "a loop without collectives"): TRAIN + """
with torch.no_grad():
    for x in loader:
        loss = model.module(x).mean()
        if loss < 0.1:
            break
""",
    ("DDP203", "norm of reduced gradients"): TRAIN + """
for x in loader:
    model(x).mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        optimizer.zero_grad()
        continue
    optimizer.step()
""",
    ("DDP203", "norm by a method of the model, with a limit out of a batch"): TRAIN + """
for x in loader:
    model(x).mean().backward()
    norm = model.clip_grad_norm_(x.max())
    if torch.isfinite(norm):
        optimizer.step()
""",
    ("DDP203", "an exit that fails the job"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    if not math.isfinite(loss.item()):
        print("stopping")
        sys.exit(1)
    loss.backward()
    optimizer.step()
""",
    ("DDP203", "only the printing is skipped"): TRAIN + """
def report(loss):
    if loss > 10 or rank != 0:
        return
    print(loss)
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    report(loss.item())
""",
}  # fmt: skip

Check = Callable[..., list[Finding]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """A function that writes a program as train.py, and other files, and answers with what the named rules find in it."""

    def run(text: str, *codes: str, **files: str) -> list[Finding]:
        monkeypatch.chdir(tmp_path)
        Path("train.py").write_text(text)
        for name, source in files.items():
            Path(f"{name}.py").write_text(source)
        project = Project(["train.py"])
        context = Context(lower(project, project.files[0]))
        return [finding for code in codes for finding in RULES[code].check(context)]

    return run


@pytest.mark.parametrize(("code", "name"), FOUND)
def test_found_at_the_marked_lines(check: Check, code: str, name: str) -> None:
    text = FOUND[code, name]
    lines = [number for number, row in enumerate(text.splitlines(), 1) if "HERE" in row]
    found = check(text, *MINE)
    assert [(f.code, f.span.line) for f in found] == [(code, line) for line in lines]
    assert {f.confidence for f in found} <= {"likely", "certain"}
    assert all(f.message.endswith(".") and f.explanation.endswith(".") for f in found)


@pytest.mark.parametrize(("code", "name"), QUIET)
def test_quiet_on_look_alikes(check: Check, code: str, name: str) -> None:
    assert [(f.code, f.span.line, f.message) for f in check(QUIET[code, name], *MINE)] == []


@pytest.mark.parametrize("code", MINE)
def test_examples_of_the_page(check: Check, code: str) -> None:
    rule = RULES[code]
    assert {f.code for f in check(rule.bad, *LOUD)} == {code}
    assert check(rule.good, *LOUD) == []


def test_the_guard_stands_in_one_file_and_the_collective_in_another(check: Check) -> None:
    helper = """\
import torch.distributed as dist
def synchronise():
    if dist.get_world_size() == 1:
        return
    dist.barrier()
"""
    text = HEAD + "from helper import synchronise\nif rank == 0:\n    synchronise()\n"
    (found,) = check(text, *MINE, helper=helper)
    assert (found.code, found.span.path, found.span.line) == ("DDP201", "train.py", text.count("\n"))
    assert ("helper.py", 5, "collective") in {(r.path, r.line, r.role) for r in found.related}
    assert "nly rank 0" in found.message


def test_a_success_exit_is_a_warning(check: Check) -> None:
    (found,) = check(FOUND["DDP203", "exit with success"], "DDP203")
    assert found.severity == "warning"
