"""What holds for all tests: the cache of audits lies in a folder of the test's own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold cache for each test, and for the processes that it starts."""
    monkeypatch.setenv("DDP_AUDIT_CACHE", str(tmp_path_factory.mktemp("cache")))
