"""DDP206 to DDP210 and DDP212: what each finds, in several styles, and the look-alikes on which it stays quiet.

In a program `# HERE` marks a line that a finding names.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules

MINE = ("DDP212",)
HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()
"""

FOUND = {
    ("DDP212", "one operand of several"): HEAD + """
def is_main_process():
    return rank == 0
if os.environ.get("SAVE") and is_main_process:  # HERE
    torch.save({}, "net.pt")
""",
    ("DDP212", "a method"): HEAD + """
class Job:
    def is_master(self):
        return rank == 0
    def save(self):
        if self.is_master:  # HERE
            torch.save({}, "net.pt")
Job().save()
""",
    ("DDP212", "conditional expression"): HEAD + """
def is_main_process():
    return rank == 0
path = "net.pt" if is_main_process else None  # HERE
""",
    ("DDP212", "loop of the ranks that wait"): HEAD + """
def is_main_process():
    return rank == 0
while not is_main_process:  # HERE
    dist.barrier()
""",
    ("DDP212", "a getter compared"): HEAD + """
if 0 == dist.get_rank:  # HERE
    torch.save({}, "net.pt")
if dist.get_node_local_rank != 0:  # HERE
    print("quiet")
""",
    ("DDP212", "a library's predicate that is called elsewhere"): HEAD + """
from detectron2.utils.comm import is_main_process
if is_main_process():
    print("one")
if is_main_process:  # HERE
    print("two")
""",
}  # fmt: skip

QUIET = {
    ("DDP212", "a variable, a parameter, a property, an attribute"): HEAD + """
def is_main_process():
    return rank == 0
class Job:
    def __init__(self):
        self.is_master = is_main_process()
    @property
    def is_main(self):
        return rank == 0
job = Job()
def save(is_main_process, options):
    if is_main_process or options.is_main_process:
        torch.save({}, "net.pt")
is_primary = is_main_process()
if is_primary and job.is_main and not job.is_master:
    save(is_primary, os)
""",
    ("DDP212", "a name of an unknown module that may be a variable"): HEAD + """
from settings import is_main_process
if is_main_process:
    torch.save({}, "net.pt")
""",
    ("DDP212", "a callable passed and asked for"): HEAD + """
def is_main_process():
    return rank == 0
def save(predicate=None):
    if predicate and predicate():
        torch.save({}, "net.pt")
save(is_main_process)
""",
    ("DDP212", "a number under the getter's name"): HEAD + """
get_rank = rank
if get_rank == 0:
    torch.save({}, "net.pt")
""",
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a working directory of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("code", "name"), FOUND)
def test_found_at_the_marked_lines(tmp_path: Path, code: str, name: str) -> None:
    text = FOUND[code, name]
    lines = [number for number, row in enumerate(text.splitlines(), 1) if "# HERE" in row]
    context = audited(tmp_path, text)
    found = [finding for own in MINE for finding in findings(own, context)]
    assert [(f.code, f.span.line) for f in found] == [(code, line) for line in lines]
    assert all(f.message.endswith(".") and f.explanation.endswith(".") for f in found)


@pytest.mark.parametrize(("code", "name"), QUIET)
def test_quiet_on_look_alikes(tmp_path: Path, code: str, name: str) -> None:
    context = audited(tmp_path, QUIET[code, name])
    assert [(f.code, f.span.line, f.message) for own in MINE for f in findings(own, context)] == []


@pytest.mark.parametrize("code", MINE)
def test_examples_of_the_page(tmp_path: Path, code: str) -> None:
    rule = rules()[code]
    bad = audited(tmp_path, rule.bad)
    assert {f.code for own in MINE for f in findings(own, bad)} == {code}
    good = audited(tmp_path, rule.good)
    assert [f for own in MINE for f in findings(own, good)] == []
