"""Interpreted runs: uneven inputs under join, communication hooks, autograd functions, local groups, and what is not followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted, sizes

from ddp_audit.explore.proof import Predicted
from ddp_audit.report import run_text

JOIN = """
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.join({options}):
    for _ in range(2 + rank):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
"""
HOOK = """
def hook(state, bucket):
    {body}
model = DDP(nn.Linear(4, 1))
model.register_comm_hook(None, hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).mean().backward()
optimizer.step()
"""
FUNCTION = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        {body}
        return grad
model = DDP(nn.Linear(4, 1){options})
"""


def test_a_rank_without_inputs_shadows_the_others(tmp_path: Path) -> None:
    run = predicted(tmp_path, JOIN.format(options=""))
    assert run.kind == "completes"
    assert [d for d in run.divergences() if not d.is_notice] == []
    assert len(run.collectives(0)) == len(run.collectives(1))
    lone = JOIN.format(options="enable=False")
    assert predicted(tmp_path, lone).kind == "hangs"


def test_all_ranks_stop_where_the_first_is_out_of_inputs_and_that_is_asked_for(tmp_path: Path) -> None:
    run = predicted(tmp_path, JOIN.format(options="throw_on_early_termination=True"))
    assert "exhausted all inputs" in run.raised[0]
    assert "Detected at least one rank" in run.raised[1]


def test_a_run_that_is_cut_after_some_steps_still_knows_the_inputs_of_all(tmp_path: Path) -> None:
    run = predicted(tmp_path, JOIN.format(options=""), steps=1)
    assert run.cut and run.bounds == []
    assert [e.op for e in run.collectives(0)] == [e.op for e in run.collectives(1)]


def test_ranks_that_join_a_different_number_of_times_are_a_bound(tmp_path: Path) -> None:
    body = (
        "model = DDP(nn.Linear(4, 1))\nif rank == 0:\n    with model.join():\n        model(torch.ones(2, 4)).mean().backward()\n"
    )
    run = predicted(tmp_path, body)
    assert any("join() is not followed" in bound for bound in run.bounds)
    assert run.certain


@pytest.mark.parametrize(
    ("body", "ops", "local", "noted"),
    [
        ("return dist.all_reduce(bucket.buffer(), async_op=True).get_future()", ["all_reduce"], False, True),
        ("return dist.all_reduce(bucket.buffer().div_(world_size), async_op=True).get_future()", ["all_reduce"], False, False),
        ("dist.all_gather([torch.empty(5), torch.empty(5)], bucket.buffer()) / 2", ["all_gather"], False, False),
        ("return torch.futures.Future()", [], True, False),
    ],
)
def test_a_hook_of_the_project_is_run_for_every_bucket(tmp_path: Path, body: str, ops: list[str], local: bool, noted: bool) -> None:
    run = predicted(tmp_path, HOOK.format(body=body))
    found = [e for e in run.collectives(0) if e.origin == "ddp-bucket"]
    assert [e.op for e in found] == ops
    assert all(e.numel == 5 and e.site is not None and e.site.function == "hook" for e in found)
    assert bool(run.local_steps()) is local
    assert any("2 times too large" in note for note in run.notes) is noted
    assert run.bounds == []


def test_a_hook_that_is_not_known_is_a_bound(tmp_path: Path) -> None:
    top = "from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import some_hook as hook\n"
    run = predicted(tmp_path, top + HOOK.format(body="pass").replace("def hook(state, bucket):\n    pass\n", ""))
    assert [bound.split(": ")[1] for bound in run.bounds] == ["the communication hook some_hook is not followed"]
    assert "some_hook is not followed" in run_text.render(Predicted(run, run.kind, run.why, None, ()), "script.py")


def test_the_backward_of_an_autograd_function_is_run_with_what_it_saved(tmp_path: Path) -> None:
    body = FUNCTION.format(body="dist.all_reduce(ctx.saved_tensors[0])", options="").replace(
        "return x * 2", "ctx.save_for_backward(torch.ones(7)); return x * 2"
    )
    run = predicted(tmp_path, body + "F.apply(model(torch.ones(2, 4))).mean().backward()\n")
    assert sizes(run, "user") == [(7, "float32")]
    assert [e.origin for e in run.collectives(0)][-2:] == ["user", "ddp-bucket"]
    assert run.bounds == []
    quiet = body + "with torch.no_grad():\n    F.apply(model(torch.ones(2, 4)))\nF.apply(torch.ones(3))\n"
    assert sizes(predicted(tmp_path, quiet), "user") == []


