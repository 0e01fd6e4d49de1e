"""Real ranks, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_ranks import RealRanks


@pytest.fixture(scope="session")
def real() -> Iterator[RealRanks]:
    pytest.importorskip("torch")
    with RealRanks(timeout=1.5) as ranks:
        yield ranks
