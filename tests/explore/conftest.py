"""Real ranks, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked_ranks import ForkedRanks


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkedRanks]:
    pytest.importorskip("torch")
    with ForkedRanks() as ranks:
        yield ranks
