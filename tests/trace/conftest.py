"""The native kernel for the tests of the tracer."""

from __future__ import annotations

import os

import pytest

from ddp_audit.trace.build import ensure_built, find_compiler
from ddp_audit.trace.worker.native import build_path, is_built


@pytest.fixture(scope="session")
def native_build() -> str:
    """The path of the native kernel's build. It is built once, which takes a minute, and kept from session to session."""
    if not is_built(build_path()):
        if find_compiler() is None:
            pytest.skip("no C++ compiler for the native kernel")
        if os.environ.get("DDP_AUDIT_TEST_NATIVE") == "0":
            pytest.skip("the native kernel is not built, and DDP_AUDIT_TEST_NATIVE is 0")
        told: list[str] = []
        assert ensure_built(told.append), told
    return build_path()
