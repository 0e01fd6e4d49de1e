"""Fixes that move blocks: no_sync() (DDP113), collectives (DDP201), the end of the group (DDP604), saves (DDP701)."""

from __future__ import annotations

import pytest
from mending import HEAD, mended, refusals, text_after


def loop(*lines: str) -> str:
    return HEAD + "for step in range(8):\n" + "".join(f"    {line}\n" for line in lines) + "dist.destroy_process_group()\n"


# DDP113


def test_two_arms_with_one_backward_become_one_block() -> None:
    before = loop(
        "x = torch.randn(8, 4)",
        "",
        "# forward",
        "loss = model(x).mean() / 2",
        "# backward",
        "if (step + 1) % 2 != 0:",
        "    with model.no_sync():  # nothing is sent",
        "        loss.backward()",
        "else:",
        "    loss.backward()  # reduces",
        "    optimizer.step()",
        "    optimizer.zero_grad()",
    )
    after = loop(
        "x = torch.randn(8, 4)",
        "",
        "with model.no_sync() if (step + 1) % 2 != 0 else nullcontext():  # nothing is sent",
        "    # forward",
        "    loss = model(x).mean() / 2",
        "    # backward",
        "    loss.backward()  # reduces",
        "if (step + 1) % 2 == 0:",
        "    optimizer.step()",
        "    optimizer.zero_grad()",
    )
    outcome = mended(before, "DDP113")
    assert text_after(outcome) == "from contextlib import nullcontext\n\n" + after
    assert mended(text_after(outcome), "DDP113").changed == []


def test_the_block_may_stand_in_the_other_arm() -> None:
    before = loop(
        "loss = model(torch.randn(8, 4)).mean()",
        "if step % 2:",
        "    loss.backward()",
        "    optimizer.step()",
        "else:",
        "    with model.no_sync():",
        "        loss.backward()",
    )
    after = loop(
        "with nullcontext() if step % 2 else model.no_sync():",
        "    loss = model(torch.randn(8, 4)).mean()",
        "    loss.backward()",
        "if step % 2:",
        "    optimizer.step()",
    )
    assert text_after(mended(before, "DDP113")) == "from contextlib import nullcontext\n\n" + after


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ("if step % 2:", "    with model.no_sync():", "        loss.backward()", "else:", "    (2 * loss).backward()"),
            "same backward",
        ),
        (
            ("if step % 2:", "    with model.no_sync():", "        loss.backward()", "    print()", "else:", "    loss.backward()"),
            "stand alone",
        ),
        (
            ("last = step % 2", "if last:", "    with model.no_sync():", "        loss.backward()", "else:", "    loss.backward()"),
            "depends on last",
        ),
        (
            (
                "if bool(step % 2):",
                "    with model.no_sync():",
                "        loss.backward()",
                "else:",
                "    loss.backward()",
                "    optimizer.step()",
            ),
            "asked twice",
        ),
        (
            (
                "if step % 2:",
                "    with model.no_sync():",
                "        loss.backward()",
                "# now",
                "else:",
                "    # reduces",
                "    loss.backward()",
            ),
            "would be lost",
        ),
    ],
)
def test_arms_that_do_other_things_stay(lines: tuple[str, ...], reason: str) -> None:
    outcome = mended(loop("loss = model(torch.randn(8, 4)).mean()", *lines), "DDP113")
    assert outcome.changed == []
    assert [reason in text for text in refusals(outcome)] == [True]


# DDP201


def guarded(*lines: str) -> str:
    return HEAD + "\n# the first rank\nif rank == 0:\n" + "".join(f"    {line}\n" for line in lines) + "print()\n"


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (
            ("dist.barrier()  # all", "", "# alone", "print(1)"),
            "\ndist.barrier()  # all\n# the first rank\nif rank == 0:\n    # alone\n    print(1)\nprint()\n",
        ),
        (("print(1)", "dist.barrier()"), "\n# the first rank\nif rank == 0:\n    print(1)\ndist.barrier()\nprint()\n"),
        (("dist.barrier()",), "\n# the first rank\ndist.barrier()\nprint()\n"),
    ],
    ids=["first", "last", "only"],
)
def test_a_barrier_leaves_the_condition(lines: tuple[str, ...], after: str) -> None:
    outcome = mended(guarded(*lines), "DDP201")
    assert text_after(outcome) == HEAD + after
    assert outcome.result.findings == []


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("total = torch.ones(1)", "dist.all_reduce(total)"), "other work"),
        (("print(dist.all_reduce(torch.ones(1)))",), "not a statement of its own"),
        (("dist.barrier()", "print(1)", "pass", "pass"), ""),
    ],
)
def test_a_collective_that_needs_what_comes_before_stays(lines: tuple[str, ...], reason: str) -> None:
    outcome = mended(guarded(*lines), "DDP201")
    assert bool(outcome.changed) == (not reason)
    assert all(reason in text for text in refusals(outcome))


@pytest.mark.parametrize("test", ["rank == 0 and torch.rand(1) > 0", "rank == 0 or not data"])
def test_a_condition_on_more_than_the_rank_stays(test: str) -> None:
    assert mended(guarded("dist.barrier()", "print(1)").replace("if rank == 0:", f"if {test}:"), "DDP201").changed == []


