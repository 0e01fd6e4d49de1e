"""What holds for all tests: the cache of audits lies in a folder of the test's own, no drawn example fails for being slow, and which
kernel records is settled.

Tests that trace real runs have the mark `traced`. Where they do not name a kernel, the modules of such tests take turns: one half of
them runs with the Python kernel and the other with the native one, whatever was built before. DDP_AUDIT_TEST_KERNEL=python or native
settles it for all (`make test-python`, `make test-native`).

Tests that repeat a mechanism which a cheaper one shows have the mark `nightly`: skipped without `--nightly`, whatever else selects
them (`make nightly`).
"""

from __future__ import annotations

import functools
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run what has the mark nightly")


LONGEST = ("cases/test_pages_run.py", "trainer/test_trainer_hazards.py", "cases/test_mended_runs.py")  # minutes, with few tests


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The files that take long go first, then those with many tests, so that no process works alone at the end.
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (not item.path.as_posix().endswith(LONGEST), -counts[item.path]))
    if not config.getoption("--nightly"):
        for item in items:
            if item.get_closest_marker("nightly") is not None:
                item.add_marker(pytest.mark.skip(reason="runs with --nightly"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold cache for each test, and for the processes that it starts."""
    monkeypatch.setenv("DDP_AUDIT_CACHE", str(tmp_path_factory.mktemp("cache")))


@functools.cache
def why_no_native() -> str:
    """Builds the native kernel where that has not been done, which takes a minute. Empty, or why there is none here."""
    from ddp_audit.trace.build import ensure_built, find_compiler
    from ddp_audit.trace.worker.native import build_path, is_built

    if not is_built(build_path()):
        if find_compiler() is None:
            return "no C++ compiler for the native kernel"
        if os.environ.get("DDP_AUDIT_TEST_NATIVE") == "0":
            return "the native kernel is not built, and DDP_AUDIT_TEST_NATIVE is 0"
        told: list[str] = []
        assert ensure_built(told.append), told
    return ""


@pytest.fixture(scope="session")
def native_build() -> str:
    """The path of the native kernel's build, which is kept from session to session."""
    why = why_no_native()
    if why:
        pytest.skip(why)
    from ddp_audit.trace.worker.native import build_path

    return build_path()


def kernel_of(module: str) -> str:
    """The kernel that records in the tests of a module, as DDP_AUDIT_NATIVE names it."""
    asked = os.environ.get("DDP_AUDIT_TEST_KERNEL") or ("python", "native")[sum(module.encode()) & 1]
    if asked not in ("python", "native"):
        raise pytest.UsageError(f"DDP_AUDIT_TEST_KERNEL is python or native, not {asked!r}")
    return "on" if asked == "native" and not why_no_native() else "off"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of a test are made."""
    is_traced = item.get_closest_marker("traced") is not None
    os.environ["DDP_AUDIT_NATIVE"] = kernel_of(item.path.name) if is_traced else "off"
