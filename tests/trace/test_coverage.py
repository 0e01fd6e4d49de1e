"""Every way to communicate is recorded, with the user's line, by both kernels; the page in the documentation says what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from coverage_table import PAGE, page, rows, trace_calls, unplaced

pytestmark = pytest.mark.traced


@pytest.mark.parametrize("kernel", ["off", "on"])
def test_every_call_is_recorded_with_its_line(kernel: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kernel == "on":
        request.getfixturevalue("native_build")
    run, failed = trace_calls(tmp_path, kernel)
    table = rows(run, failed)
    ran = [row for row in table if not row.failed]
    assert {row.name for row in table if row.failed} <= {"SyncBatchNorm"}  # needs a GPU
    assert {row.name: ",".join(row.operations) for row in ran} == {row.name: row.expected for row in ran}
    assert all(row.placed for row in ran)
    assert page(table, unplaced(run)) == PAGE.read_text(encoding="utf-8")
