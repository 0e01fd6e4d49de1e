"""The check for a machine with a GPU: its list, its judgement of what a run left, and the result that it writes. Nothing is launched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
sys.path.insert(0, str(GPU))

import check  # noqa: E402
import checks  # noqa: E402
import judging  # noqa: E402
import writer  # noqa: E402
from subruns import Ended, TracedRun  # noqa: E402

from ddp_audit.audit import Options, audit  # noqa: E402
from ddp_audit.compare.run import RankRun, RecordedRun  # noqa: E402
from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DEVICE, Event, Site  # noqa: E402
from ddp_audit.launch import read_command  # noqa: E402
from ddp_audit_trainer.config import parse_config  # noqa: E402
from ddp_audit_trainer.hazards import HAZARDS  # noqa: E402


def agreed(**changes: Any) -> dict[str, Any]:
    """The document of a run without a fault."""
    prediction = {"agrees": True, "compared": {"0": 26, "1": 26}, "difference": None}
    document = {"world_size": 2, "verdict": "agreed", "complete": True, "divergences": [], "silent": [], "command_code": 0}
    return {**document, "prediction": prediction, "findings": [], **changes}


def ended(document: dict[str, Any], code: int | None = 0, err: str = "") -> TracedRun:
    return TracedRun(Ended(code, "", err, 3.0), Path("nowhere"), document)


def test_each_hazard_has_its_check_and_names_are_unique() -> None:
    names = [one.name for one in checks.all_checks()]
    assert len(set(names)) == len(names)
    assert {name.removeprefix("hazard-") for name in names if name.startswith("hazard-")} == set(HAZARDS)
    assert set(checks.CPU_HAZARDS) < set(HAZARDS)


def test_without_a_gpu_a_check_is_run_or_says_why_not(tmp_path: Path) -> None:
    place = checks.Place(False, tmp_path)
    known = {one.name: one.result(place) for one in checks.all_checks()}
    impossible = {name for name, result in known.items() if result and result.status == writer.NOT_POSSIBLE}
    assert impossible == {"nccl-one-rank", "nccl-two-ranks-one-device", "ranks-on-one-device"}
    assert all(known[name].said == "no CUDA device" for name in impossible)  # type: ignore[union-attr]
    run = {name for name, result in known.items() if result is None}
    assert {f"hazard-{name}" for name in checks.CPU_HAZARDS} < run
    assert {"native-kernel", "gloo-two-ranks", "bucket-lines", "tracer-cost"} < run
    with_gpu = checks.Place(True, tmp_path)
    assert all(one.result(with_gpu) is None for one in checks.all_checks())


@pytest.mark.parametrize("has_cuda", [True, False])
def test_the_trainer_knows_the_options(has_cuda: bool, tmp_path: Path) -> None:
    config = parse_config(checks.Place(has_cuda, tmp_path).device)
    assert (config.device, config.backend, config.share_device) == ("cuda" if has_cuda else "cpu", "gloo", has_cuda)


def test_a_clean_run() -> None:
    assert judging.of_clean_run(ended(agreed())) == []
    assert judging.of_clean_run(ended(agreed(command_code=1), 1, "first\nRuntimeError: no\n")) == [
        "the trainer ended with 1: first | RuntimeError: no"
    ]
    assert judging.of_clean_run(ended(agreed(findings=[{"code": "DDP101"}]))) == ["the audit finds DDP101"]
    assert judging.of_clean_run(ended(agreed(prediction=None))) == ["nothing was predicted"]
    one_rank_only = {"agrees": True, "compared": {"0": 26}, "difference": None}
    assert "compared on {'0': 26} only" in judging.of_clean_run(ended(agreed(prediction=one_rank_only)))[0]
    assert "not over after 3 s" in judging.of_clean_run(ended({}, None))[0]
    assert judging.of_clean_run(ended({}, 2, "no trace")) == ["no verdict, code 2: no trace"]


@pytest.mark.parametrize(
    ("name", "changes", "lacking"),
    [
        ("rank0-eval", {"divergences": [{"kind": "crossed"}]}, []),
        ("rank0-eval", {}, ["the trace does not show crossed, it shows nothing"]),
        ("skip-all-reduce", {"divergences": [{"kind": "operation"}], "verdict": "diverged"}, []),
        (
            "params-differ",
            {"silent": [{"kind": "same-samples"}]},
            ["the trace does not show parameters-differ, it shows same-samples"],
        ),
        ("no-set-epoch", {"verdict": "diverged"}, ["the trace does not show same-order, it shows nothing"]),
    ],
)
def test_the_evidence_of_a_hazard(name: str, changes: dict[str, Any], lacking: list[str]) -> None:
    hazard = HAZARDS[name]
    confirmed = [{"code": code, "verdict": "confirmed"} for code in hazard.codes]
    assert judging.of_hazard(hazard, ended(agreed(findings=confirmed, **changes))) == lacking


def test_a_finding_has_to_be_confirmed() -> None:
    document = agreed(findings=[{"code": "DDP401", "verdict": "not-exercised"}])
    assert judging.of_verdicts(document, ["DDP401", "DDP201"]) == ["DDP401 is not-exercised", "DDP201 is not found"]
    document["findings"].append({"code": "DDP401", "verdict": "confirmed"})
    assert judging.of_verdicts(document, ["DDP401"]) == []


def test_lines_of_buckets(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("loss = model(x)\nloss.backward()\n")

    def bucket(line: int | None, thread: int) -> Event:
        site = None if line is None else Site("script.py", line)
        return Event(COLLECTIVE, "all_reduce", index=4, origin=DDP_BUCKET, site=site, detail={"thread": thread})

    def of(*events: Event) -> tuple[list[str], dict[str, int]]:
        lacking, threads = judging.of_bucket_lines(RecordedRun(1, {0: RankRun(0, list(events))}), tmp_path)
        return lacking, dict(threads)

    assert of(bucket(2, 1), bucket(2, 1), bucket(2, 0)) == ([], {"another thread": 2, "the main thread": 1})
    assert of(bucket(None, 1))[0] == ["bucket 4 of rank 0 has no line"]
    assert of(bucket(1, 1))[0] == ["bucket 4 of rank 0 names script.py:1 `loss = model(x)`"]
    assert of(Event(COLLECTIVE, "barrier"))[0] == ["no bucket was recorded"]


def test_ranks_on_one_device() -> None:
    ranks = {rank: RankRun(rank, [Event(DEVICE, detail={"index": 0}), Event(DEVICE, detail={"index": 5})]) for rank in (0, 1)}
    assert judging.chosen_devices(RecordedRun(2, ranks)) == {0: 0, 1: 0}
    script = GPU / "one_device.py"
    launch = read_command(["torchrun", "--nproc-per-node", "2", str(script), "--backend", "gloo"])
    assert "DDP507" in {finding.code for finding in audit([script], Options(launch=launch, defaults_hold=True)).findings}


def test_one_check_that_breaks_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(one: checks.Check, place: checks.Place) -> checks.Did:
        raise OSError(f"{place.folder}/x is not there")

    def works(one: checks.Check, place: checks.Place) -> checks.Did:
        return writer.PASSED, "well", {}

    listed = [
        checks.Check("a", "A.", 1, broken),
        checks.Check("b", "B.", 1, works, beside=True),
        checks.Check("c", "C.", 1, works),
        checks.Check("d", "D.", 1, works, needs_cuda=True),
    ]
    results = check.perform_all(listed, checks.Place(False, tmp_path), float("inf"))
    assert [(one.name, one.status) for one in results] == [
        ("a", "failed"),
        ("b", "passed"),
        ("c", "passed"),
        ("d", "not possible"),
    ]
    assert results[0].said == "the check itself failed: OSError: TRACES/x is not there"
    late = check.perform_all(listed[2:3], checks.Place(False, tmp_path), 0.0)
    assert late[0].said.startswith("not begun")


@pytest.mark.parametrize(
    ("document", "code", "err", "status", "said"),
    [
        (
            {},
            1,
            "x\nDuplicate GPU detected : rank 1 and rank 0\ny",
            "passed",
            "NCCL refuses two ranks on one device: Duplicate GPU",
        ),
        ({}, 1, "CUDA out of memory", "failed", "no verdict, code 1: CUDA out of memory"),
        (agreed(), 0, "", "passed", "NCCL allows two ranks on one device: predicted = traced on 26/26"),
        (agreed(), None, "", "failed", "not over after"),
    ],
)
def test_nccl_allows_or_refuses(
    document: dict[str, Any], code: int | None, err: str, status: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "traced", lambda words, **options: ended(document, code, err))
    one = next(one for one in checks.all_checks() if one.name == "nccl-two-ranks-one-device")
    found = one.perform(one, checks.Place(True, tmp_path))
    assert found[0] == status
    assert found[1].startswith(said)


def results(*statuses: str) -> list[writer.Result]:
    return [writer.Result(f"check-{number}", "What.", status, "a | b", 1.26) for number, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(("passed", "not possible", "left out"), 0), (("passed", "failed"), 1), (("not possible",), 1), ((), 1)],
)
def test_the_exit_code(statuses: tuple[str, ...], code: int) -> None:
    assert writer.exit_code(writer.as_object("gpu", {}, results(*statuses), 1.0)) == code


def test_the_files_of_a_result(tmp_path: Path) -> None:
    found = results("passed", "not possible")
    numbers = {"none": {"least": 10.0, "median": 11.0}, "python": {"least": 30.5, "median": 40.0}}
    keys = ("call_cpu_us", "step_cpu_us", "step_wall_us")
    cost = {"device": "cpu", "backend": "gloo", "rounds": 9, "calls": 2000, "steps": 30, **dict.fromkeys(keys, numbers)}
    found[0].details["cost"] = cost
    document = writer.as_object("cpu", {"torch": "2.13.0"}, found, 12.34)
    data, page = writer.write(document, tmp_path / "new")
    assert (data.name, page.name) == ("result-cpu.json", "result-cpu.md")
    assert json.loads(data.read_text()) == document
    assert document["counts"] == {"passed": 1, "failed": 0, "not possible": 1, "left out": 0}
    assert document["checks"][1]["seconds"] == 1.3
    text = page.read_text()
    assert text.startswith("# CPU form ") and "says nothing about CUDA or NCCL" in text
    assert "| check-1 | not possible | 1 | a \\| b |" in text
    assert "| torch | 2.13.0 |" in text
    assert "| CPU a collective | python | 30.5 | 40.0 | +20.5 |" in text
    assert "No CUDA device" not in writer.as_page({**document, "form": "gpu"})


def test_the_results_that_are_kept_are_of_this_list() -> None:
    kept = json.loads((GPU / "result-cpu.json").read_text())
    assert kept["form"] == "cpu" and kept["counts"]["failed"] == 0
    names = [one["name"] for one in kept["checks"]]
    assert set(names) <= {one.name for one in checks.all_checks()}
    assert {one.name for one in checks.all_checks() if not one.beside} < set(names)
    assert (GPU / "result-cpu.md").read_text() == writer.as_page(kept)
