"""A process group is called by what people know of it: its members, its dimension or description, the line that made it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.compare.group_names import GroupFacts, group_text, note_group, richer
from ddp_audit.compare.run import WAITING, RankRun, RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, USER, Event, Site
from ddp_audit.report.trace_text import title
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.store import load_run

LINE = Site("train.py", 5)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (GroupFacts((0, 1)), "the group of ranks 0 and 1"),
        (GroupFacts((3,), "mesh_tp"), "the group of rank 3 (mesh dimension tp)"),
        (GroupFacts((0, 2, 4), "evaluation", LINE), "the group of ranks 0, 2 and 4 (evaluation, made at train.py:5)"),
        (GroupFacts(tuple(range(64)), "", LINE), "the group of ranks 0-63 (made at train.py:5)"),
    ],
)
def test_how_a_group_is_called(facts: GroupFacts, text: str) -> None:
    assert group_text("7", {"7": facts}) == text
    assert group_text(DEFAULT_GROUP, {DEFAULT_GROUP: facts}) == "the default group"
    assert group_text("8", {"7": facts}) == "group 8"


def test_what_several_records_say_of_one_group() -> None:
    known: dict[str, GroupFacts] = {}
    note_group(known, {"action": "seen", "name": "3", "ranks": [0, 1], "desc": "mesh_dp"}, ())
    note_group(known, {"action": "new", "name": "3", "ranks": [0, 1]}, [LINE])
    note_group(known, {"action": "destroy", "name": "3", "ranks": []}, [Site("train.py", 9)])
    note_group(known, {"action": "new", "name": "", "ranks": [5]}, [LINE])
    assert known == {"3": GroupFacts((0, 1), "mesh_dp", LINE)}
    assert richer(known["3"], GroupFacts((2, 3))) == GroupFacts((2, 3))  # the name came back


def test_titles_and_explanations_call_groups_so() -> None:
    def event(group: str, line: int) -> Event:
        site = Site("train.py", line)
        detail = {"done": None, "async": False, "thread": 0}
        return Event(COLLECTIVE, "all_reduce", group, 0, USER, 4, "float32", site=site, stack=(site,), detail=detail)

    ranks = {}
    for rank, group in ((0, "3"), (1, "4")):
        own = event(group, 20 + rank)
        ranks[rank] = RankRun(rank, [own], WAITING, waiting=own)
    facts = {"3": GroupFacts((0, 1), "mesh_dp", LINE), "4": GroupFacts((0, 1), "", Site("train.py", 8))}
    run = RecordedRun(2, ranks, {"3": (0, 1), "4": (0, 1)}, called=facts)
    (told,) = compare_run(run, stalled=True).parted
    assert title(told) == (
        "Collective 0 of the group of ranks 0 and 1 (mesh dimension dp, made at train.py:5): groups used in opposite order"
    )
    assert "from train.py:21 on the group of ranks 0 and 1 (made at train.py:8)" in told.explanation


PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
def made():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
made()
dist.new_group([0, 3], group_desc="evaluation")
dist.new_group([0, 1])
"""


@pytest.mark.traced
def test_groups_of_a_real_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "ddp_audit.trace", "--directory", "trace", "train.py"]
    subprocess.run(command, cwd=tmp_path, timeout=120, check=True)
    run = load_run(tmp_path / "trace")
    assert load_columns(tmp_path / "trace")[0].called == run.called
    texts = {facts.text for name, facts in run.called.items() if name != DEFAULT_GROUP}
    assert texts == {
        "the group of ranks 0 and 2 (mesh dimension dp, made at train.py:7)",
        "the group of ranks 0 and 1 (mesh dimension tp, made at train.py:7)",
        "the group of ranks 0 and 3 (evaluation, made at train.py:9)",
        "the group of ranks 0 and 1 (made at train.py:10)",
    }
