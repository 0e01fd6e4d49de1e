"""Examples of the rules on data, process groups and checkpoints under torchrun, on two ranks: the fault shows in the bad ones only.

Starting torch is the greater part of such a run, so one job runs several examples after each other, each with its own group.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from found import audited, findings, rules

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD
from ddp_audit.findings import Finding
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

torch = pytest.importorskip("torch")

# Runs [name, script, arguments] after each other; what each prints, or the exception that leaves it, goes to a file a rank.
# What a script made is kept to the end: the destructor of a gloo group that a reducer still holds can wait for ever.
DRIVER = """
import contextlib, io, json, os, pathlib, sys

plan, port, kept = json.loads(sys.argv[1]), int(sys.argv[2]), []
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
for number, (name, script, arguments) in enumerate(plan):
    os.environ["MASTER_PORT"] = str(port + number)
    sys.argv = [script, *arguments]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            kept.append({"__name__": "__main__"})
            exec(compile(pathlib.Path(script).read_text(), script, "exec"), kept[-1])
        except Exception as error:
            kept.append(error)
            print("failed:", type(error).__name__, error)
    pathlib.Path(f"{name}.{os.environ['RANK']}.out").write_text(said.getvalue())
"""
END = "os._exit(0)"


def torchrun(folder: Path, *words: str, code: int = 0) -> None:
    """Runs a script or module on two ranks; its exit code must be `code`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == code, run.stdout + run.stderr


def run_in_order(folder: Path, scripts: dict[str, str], plan: list[tuple[str, str, list[str]]], *before: str) -> None:
    """Writes scripts and runs a plan of (name, script, arguments) in one job; `before` stands before the driver."""
    driver = DRIVER if before else f"{DRIVER}{END}\n"  # a tracer writes its end when the interpreter does
    for name, text in {**scripts, "driver": driver}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = min(probe.getsockname()[1], 65_000 - len(plan))
    steps = [(name, f"{script}.py", arguments) for name, script, arguments in plan]
    torchrun(folder, *before, "driver.py", json.dumps(steps), str(port))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the two ranks printed in each run of the plan."""
    folder = tmp_path_factory.mktemp("examples")
    every = rules()
    scripts = {f"{kind}_{code}": getattr(every[f"DDP{code}"], kind) for code in (302, 309, 601, 605) for kind in ("bad", "good")}
    scripts |= {f"quiet_{kind}_309": scripts[f"{kind}_309"].replace("and rank == 0", "and rank == 2") for kind in ("bad", "good")}
    plan: list[tuple[str, str, list[str]]] = [(name, name, []) for name in scripts]
    run_in_order(folder, scripts, plan)
    return {name: [(folder / f"{name}.{rank}.out").read_text() for rank in (0, 1)] for name, _, _ in plan}


def parts(texts: list[str], pattern: str) -> list[list[str]]:
    """What a pattern finds in the output of each rank, in order."""
    found = [re.findall(pattern, text) for text in texts]
    assert all(found), texts
    return found


def finding_in(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Finding:
    """The one finding of a rule in a script `train.py` of a folder."""
    monkeypatch.chdir(folder)
    (found,) = findings(code, audited(folder, text))
    return found


def batches(run: RecordedRun, script: str) -> list[list[str]]:
    """The fingerprints of the batches that each rank trained on in a script."""
    return [
        [
            str(event.detail["batch"])
            for event in rank.events
            if event.kind == FORWARD and event.site is not None and event.site.path.endswith(script)
        ]
        for _, rank in sorted(run.ranks.items())
    ]


def test_data_not_sharded_and_missing_set_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sharded, epochs = rules()["DDP301"], rules()["DDP302"]
    # The audited file is called train.py; one job has one trace, so each example is found there by its own name.
    scripts = {"whole": sharded.bad, "part": sharded.good, "epochs": epochs.bad}
    run_in_order(tmp_path, scripts, [(name, name, []) for name in scripts], "-m", "ddp_audit.trace", "--directory", "traced")
    run = load_run(tmp_path / "traced")
    first, second = batches(run, "whole.py")
    assert first == second and len(first) == 8
    first, second = batches(run, "part.py")
    assert not set(first) & set(second) and len(first) == 4
    for rule, script in ((sharded, "whole.py"), (epochs, "epochs.py")):
        finding = finding_in(rule.code, tmp_path, monkeypatch, rule.bad)
        finding.related = [type(r)(script, r.line, r.role, r.text) for r in finding.related]
        assert rule.verify(finding, run) == "confirmed"


def test_order_of_epochs(said: dict[str, list[str]]) -> None:
    assert all(len(orders) == 3 and len(set(orders)) == 1 for orders in parts(said["bad_302"], r"began with (.*)"))
    assert all(len(set(orders)) == 3 for orders in parts(said["good_302"], r"began with (.*)"))


def test_random_windows(said: dict[str, list[str]]) -> None:
    bad, without = (parts(said[name], r"starts (.*)") for name in ("bad_309", "quiet_bad_309"))
    windows = [{int(start) for text in rank for start in re.findall(r"\d+", text)} for rank in bad]
    assert windows[0] & windows[1]
    assert without[1] == bad[1] and without[0] != bad[0]
    good, without = (parts(said[name], r"starts (.*)") for name in ("good_309", "quiet_good_309"))
    assert good == without


def test_process_group_not_destroyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rules()["DDP604"]
    for kind, verdict in (("bad", "confirmed"), ("good", "not-observed")):
        (tmp_path / "train.py").write_text(getattr(rule, kind), encoding="utf-8")
        torchrun(tmp_path, "-m", "ddp_audit.trace", "--directory", kind, "train.py", "--fail", code=1)
        finding = finding_in("DDP604", tmp_path, monkeypatch, rule.bad)
        assert rule.verify(finding, load_run(tmp_path / kind)) == verdict


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the forced device is there")
def test_device_forced(said: dict[str, list[str]]) -> None:
    assert all(text.startswith("failed:") for text in said["bad_605"])
    assert said["good_605"] == ["", ""]


def test_rank_as_device_runs_on_one_node(said: dict[str, list[str]]) -> None:
    """The fault wants a second node with GPUs; on one node both examples run to the end."""
    assert said["bad_601"] == said["good_601"] == ["", ""]
