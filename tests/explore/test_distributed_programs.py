"""What programs ask of torch.distributed in an interpreted run: each call as torch documents it, on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

from ddp_audit.events import COLLECTIVE, Event
from ddp_audit.explore.exact import Run


def told(event: Event) -> str:
    """A collective in a word: its operation and elements, `>` with the peer or the root, `/` with a group that is not the default one."""
    end = event.detail.get("peer", event.root)
    group = "" if event.group == "default" else f"/{event.group}"
    tag = f"#{event.detail['tag']}" if event.detail.get("tag") else ""
    reduced = "" if event.reduce_op in (None, "sum") else f"~{event.reduce_op}"
    return f"{event.op}{'' if event.numel is None else event.numel}{'' if end is None else f'>{end}'}{reduced}{tag}{group}"


def sent(run: Run, rank: int = 0) -> str:
    return " ".join(told(event) for event in run.sequences[rank] if event.kind == COLLECTIVE)


# What rank 0 sends, and what rank 1 does where that is something else.
SENT = {
    "reductions": (
        """
x = torch.ones(4)
dist.all_reduce(x)
dist.all_reduce(tensor=x, op=dist.ReduceOp.MAX)
dist.all_reduce(x, dist.ReduceOp.AVG)
dist.reduce(x, 1)
dist.reduce(x, dst=0, op=dist.ReduceOp.MIN)
dist.reduce_scatter_tensor(torch.ones(2), x)
dist.reduce_scatter(torch.ones(2), [torch.ones(2), torch.ones(2)])
""",
        "all_reduce4 all_reduce4~max all_reduce4~avg reduce4>1 reduce4>0~min reduce_scatter4 reduce_scatter4",
    ),
    "from one to all and back": (
        """
x = torch.ones(3)
dist.broadcast(x, 0)
dist.broadcast(x, src=1)
dist.broadcast(tensor=x, group_src=1)
dist.gather(x, [torch.ones(3), torch.ones(3)] if rank == 0 else None, dst=0)
dist.scatter(x, [torch.ones(3), torch.ones(3)] if rank == 1 else None, src=1)
dist.all_gather([torch.ones(3), torch.ones(3)], x)
dist.all_gather_into_tensor(torch.ones(6), x)
dist.barrier()
dist.monitored_barrier()
""",
        "broadcast3>0 broadcast3>1 broadcast3>1 gather3>0 scatter3>1 all_gather3 all_gather3 barrier monitored_barrier",
    ),
    "objects": (
        """
found = [None, None]
dist.all_gather_object(found, rank)
dist.all_reduce(torch.ones(len(found)))
dist.broadcast_object_list([1, 2, 3], src=1)
dist.gather_object(rank, found if rank == 0 else None, dst=0)
""",
        "all_gather1 all_gather all_reduce2 broadcast3>1 broadcast>1 all_gather1 gather>0",
    ),
    "groups": (
        """
both, own = dist.new_group([0, 1]), [dist.new_group([r]) for r in range(2)][rank]
dist.all_reduce(torch.ones(5), group=both)
dist.all_reduce(torch.ones(dist.get_world_size(own) + dist.get_rank(own) + 7), group=own)
dist.all_reduce(torch.ones(both.size() + 10 * (both.rank() + 1)), group=dist.group.WORLD)
dist.all_reduce(torch.ones(1 + dist.get_rank(group=both)))
""",
        "all_reduce5/1 all_reduce8/2 all_reduce12 all_reduce1",
        "all_reduce5/1 all_reduce8/3 all_reduce22 all_reduce2",
    ),
    "a rank outside of a group": (
        """
first = dist.new_group([0])
dist.all_reduce(torch.ones(4), group=first)
dist.all_reduce(torch.ones(2 + dist.get_rank(first)))
if rank:
    dist.all_reduce(torch.ones(4 + dist.recv(torch.ones(1), 0, group=first)))
    dist.all_reduce(torch.ones(6 + (dist.send(torch.ones(1), 0, group=first) is None)))
    dist.all_reduce(torch.ones(8 + (dist.irecv(torch.ones(1), 0, group=first) is None)))
""",
        "all_reduce4/1 all_reduce2",
        "all_reduce1 all_reduce3 all_reduce7 all_reduce9",
    ),
    "what a rank is told": (
        """
dist.all_reduce(torch.ones(1 + dist.is_initialized() + 2 * dist.is_available()))
dist.all_reduce(torch.ones(dist.get_world_size() * 10 + dist.get_rank()))
dist.all_reduce(torch.ones(world_size + int(os.environ["WORLD_SIZE"]) + int(os.environ["LOCAL_RANK"]) + 1))
dist.destroy_process_group()
dist.init_process_group("gloo")
dist.barrier()
""",
        "all_reduce4 all_reduce20 all_reduce5 barrier",
        "all_reduce4 all_reduce21 all_reduce6 barrier",
    ),
    "messages": (
        """
