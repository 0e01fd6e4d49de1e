"""What holds for all tests: the cache of audits lies in a folder of the test's own, and no drawn example fails for being slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold cache for each test, and for the processes that it starts."""
    monkeypatch.setenv("DDP_AUDIT_CACHE", str(tmp_path_factory.mktemp("cache")))