def test_where_a_functions_collectives_stand_among_several_buckets_is_a_bound(tmp_path: Path) -> None:
    options = ", find_unused_parameters=True, bucket_cap_mb=0.00001"
    body = FUNCTION.format(body="dist.all_reduce(grad)", options=options)
    run = predicted(tmp_path, body + "F.apply(model(torch.ones(2, 4))).mean().backward()\n")
    assert any("order of gradient buckets" in bound for bound in run.bounds)


def test_a_group_of_members_alone(tmp_path: Path) -> None:
    body = "own = dist.new_group([rank], use_local_synchronization=True)\ndist.all_reduce(torch.ones(3), group=own)\n"
    run = predicted(tmp_path, body)
    groups = [run.collectives(rank)[0].group for rank in (0, 1)]
    assert len(set(groups)) == 2 and run.kind == "completes"
    other = "own = dist.new_group([0], use_local_synchronization=True)\ndist.all_reduce(torch.ones(3), group=own)\n"
    run = predicted(tmp_path, other)  # rank 1 is no member: its group is None, which means the default one
    assert [run.collectives(rank)[0].group == "default" for rank in (0, 1)] == [False, True]
    assert run.kind == "hangs"


def test_what_fsdp2_sends_is_a_bound_that_says_what_is_different(tmp_path: Path) -> None:
    body = "from torch.distributed.fsdp import fully_shard\nnet = nn.Linear(4, 1)\nfully_shard(net)\nnet(torch.ones(2, 4)).mean().backward()\n"
    run = predicted(tmp_path, body)
    assert run.collectives(0) == []
    assert any("gathers parameters in every forward" in bound and "DDP" in bound for bound in run.bounds)
    assert "fully_shard" in run_text.render(Predicted(run, run.kind, run.why, None, ()), "script.py")
    assert run.certain == {0: 0, 1: 0}


def test_names_that_the_wrapper_ignores(tmp_path: Path) -> None:
    body = (
        "net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))\nnet._ddp_params_and_buffers_to_ignore = {names}\nmodel = DDP(net)\n"
    )
    run = predicted(tmp_path, body.format(names='["0.weight"]') + "model(torch.ones(2, 4)).mean().backward()\n")
    assert sizes(run, "ddp-constructor")[-1] == (3 + 4, "float32")
    assert sizes(run, "ddp-bucket") == [(7, "float32")]
    run = predicted(tmp_path, body.format(names="os.environ['NAMES'].split()"))
    assert any("ignores is not known" in bound for bound in run.bounds)


def test_power_sgd_over_several_buckets_is_a_race(tmp_path: Path) -> None:
    body = (
        "from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook\n"
        "model = DDP(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), bucket_cap_mb={cap})\n"
        "model.register_comm_hook(PowerSGDState(None, 1, {start}), powerSGD_hook)\n"
        "for _ in range(3):\n    model(torch.ones(4, 64)).mean().backward()\n"
    )
    run = predicted(tmp_path, body.format(cap=25, start=2))
    assert [n for n, _ in sizes(run, "ddp-bucket")][-3:] == [2 * 64, 2 * 64, 2 * 64] and run.bounds == []
    run = predicted(tmp_path, body.format(cap=0.01, start=2))
    assert any("PowerSGD" in bound for bound in run.bounds)
    assert "start_powerSGD_iter" in predicted(tmp_path, body.format(cap=25, start=1)).raised[0]


@pytest.mark.parametrize(
    ("before", "after", "local"),
    [
        ("", "model.to('cuda')", True),
        ("", "model.module.to(torch.device('cuda', 0))", True),
        ("", "model.to('meta')", True),
        ("", "model.to(0)", True),
        ("", "model.cuda()", True),
        ("net.cuda()", "model.to('cuda:0')", False),
        ("", "model.to('cpu')", False),
        ("", "model.to(torch.float32)", False),
        ("", "model.to(torch.device('cuda' if torch.cuda.is_available() else 'cpu'))", False),
        ("net.to(os.environ['DEVICE'])", "model.to('cuda')", False),
    ],
)
def test_a_move_to_another_device_after_the_wrap(tmp_path: Path, before: str, after: str, local: bool) -> None:
    body = (
        f"net = nn.Linear(4, 1)\n{before}\nmodel = DDP(net)\n{after}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(2, 4)).mean().backward()\noptimizer.step()\n"
    )
    run = predicted(tmp_path, body)
    assert bool(run.local_steps()) is local
    assert bool(sizes(run, "ddp-bucket")) is not local
    assert any("change their device" in note for note in run.notes) is local


def test_a_layer_that_was_made_on_a_device_does_not_move(tmp_path: Path) -> None:
    body = "model = DDP(nn.Linear(4, 1, device='cuda'))\nmodel.to('cuda')\nmodel(torch.ones(2, 4)).mean().backward()\n"
    assert len(sizes(predicted(tmp_path, body), "ddp-bucket")) == 1