x = torch.ones(3)
if rank == 0:
    dist.send(x, 1)
    dist.send(tensor=x, dst=1, tag=7)
    dist.recv(x, src=1)
    dist.send(x, group_dst=1)
else:
    dist.recv(x, 0)
    dist.recv(x, src=0, tag=7)
    dist.send(x, dst=0)
    dist.recv(x)
""",
        "send3>1 send3>1#7 recv3>1 send3>1",
        "recv3>0 recv3>0#7 send3>0 recv3",
    ),
    "messages that return at once": (
        """
x = torch.ones(2)
other = 1 - rank
works = [dist.isend(x, other), dist.irecv(torch.ones(2), other)]
for work in works:
    work.wait()
operations = [dist.P2POp(dist.isend, x, other), dist.P2POp(op=dist.irecv, tensor=torch.ones(2), peer=other, tag=3)]
operations[0].tag = 3
for work in dist.batch_isend_irecv(operations[:1] + [dist.P2POp(dist.irecv, torch.ones(2), other)]):
    work.wait()
""",
        "send2>1 recv2>1 send2>1 recv2>1",
        "send2>0 recv2>0 send2>0 recv2>0",
    ),
    "objects in messages": (
        """
if rank == 0:
    dist.send_object_list([1, 2], dst=1)
else:
    found = [None, None]
    dist.recv_object_list(found, src=0)
    print(found[0])
dist.barrier()
""",
        "send2>1 send>1 barrier",
        "recv2>0 recv>0 barrier",
    ),
    "work that is waited for": (
        """
work = dist.all_reduce(torch.ones(6), async_op=True)
work.wait()
dist.broadcast(torch.ones(2), 0, async_op=False)
works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (1, 2)]
[w.wait() for w in works]
""",
        "all_reduce6 broadcast2>0 all_reduce1 all_reduce2",
    ),
    "sizes that are not known": (
        """
