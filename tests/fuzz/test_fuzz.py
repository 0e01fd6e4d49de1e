"""Spoiled files, alone and with the modules that they import, and programs that nobody wrote: `contract.py` holds for each.

A piece is a number of examples. Which ones follows from the commit, so that each change is held against other ones and a second run of a
change against the same; `--hypothesis-seed=N` chooses a piece, and `make fuzz PIECES=N` runs many. What fails is printed, as small as it
was found to fail.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from contract import uphold, uphold_project
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from mutations import mutated
from programs import program
from projects import Files, changed, project

Drawn = TypeVar("Drawn")

PIECE = settings(
    max_examples=int(os.environ.get("DDP_AUDIT_FUZZ_EXAMPLES", "60")),
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def _drawn(draw: Callable[..., random.Random], make: Callable[[random.Random], Drawn]) -> Drawn:
    return make(draw(st.randoms(use_true_random=False)))


@PIECE
@given(_drawn(mutated))
def test_spoiled_files(data: bytes) -> None:
    note(data.decode("utf-8", "backslashreplace"))
    uphold(data)


@settings(PIECE, max_examples=max(1, PIECE.max_examples // 4))
@given(_drawn(lambda random: (files := project(random), changed(files, random))))
def test_programs_of_several_files(drawn: tuple[Files, Files]) -> None:
    for name, data in drawn[0].items():
        note(f"--- {name}\n{data.decode('utf-8', 'backslashreplace')}")
    note(f"then other ones: {sorted(name for name in drawn[1] if drawn[1][name] != drawn[0].get(name))}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "project").mkdir()
        uphold_project(*drawn, Path(folder) / "project")


@PIECE
@given(_drawn(lambda random: program(random).encode()))
def test_programs_that_nobody_wrote(data: bytes) -> None:
    note(data.decode())
    uphold(data)