def test_a_condition_with_another_arm_stays() -> None:
    outcome = mended(guarded("dist.barrier()", "print(1)").replace("print()\n", "else:\n    print()\n"), "DDP201")
    assert (outcome.changed, refusals(outcome)) == ([], ["the condition has other arms"])


# DDP604

WORK = "{body}\n\n\nif __name__ == '__main__':\n    main()\n"
IMPORTS = "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\n\n"


def main_of(*lines: str, imports: str = IMPORTS) -> str:
    return (
        imports
        + "def main():\n"
        + "".join(f"    {line}\n" if line else "\n" for line in lines)
        + "\n\nif __name__ == '__main__':\n    main()\n"
    )


TRAINS = ("model = DDP(torch.nn.Linear(4, 1))", "model(torch.randn(8, 4)).mean().backward()")


def test_a_destroy_moves_into_finally_with_its_condition_and_comments() -> None:
    init = 'dist.init_process_group("gloo")  # the group'
    end = ("# the end", "if dist.is_initialized():", "    dist.destroy_process_group()", 'print("done")')
    after = main_of(
        init,
        "",
        "try:",
        "    # work",
        *(f"    {line}" for line in TRAINS),
        "finally:",
        *(f"    {line}" for line in end[:3]),
        end[3],
    )
    outcome = mended(main_of(init, "", "# work", *TRAINS, *end), "DDP604")
    assert text_after(outcome) == after
    assert mended(after, "DDP604").changed == []


def test_a_destroy_is_added_behind_the_work() -> None:
    before = main_of('dist.init_process_group("gloo")', *TRAINS)
    after = main_of(
        'dist.init_process_group("gloo")',
        "try:",
        *(f"    {line}" for line in TRAINS),
        "finally:",
        "    dist.destroy_process_group()",
    )
    assert text_after(mended(before, "DDP604")) == after


def test_long_work_is_left_where_it_is_and_its_caller_waits_for_the_end() -> None:
    before = main_of('dist.init_process_group("gloo")', *TRAINS, *["print()"] * 20)
    end = "    try:\n        main()\n    finally:\n        if dist.is_initialized():\n            dist.destroy_process_group()\n"
    assert text_after(mended(before, "DDP604")) == before.replace("__main__':\n    main()\n", f"__main__':\n{end}")


def test_names_that_are_imported_from_torch_are_imported_too() -> None:
    imports = IMPORTS.replace("import torch.distributed as dist", "from torch.distributed import init_process_group")
    before = main_of("if torch.cuda.is_available() or True:", '    init_process_group("gloo")', *TRAINS, imports=imports)
    after = text_after(mended(before, "DDP604"))
    assert "from torch.distributed import destroy_process_group, init_process_group, is_initialized\n" in after
    assert "    finally:\n        if is_initialized():\n            destroy_process_group()\n" in after


@pytest.mark.parametrize(
    "text",
    [
        IMPORTS + 'dist.init_process_group("gloo")\n\n\ndef work():\n    pass\n\n\n' + "\n".join(TRAINS) + "\nwork()\n",
        IMPORTS + "\n".join(('dist.init_process_group("gloo")', *TRAINS, *["print()"] * 40, "dist.destroy_process_group()\n")),
    ],
    ids=["functions-between", "long-work-of-a-script"],
)
def test_what_cannot_be_put_into_try_stays(text: str) -> None:
    assert mended(text, "DDP604").changed == []


# DDP701


@pytest.mark.parametrize(
    ("line", "after", "safety"),
    [
        (
            "torch.save(model.module.state_dict(), 'last.pt')  # all",
            "if rank == 0:\n    torch.save(model.module.state_dict(), 'last.pt')  # all\n",
            "unsafe",
        ),
        ("os.makedirs('out')", "os.makedirs('out', exist_ok=True)\n", "unsafe"),
        (
            "if not os.path.exists('out'):\n    os.mkdir('out')",
            "if not os.path.exists('out'):\n    os.makedirs('out', exist_ok=True)\n",
            "safe",
        ),
        (
            "if not Path('out').exists():\n    Path('out').mkdir(parents=True)",
            "    Path('out').mkdir(parents=True, exist_ok=True)\n",
            "safe",
        ),
    ],
)
def test_one_rank_writes(line: str, after: str, safety: str) -> None:
    outcome = mended(f"import os\nfrom pathlib import Path\n\n{HEAD}{line}\n", "DDP701")
    assert text_after(outcome).endswith(after)
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]
    assert outcome.result.findings == []


@pytest.mark.parametrize(
    "line", ["state = torch.save(model.state_dict(), 'a.pt')", "os.mkdir('out', 0o755)", "os.makedirs('out', **{})"]
)
def test_a_write_that_is_not_understood_stays(line: str) -> None:
    assert mended(f"import os\n\n{HEAD}{line}\n", "DDP701").changed == []


def test_a_save_of_a_script_that_also_runs_alone_is_not_offered_a_guard() -> None:
    head = HEAD.replace(
        'dist.init_process_group("gloo")\nrank = dist.get_rank()',
        'if torch.cuda.device_count() > 1:\n    dist.init_process_group("gloo")',
    )
    assert mended(head + "torch.save(model.state_dict(), 'a.pt')\n", "DDP701").changed == []
