"""What made a collective between the user's line and torch: an installed package, or a part of torch that communicates by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.compare.explain import name
from ddp_audit.events import COLLECTIVE, Event
from ddp_audit.trace.worker.frames import Frames, Stack

CALLS = "def call(inner, *rest):\n    return inner(*rest)\n"


@pytest.fixture
def called(tmp_path: Path) -> Callable[[list[str]], Stack]:
    """The stack of a collective that files call in a row, outermost first, each given by its path."""

    def run(paths: list[str]) -> Stack:
        walker = Frames(lambda frames: 1, str(tmp_path / "lib" / "torch"), str(tmp_path))
        calls: list[Callable[..., Any]] = []
        for path in paths:
            space: dict[str, Any] = {}
            exec(compile(CALLS, str(tmp_path / path), "exec"), space)
            calls.append(space["call"])
        found: Stack = calls[0](*calls[1:], lambda: walker.at(sys._getframe(1)))
        return found

    return run


INSTALLED = "lib/site-packages"


@pytest.mark.parametrize(
    ("between", "library"),
    [
        ([], ""),
        (["lib/torch/distributed/distributed_c10d.py"], ""),
        ([f"{INSTALLED}/accelerate/utils/operations.py", "lib/torch/distributed/distributed_c10d.py"], "accelerate"),
        ([f"{INSTALLED}/transformers/trainer.py", f"{INSTALLED}/accelerate/state.py"], "transformers"),
        ([f"{INSTALLED}/single_file.py"], "single_file"),
        (["lib/torch/nn/modules/module.py", "lib/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"], "FSDP2"),
        (["lib/torch/distributed/nn/functional.py"], ""),
    ],
)
def test_the_library_that_the_users_line_called(called: Callable[[list[str]], Stack], between: list[str], library: str) -> None:
    found = called(["train.py", *between])
    assert found.issuer == library
    assert found.frames and found.frames[0][0] == "train.py"


def test_a_library_that_calls_the_user_back_made_nothing(called: Callable[[list[str]], Stack]) -> None:
    assert called(["train.py", f"{INSTALLED}/lightning/trainer.py", "my_train.py"]).issuer == ""


def test_how_it_is_told() -> None:
    gather = Event(COLLECTIVE, "all_gather", numel=72, dtype="float32", detail={"library": "FSDP2"})
    assert name(gather) == "all_gather of 72 float32 by FSDP2"
    assert gather.what == "all_gather of 72 float32 (by FSDP2)"
