"""Examples of rules whose findings the tracer's looks confirm, run under it on two ranks, all in one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from found import rules
from test_data_and_device_runs import finding_in, run_in_order

from ddp_audit.trace.store import load_run

pytest.importorskip("torch")

EVALUATED = """\
    net.eval()
    with torch.no_grad():
        error = net(points.tensors[0]).pow(2).mean()
    dist.all_reduce(error)
"""


CASES = Path(__file__).parents[1] / "cases"


def test_what_the_looks_confirm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {f"bad{code}": rules()[f"DDP{code}"].bad for code in (102, 208, 402, 703, 802)}
    scripts["bad402"] = scripts["bad402"].replace("finally:", f"{EVALUATED}finally:")
    scripts["scaled804"] = (CASES / "ddp804" / "clip_before_unscale" / "bad.py").read_text()
    scripts["early804"] = (CASES / "ddp804" / "clip_each_micro_batch" / "bad.py").read_text()
    scripts["undivided802"] = (CASES / "ddp802" / "window_not_divided" / "bad.py").read_text()
    run_in_order(tmp_path, scripts, [(name, name, []) for name in scripts], "-m", "ddp_audit.trace", "--directory", "traced")
    run = load_run(tmp_path / "traced")
    for name, text in scripts.items():
        assert [(tmp_path / f"{name}.{rank}.out").read_text().count("failed:") for rank in (0, 1)] == [0, 0]
        code = f"DDP{name[-3:]}"
        finding = finding_in(code, tmp_path, monkeypatch, text)
        finding.span = replace(finding.span, path=f"{name}.py")
        finding.related = [replace(one, path=f"{name}.py") for one in finding.related]
        assert rules()[code].verify(finding, run) == "confirmed", name
