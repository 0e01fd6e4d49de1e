"""Messages between two ranks in a predicted run, each program also run on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_ranks import ForkedRanks, held, predict_script

HEAD = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
other, x = 1 - rank, torch.zeros(4)
"""
RING = "left, right = (rank - 1) % world_size, (rank + 1) % world_size\n"

# Each program: the number of ranks, its text, and how it ends.
PROGRAMS: dict[str, tuple[int, str, str]] = {
    "one sends, the other receives": (2, "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)\ndist.barrier()\n", "completes"),
    "both send first": (2, "dist.send(x, other)\ndist.recv(x, other)\n", "hangs"),
    "both receive first": (2, "dist.recv(x, other)\ndist.send(x, other)\n", "hangs"),
    "nobody receives": (2, "if rank == 0:\n    dist.send(x, dst=1)\ndist.barrier()\n", "hangs"),
    "nobody sends": (2, "if rank == 1:\n    dist.recv(x, src=0)\ndist.barrier()\n", "hangs"),
    "tags differ": (2, "dist.send(x, 1, tag=1) if rank == 0 else dist.recv(x, 0, tag=2)\n", "hangs"),
    "tags pair what is out of order": (
        2,
        "if rank == 0:\n    a, b = dist.isend(x, 1, tag=1), dist.isend(x, 1, tag=2)\n    a.wait()\n    b.wait()\n"
        "else:\n    dist.recv(x, 0, tag=2)\n    dist.recv(x, 0, tag=1)\n",
        "completes",
    ),
    "a second message of another tag waits": (
        2,
        "if rank == 0:\n    dist.send(x, 1, tag=1)\n    dist.send(x, 1, tag=2)\n"
        "else:\n    dist.recv(x, 0, tag=2)\n    dist.recv(x, 0, tag=1)\n",
        "hangs",
    ),
    "both start and wait": (2, "a, b = dist.isend(x, other), dist.irecv(x, other)\na.wait()\nb.wait()\n", "completes"),
    "what was started is not waited for": (2, "if rank == 0:\n    kept = dist.isend(x, 1)\ndist.barrier()\n", "completes"),
    "the wait is for a message that nobody takes": (2, "if rank == 0:\n    dist.isend(x, 1).wait()\ndist.barrier()\n", "hangs"),
    "a send that is waited for twice": (
        2,
        "if rank == 0:\n    work = dist.isend(x, 1)\n    work.wait()\n    work.wait()\nelse:\n    dist.recv(x, 0)\ndist.barrier()\n",
        "hangs",
    ),
    "a receive that is waited for twice": (
        2,
        "if rank == 0:\n    work = dist.irecv(x, 1)\n    work.wait()\n    work.wait()\nelse:\n    dist.send(x, 0)\ndist.barrier()\n",
        "hangs",
    ),
    "a collective that is waited for twice": (
        2,
        "work = dist.all_reduce(x, async_op=True)\nwork.wait()\nwork.wait()\ndist.barrier()\n",
        "completes",
    ),
    "a batch": (
        2,
        "for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, x.clone(), other)]):\n"
        "    work.wait()\ndist.barrier()\n",
        "completes",
    ),
    "a batch in which one message is missing": (
        2,
        "ops = [dist.P2POp(dist.isend, x, other)]\nif rank == 0:\n    ops += [dist.P2POp(dist.irecv, x.clone(), other, tag=3)]\n"
        "if rank == 1:\n    ops = [dist.P2POp(dist.irecv, x.clone(), 0)]\n"
        "for work in dist.batch_isend_irecv(ops):\n    work.wait()\n",
        "hangs",
    ),
    "objects": (
        2,
        "if rank == 0:\n    dist.send_object_list([1, 'a'], 1)\nelse:\n    got = [None, None]\n    dist.recv_object_list(got, 0)\n",
        "completes",
    ),
    "objects meet a tensor": (2, "dist.send_object_list([x], 1) if rank == 0 else dist.recv(x, 0)\n", "hangs"),
    "from any rank": (
        3,
        "if rank:\n    dist.send(x, 0)\nelse:\n    [dist.recv(x) for _ in range(2)]\ndist.barrier()\n",
        "completes",
    ),
    "from any rank, once too often": (3, "if rank:\n    dist.send(x, 0)\nelse:\n    [dist.recv(x) for _ in range(3)]\n", "hangs"),
    "from any rank, with a tag": (3, "dist.send(x, 0, tag=rank) if rank else dist.recv(x, tag=2)\n", "hangs"),
    "to itself": (2, "if rank == 0:\n    dist.send(x, 0)\n", "raises"),
    "started to itself": (2, "if rank == 0:\n    dist.isend(x, 0)\n", "raises"),
    "a chain": (
        4,
        "if rank:\n    dist.recv(x, rank - 1)\nif rank < 3:\n    dist.send(x, rank + 1)\ndist.barrier()\n",
        "completes",
    ),
    "a ring": (3, f"{RING}dist.send(x, right)\ndist.recv(x, left)\n", "hangs"),
    "a ring that one rank opens": (
        3,
        f"{RING}if rank == 0:\n    dist.send(x, right)\n    dist.recv(x, left)\nelse:\n    dist.recv(x, left)\n    dist.send(x, right)\n",
        "completes",
    ),
    "in a sub-group": (
        3,
        "group = dist.new_group([1, 2])\nif rank == 1:\n    dist.send(x, 2, group=group)\n"
        "if rank == 2:\n    dist.recv(x, group=group, group_src=0)\n",
        "completes",
    ),
    "in groups that differ": (
        3,
        "group = dist.new_group([1, 2])\nif rank == 1:\n    dist.send(x, 2, group=group)\nif rank == 2:\n    dist.recv(x, 1)\n",
        "hangs",
    ),
    "to a rank outside of the group": (
        3,
        "group = dist.new_group([1, 2])\nif rank == 1:\n    dist.send(x, 0, group=group)\n",
        "raises",
    ),
    "more than fits": (2, "dist.send(torch.zeros(8), 1) if rank == 0 else dist.recv(x, 0)\n", "aborts"),
    "less than fits": (2, "dist.send(torch.zeros(2), 1) if rank == 0 else dist.recv(x, 0)\n", "completes"),
    "a collective that was started, a message before its wait": (
        2,
        "work = dist.all_reduce(x, async_op=True)\nif rank == 0:\n    dist.send(x, 1)\nwork.wait()\nif rank == 1:\n    dist.recv(x, 0)\n",
        "completes",
    ),
    "a collective that was started and is waited for too early": (
        2,
        "y = torch.ones(2)\nif rank == 0:\n    dist.all_reduce(y, async_op=True).wait()\n    dist.barrier()\n"
        "else:\n    dist.barrier()\n    dist.all_reduce(y, async_op=True).wait()\n",
        "hangs",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_message_is_predicted_as_it_runs(forked: ForkedRanks, tmp_path: Path, name: str) -> None:
    world_size, body, kind = PROGRAMS[name]
    script = tmp_path / "script.py"
    script.write_text(HEAD + body)
    run = predict_script(script, world_size)
    assert ("raises" if run.raised else run.kind) == kind
    assert held(forked, script, world_size) is None


def test_a_message_to_a_rank_that_is_not_there_never_arrives(forked: ForkedRanks, tmp_path: Path) -> None:
    """Gloo takes the number without a look: it waits for whatever lies there in its memory, or ends the process."""
    script = tmp_path / "script.py"
    script.write_text(HEAD + "if rank == 0:\n    dist.send(x, 7)\n")
    assert predict_script(script, 2).kind == "hangs"
    assert forked.run(script, 2).kind in ("hangs", "aborts")


def test_what_a_rank_waits_in_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + "if rank == 0:\n    work = dist.irecv(x, 1)\n    work.wait()\n")
    assert "rank 0 waits in recv of 4 float32 from rank 1 (user call)" in predict_script(script, 2).outcome.explanation
    script.write_text(HEAD + "if rank == 0:\n    dist.recv(x)\n")
    assert "rank 0 waits in recv of 4 float32 from any rank" in predict_script(script, 2).outcome.explanation


@pytest.mark.parametrize(
    "call", ["dist.send(x, int(x.sum()))", "dist.recv(x, 0, tag=int(x[0]))", "dist.batch_isend_irecv(unknown())"]
)
def test_what_is_not_known_of_a_message_is_said(tmp_path: Path, call: str) -> None:
    """A rank that is not known may be any: the prediction does not wait for it, and says so."""
    script = tmp_path / "script.py"
    script.write_text(f"from elsewhere import unknown\n{HEAD}{call}\ndist.barrier()\n")
    run = predict_script(script, 2)
    assert run.bounds and run.kind == "goes on"
