"""The way to a node: guards and who passes them, early exits, loops, calls, no_sync blocks, gradients, finally."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asked import line_of, only, who

from ddp_audit.program.model import Branch, CallItem, LoopItem, Node, Program, TryItem
from ddp_audit.program.nodes import Backward, Collective, Destroy, Forward, Iterate, LoaderMade, Wrap
from ddp_audit.program.values import World, truth

Lowered = Callable[..., Program]
RANK_0 = [True, False, False, False]
NOT_RANK_0 = [False, True, True, True]
ALL = [True] * 4


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if dist.get_rank() == 0:\n    dist.barrier()", RANK_0),
        ("if not dist.get_rank():\n    dist.barrier()", RANK_0),
        ("if dist.get_rank() != 0:\n    pass\nelse:\n    dist.barrier()", RANK_0),
        ("main = dist.get_rank() == 0\nif main:\n    dist.barrier()", RANK_0),
        ("main = dist.get_rank() == 0\nif not main:\n    dist.barrier()", NOT_RANK_0),
        ("if dist.get_rank() <= 0 and True:\n    dist.barrier()", RANK_0),
        ("if int(os.environ['LOCAL_RANK']) == 0:\n    dist.barrier()", [True, False, True, False]),
        ("if dist.get_rank() in [-1, 0]:\n    dist.barrier()", RANK_0),
        ("def main():\n    if dist.get_rank():\n        return\n    dist.barrier()\nmain()", RANK_0),
        ("def main():\n    for i in range(2):\n        if dist.get_rank():\n            continue\n"
        "        dist.barrier()\nmain()", RANK_0),
        ("def is_main():\n    return dist.get_rank() == 0\nif is_main():\n    dist.barrier()", RANK_0),
        ("def is_main():\n    if dist.get_rank() == 0:\n        return True\n    return False\nif is_main():\n"
        "    dist.barrier()", RANK_0),
        ("class T:\n    def __init__(self):\n        self.main = dist.get_rank() == 0\n    def go(self):\n"
         "        if self.main:\n            dist.barrier()\nT().go()", RANK_0),
        ("def save():\n    dist.barrier()\nif dist.get_rank() == 0:\n    save()", RANK_0),
        ("from lightning_utilities import rank_zero_only\n@rank_zero_only\ndef save():\n    dist.barrier()\nsave()", RANK_0),
        ("import sys\nif dist.get_rank() != 0:\n    sys.exit(0)\ndist.barrier()", RANK_0),
        ("dist.get_rank() == 0 and dist.barrier()", RANK_0),
        ("dist.barrier() if dist.get_rank() == 0 else None", RANK_0),
        ("if dist.is_initialized() and dist.get_rank() == 0:\n    dist.barrier()", RANK_0),
        ("match dist.get_rank():\n    case 0:\n        dist.barrier()", RANK_0),
        ("match dist.get_rank():\n    case 0:\n        pass\n    case _:\n        dist.barrier()", NOT_RANK_0),
        ("match dist.get_rank():\n    case 1 | 2 | 3:\n        dist.barrier()", NOT_RANK_0),
        ("match dist.get_rank():\n    case r if r < 1:\n        dist.barrier()", RANK_0),
        ("match (dist.get_rank(), dist.get_world_size()):\n    case (0, _):\n        dist.barrier()", RANK_0),
        ("match dist.get_rank() == 0:\n    case True:\n        dist.barrier()", RANK_0),
        ("match dist.get_rank():\n    case 0:\n        main = True\n    case _:\n        main = False\n"
         "if main:\n    dist.barrier()", RANK_0),
        ("match dist.get_rank():\n    case n if n > 0:\n        raise SystemExit\ndist.barrier()", RANK_0),
        ("while dist.get_rank() == 0:\n    dist.barrier()\n    break", RANK_0),
        ("if dist.get_world_size() > 1:\n    dist.barrier()", ALL),
        ("if dist.is_initialized():\n    dist.barrier()", ALL),
        ("if int(os.environ.get('RANK', -1)) != -1:\n    dist.barrier()", ALL),
        ("assert dist.get_rank() == 0\ndist.barrier()", ALL),
    ],
)  # fmt: skip
def test_who_gets_to_a_barrier(lowered: Lowered, source: str, expected: list[bool]) -> None:
    program = lowered(source + "\n")
    assert who(only(program, Collective)) == expected


def test_local_data_guard_has_its_taint(lowered: Lowered) -> None:
    program = lowered(
        "model = DDP(torch.nn.Linear(2, 1))\n"
        "for x in DataLoader(data):\n"
        "    loss = model(x).sum()\n"
        "    if torch.isnan(loss):\n"
        "        continue\n"
        "    loss.backward()\n"
    )
    backward = only(program, Backward)
    assert [sorted(g.taint) for g in backward.rank_guards] == [["local data"]]
    assert backward.rank_guards[0].via == "early-exit"
    assert who(backward) == [None] * 4
    assert [n.span.line for n in program.forwards_of(backward.target)] == [line_of(program, "loss = model(x)")]


def test_all_reduce_settles_a_local_condition(lowered: Lowered) -> None:
    program = lowered(
        "model = DDP(torch.nn.Linear(2, 1))\n"
        "for x in DataLoader(data):\n"
        "    loss = model(x).sum()\n"
        "    bad = torch.isnan(loss).float()\n"
        "    dist.all_reduce(bad)\n"
        "    if bad > 0:\n"
        "        continue\n"
        "    loss.backward()\n"
    )
    assert only(program, Backward).rank_guards == ()


def test_calls_lead_to_a_node(lowered: Lowered) -> None:
    program = lowered("def inner():\n    dist.barrier()\ndef outer():\n    inner()\nouter()\nouter()\n")
    found = list(program.of(Collective))
    lines = [line_of(program, "    inner()"), line_of(program, "    dist.barrier()")]
    assert [[s.line for s in n.calls][1:] for n in found] == [lines[:1], lines[:1]]
    assert {n.span.line for n in found} == {lines[1]}
    assert found[0].calls[0].line + 1 == found[1].calls[0].line
    assert [type(item) for item in program.tree if not isinstance(item, Node)] == [CallItem, CallItem]


def test_recursion_ends(lowered: Lowered) -> None:
    program = lowered("def again(n):\n    dist.barrier()\n    if n:\n        again(n - 1)\nagain(3)\n")
    only(program, Collective)


def test_loops_around(lowered: Lowered) -> None:
    program = lowered(
        "model = DDP(torch.nn.Linear(2, 1))\n"
        "loader = DataLoader(data)\n"
        "for epoch in range(3):\n"
        "    for i, (x, y) in enumerate(loader):\n"
        "        model(x).sum().backward()\n"
    )
    backward = only(program, Backward)
    assert [loop.epochs for loop in backward.loops] == [True, False]
    assert [loop.kind for loop in backward.loops] == ["for", "for"]
    iterate = only(program, Iterate)
    made = only(program, LoaderMade).object
    assert iterate.object is not None and made is not None and iterate.object.key == made.key
    outer = next(item for item in program.tree if isinstance(item, LoopItem))
    assert any(isinstance(item, LoopItem) for item in outer.body)


def test_loop_over_a_rank_dependent_range_has_its_taint(lowered: Lowered) -> None:
    program = lowered("for i in range(dist.get_rank()):\n    dist.barrier()\n")
    assert only(program, Collective).loops[0].taint == {"rank"}


def test_branches_in_the_tree(lowered: Lowered) -> None:
    program = lowered("if dist.get_rank() == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n")
    branch = next(item for item in program.tree if isinstance(item, Branch))
    assert len(branch.then) == len(branch.orelse) == 1
    assert branch.guard.polarity and branch.guard.ranks() == "only rank 0"
    assert [who(n) for n in program.of(Collective)] == [RANK_0, NOT_RANK_0]


def test_try_and_finally(lowered: Lowered) -> None:
    program = lowered(
        "dist.init_process_group('gloo')\n"
        "try:\n"
        "    dist.barrier()\n"
        "except RuntimeError:\n"
        "    dist.all_reduce(torch.ones(1))\n"
        "finally:\n"
        "    dist.destroy_process_group()\n"
    )
    barrier, reduce = program.of(Collective)
    assert barrier.tries and not reduce.tries
    assert reduce.rank_guards[0].taint == {"an exception"}
    assert only(program, Destroy).in_finally
    item = next(i for i in program.tree if isinstance(i, TryItem))
    assert len(item.body) == len(item.handlers[0]) == len(item.final) == 1


@pytest.mark.parametrize(
    "source",
    [
        "with model.no_sync():\n    loss = model(x).sum()\nloss.backward()",
        "from contextlib import nullcontext\nctx = nullcontext() if last else model.no_sync()\nwith ctx:\n"
        "    loss = model(x).sum()",
        "from contextlib import nullcontext\nctx = model.no_sync if not last else nullcontext\nwith ctx():\n"
        "    loss = model(x).sum()",
        "from contextlib import nullcontext\ndef context(net):\n    if last:\n        return nullcontext()\n"
        "    return net.no_sync()\n"
        "with context(model):\n    loss = model(x).sum()",
        "import contextlib\nif not last:\n    ctx = model.no_sync()\nelse:\n    ctx = contextlib.nullcontext()\n"
        "with ctx:\n    loss = model(x).sum()",
        "from contextlib import ExitStack\nwith ExitStack() as stack:\n    if not last:\n"
        "        stack.enter_context(model.no_sync())\n"
        "    loss = model(x).sum()",
        "import contextlib\n@contextlib.contextmanager\ndef quiet(net, on):\n    if on:\n        with net.no_sync():\n"
        "            yield\n"
        "    else:\n        yield\nwith quiet(model, not last):\n    loss = model(x).sum()",
    ],
)
def test_no_sync_blocks(lowered: Lowered, source: str) -> None:
    program = lowered(f"model = DDP(torch.nn.Linear(2, 1))\nx = torch.ones(2)\nlast = bool(os.getpid() % 2)\n{source}\n")
    forward = next(program.of(Forward))
    assert len(forward.no_sync) == 1
    block = forward.no_sync[0]
    wrap = only(program, Wrap)
    assert block.wrapper is not None and wrap.object is not None and block.wrapper.key == wrap.object.key
    if source.startswith("with model"):
        assert block.test is None
        assert only(program, Backward).no_sync == ()
        return
    assert block.test is not None
    for last in (True, False):
        holds = truth(block.test, World(0, 2, 2, {"last": last}))
        if holds is not None:
            assert (holds == block.polarity) is (not last)


@pytest.mark.parametrize(
    ("source", "grad"),
    [
        ("model(x)", True),
        ("with torch.no_grad():\n    model(x)", False),
        ("with torch.inference_mode():\n    model(x)", False),
        ("@torch.no_grad()\ndef test():\n    model(x)\ntest()", False),
        ("@torch.inference_mode()\ndef test():\n    model(x)\ntest()", False),
        ("with torch.no_grad():\n    with torch.enable_grad():\n        model(x)", True),
        ("with torch.set_grad_enabled(False):\n    model(x)", False),
        ("torch.set_grad_enabled(False)\nmodel(x)", False),
        ("class T:\n    @torch.no_grad()\n    def test(self):\n        model(x)\nT().test()", False),
        ("def test():\n    with torch.no_grad():\n        return\n    pass\ntest()\nmodel(x)", True),
    ],
)
def test_gradients(lowered: Lowered, source: str, grad: bool) -> None:
    program = lowered(f"model = DDP(torch.nn.Linear(2, 1))\nx = torch.ones(2)\n{source}\n")
    assert only(program, Forward).grad is grad


@pytest.mark.parametrize(
    ("made", "asked", "reached"),
    [
        ("torch.cuda.is_available()", "torch.cuda.is_available()", True),
        ("torch.cuda.is_available()", "not torch.cuda.is_available()", False),
        ("len(os.environ) > 3 and torch.cuda.is_available()", "torch.cuda.is_available() and True", True),
        ("torch.cuda.is_available()", "torch.cuda.is_bf16_supported()", None),
        ("True", "not torch.cuda.is_available()", None),
    ],
)
def test_what_the_group_rests_on_is_answered_alike_later(lowered: Lowered, made: str, asked: str, reached: bool | None) -> None:
    text = f"def init():\n    if {made}:\n        dist.init_process_group('nccl')\ninit()\nif {asked}:\n    dist.barrier()\n"
    found = [node.guards for node in lowered(text).of(Collective)]
    assert found == ([] if reached is False else found)
    assert bool(found) is (reached is not False)
    assert not found or bool(found[0]) is (reached is None)
