"""Spoiled files and programs that nobody wrote: `contract.py` holds for each.

A piece is a number of examples. Which ones follows from the commit, so that each change is held against other ones and a second run of a
change against the same; `--hypothesis-seed=N` chooses a piece, and `make fuzz PIECES=N` runs many. What fails is printed, as small as it
was found to fail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from contract import uphold
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from mutations import mutated
from programs import program

PIECE = settings(
    max_examples=int(os.environ.get("DDP_AUDIT_FUZZ_EXAMPLES", "60")),
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def _drawn(draw: Callable[..., random.Random], make: Callable[[random.Random], bytes]) -> bytes:
    return make(draw(st.randoms(use_true_random=False)))


@PIECE
@given(_drawn(mutated))
def test_spoiled_files(data: bytes) -> None:
    note(data.decode("utf-8", "backslashreplace"))
    uphold(data)


@PIECE
@given(_drawn(lambda random: program(random).encode()))
def test_programs_that_nobody_wrote(data: bytes) -> None:
    note(data.decode())
    uphold(data)