x = torch.ones(int(os.environ["N"]))
dist.all_reduce(x)
dist.all_gather([torch.ones(2)] * 2, torch.ones(2))
dist.broadcast_object_list(os.environ["A"].split(), src=0)
""",
        "all_reduce all_gather2 broadcast>0 broadcast>0",
    ),
    "a list of tensors": ("dist.all_to_all([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(4)])\n", "all_to_all6"),
}


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent(name: str, tmp_path: Path) -> None:
    text, *ranks = SENT[name]
    run = predicted(tmp_path, text)
    assert [sent(run, rank) for rank in (0, 1)] == [ranks[0], ranks[-1]], (run.raised, run.cut)


# What torch says of calls that cannot be, and what was sent before.
REFUSED = {
    "a group that is there": (
        "dist.init_process_group('gloo')\n",
        "ValueError: trying to initialize the default process group twice!",
    ),
    "no group for a question": (
        "dist.destroy_process_group()\ndist.get_rank()\n",
        "ValueError: Default process group has not been init",
    ),
    "no group for a size": (
        "dist.destroy_process_group()\ndist.get_world_size()\n",
        "ValueError: Default process group has not been init",
    ),
    "no group for a call": (
        "dist.destroy_process_group()\ndist.barrier()\n",
        "ValueError: Default process group has not been init",
    ),
    "no group for a message": (
        "dist.destroy_process_group()\ndist.send(torch.ones(1), 1)\n",
        "ValueError: Default process group has not",
    ),
    "a rank that is not there": ("dist.new_group([0, 99])\n", "ValueError: the new group's rank should be within the world_size"),
    "a message to itself": ("dist.send(torch.ones(1), rank)\n", "ValueError: Invalid destination rank"),
    "objects from itself": ("dist.recv_object_list([None], rank)\n", "ValueError: Invalid source rank"),
    "a message from itself": ("dist.recv(torch.ones(1), rank)\n", "RuntimeError: Pair is not connected"),
    "a message to nobody": ("dist.send(torch.ones(1))\n", "ValueError: Must specify global_rank or group_rank"),
    "a rank outside of the group": (
        "group = [dist.new_group([r]) for r in (0, 1)][rank]\ndist.send(torch.ones(1), 1 - rank, group=group)\n",
        "ValueError: Global rank {other} is not part of group",
    ),
    "PowerSGD from the first step": (
        "from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState\nPowerSGDState(None, start_powerSGD_iter=3)\n"
        "PowerSGDState(None, 1, 1, use_error_feedback=False, warm_start=False)\nPowerSGDState(None, 1, 1, warm_start=False)\n",
        "ValueError: Expect `start_powerSGD_iter` > 1",
    ),
    "two loaders' orders": (
        "from torch.utils.data import DataLoader, SequentialSampler\nDataLoader([1], shuffle=True, sampler=SequentialSampler([1]))\n",
        "ValueError: sampler option is mutually exclusive with shuffle",
    ),
}


@pytest.mark.parametrize(("text", "error"), REFUSED.values(), ids=REFUSED)
def test_what_torch_refuses_ends_the_rank(text: str, error: str, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"dist.barrier()\n{text}dist.all_reduce(torch.ones(9))\n")
    for rank in (0, 1):
        assert run.raised[rank].startswith(error.format(other=1 - rank)), run.raised
        assert sent(run, rank) == "barrier"


BOUNDED = {
    "a group that is not known": (
        "import other\ndist.all_reduce(torch.ones(2), group=other.group())\n",
        "all_reduce over a group that is not known",
    ),
    "a message over a group that is not known": (
        "import other\ndist.send(torch.ones(2), 1, other.group())\n",
        "send over a group that is not known",
    ),
    "a group of ranks that are not known": ("dist.new_group([int(os.environ['A'])])\n", "a group of ranks that are not known"),
    "a call that is not followed": (
        "dist.all_gather_v(torch.ones(2))\n",
        "torch.distributed.all_gather_v is not followed",
    ),
    "a tag that is not known": (
        "dist.isend(torch.ones(2), 1 - rank, tag=int(os.environ['A']))\n",
        "isend with a tag that is not known",
    ),
    "a peer that is not known": ("dist.isend(torch.ones(2), int(os.environ['A']))\n", "isend with a rank that is not known"),
    "a batch that is not known": (
        "import other\ndist.batch_isend_irecv(other.made())\n",
        "batch_isend_irecv of operations that are not known",
    ),
    "an operation that is not known": (
        "import other\ndist.batch_isend_irecv([dist.P2POp(other.op, torch.ones(1), 1)])\n",
        "batch_isend_irecv of operations that",
    ),
}


@pytest.mark.parametrize(("text", "why"), BOUNDED.values(), ids=BOUNDED)
def test_what_is_not_known_bounds_the_run(text: str, why: str, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"dist.barrier()\n{text}dist.barrier()\n")
    assert any(f": {why}" in bound for bound in run.bounds), run.bounds
    assert run.kind != "completes"


LOCAL = {
    "torch.randn(3)": True, "torch.rand(3)": True, "torch.randint(0, 5, (3,))": True, "torch.randperm(3)": True, "torch.rand_like(torch.ones(3))": True,
    "torch.arange(3)": False, "torch.linspace(0, 1, 3)": False, "torch.eye(3)": False, "torch.zeros(3)": False, "torch.full((3,), 2)": False,
    "torch.full((3,), float(rank))": False, "torch.zeros_like(torch.rand(3))": False, "torch.tensor([1, 2])": False, "torch.ones(3) + torch.rand(3)": True,
    "torch.stack([torch.ones(2), torch.rand(2)])": True, "torch.cat([torch.ones(2), torch.rand(2)])": True, "torch.rand(3)[0]": True, "torch.rand(3).detach()": True,
    "torch.rand(3).clone().double()": True, "nn.Linear(3, 1)(torch.ones(2, 3))": False, "nn.Linear(3, 1)(torch.rand(2, 3))": True,
}  # fmt: skip


@pytest.mark.parametrize(("made", "local"), LOCAL.items(), ids=LOCAL)
def test_a_condition_on_drawn_numbers_may_differ_between_ranks(made: str, local: bool, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"if ({made}).sum() > 7:\n    dist.barrier()\n")
    assert [assumption.local for assumption in run.assumptions] == [local]


def test_what_an_own_class_says_of_membership_may_differ_between_ranks(tmp_path: Path) -> None:
    text = "class Chosen:\n    def __contains__(self, n):\n        return torch.rand(3).sum() > n\n\n"
    for condition in ("2 in Chosen()", "2 not in Chosen()"):
        run = predicted(tmp_path, f"{text}if {condition}:\n    dist.barrier()\n")
        assert [assumption.local for assumption in run.assumptions] == [True]


def test_what_was_reduced_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    text = "x = torch.rand(2)\ny = torch.rand(2)\ndist.all_reduce(x)\ndist.broadcast(y, 0)\nif x.sum() > 1 and y.sum() > 1:\n    dist.barrier()\n"
    assert {assumption.local for assumption in predicted(tmp_path, text).assumptions} == {False}


@pytest.mark.parametrize(("received", "local"), [("x", True), ("y", False)])
def test_what_one_rank_alone_received_may_differ_between_ranks(received: str, local: bool, tmp_path: Path) -> None:
    text = (
        "x, y = torch.ones(2), torch.ones(2)\nif rank:\n    dist.send(x, 0)\nelse:\n"
        f"    dist.recv({received}, 1)\nif x.sum() > 1:\n    dist.barrier()\n"
    )
    assert [assumption.local for assumption in predicted(tmp_path, text).assumptions] == [local]
