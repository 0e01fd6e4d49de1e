"""What the sub-runs have to show. Each function returns what is lacking, nothing where all is as it should be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from subruns import ROOT, TracedRun, last_lines

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DEVICE
from ddp_audit.trace.store import TraceError, load_run
from ddp_audit_trainer import hazards
from ddp_audit_trainer.hazards import Hazard

_BACKWARD = re.compile(r"\bbackward\(")


def of_document(run: TracedRun) -> list[str]:
    """Whether the tracer came to a verdict at all."""
    if run.ended.code is None:
        return [f"not over after {run.ended.seconds:.0f} s: {last_lines(run.ended.err)}"]
    if "verdict" not in run.document:
        return [f"no verdict, code {run.ended.code}: {last_lines(run.ended.err)}"]
    return []


def of_prediction(document: dict[str, Any]) -> list[str]:
    """Whether what was predicted is what was recorded, on every rank, of at least one collective."""
    prediction = document.get("prediction")
    if not prediction:
        return ["nothing was predicted"]
    if not prediction["agrees"]:
        apart = prediction["difference"]
        return [f"prediction and trace part: {apart}"]
    if len(prediction["compared"]) != document["world_size"] or not all(prediction["compared"].values()):
        return [f"prediction and trace were compared on {prediction['compared']} only"]
    return []


def of_clean_run(run: TracedRun) -> list[str]:
    """A run without a hazard: ends with 0, the ranks agree, nothing is found, the prediction holds."""
    lacking = of_document(run)
    if lacking:
        return lacking
    document = run.document
    if document["command_code"] != 0:
        lacking.append(f"the trainer ended with {document['command_code']}: {last_lines(run.ended.err)}")
    if document["verdict"] != "agreed" or not document["complete"]:
        lacking.append(f"the verdict is '{document['verdict']}'")
    kinds = [one["kind"] for one in (*document["divergences"], *document["silent"])]
    codes = [finding["code"] for finding in document["findings"]]
    lacking += [f"the trace shows {kind}" for kind in kinds] + [f"the audit finds {code}" for code in codes]
    return lacking + of_prediction(document)


def of_hazard(hazard: Hazard, run: TracedRun) -> list[str]:
    """A run with a hazard: its evidence in the trace, its findings confirmed, and the prediction holds."""
    lacking = of_document(run)
    if lacking:
        return lacking
    document = run.document
    kinds = {one["kind"] for one in (*document["divergences"], *document["silent"])}
    if not _shows(hazard.evidence, kinds, document["verdict"]):
        lacking.append(f"the trace does not show {hazard.evidence}, it shows {', '.join(sorted(kinds)) or 'nothing'}")
    return lacking + of_verdicts(document, hazard.codes) + of_prediction(document)


def of_verdicts(document: dict[str, Any], codes: Iterable[str]) -> list[str]:
    """Whether each of these rules has a finding that the run confirmed."""
    lacking = []
    for code in codes:
        verdicts = {finding.get("verdict") for finding in document["findings"] if finding["code"] == code}
        if "confirmed" not in verdicts:
            lacking.append(f"{code} is {' and '.join(sorted(map(str, verdicts)))}" if verdicts else f"{code} is not found")
    return lacking


def _shows(evidence: str, kinds: set[str], verdict: str) -> bool:
    if evidence == hazards.OPERATION:
        return verdict == "diverged"
    alone = (hazards.CROSSED, hazards.REDUCE_OP, hazards.PARAMETERS_DIFFER, hazards.GRADIENTS_DIFFER, hazards.SAME_SAMPLES)
    if evidence in alone:
        return evidence in kinds
    return verdict != "diverged"  # extra traffic, or one order for all epochs: the finding's verdict alone tells


def recorded(folder: Path) -> RecordedRun | None:
    """The trace in a folder, None where there is none."""
    try:
        return load_run(folder)
    except TraceError:
        return None


def of_bucket_lines(run: RecordedRun, root: Path = ROOT) -> tuple[list[str], Counter[str]]:
    """Whether each recorded bucket names a line of the script that calls backward; and by which threads they were issued."""
    lacking, threads = [], Counter[str]()
    for rank, event in run.events_of(COLLECTIVE):
        if event.origin != DDP_BUCKET:
            continue
        threads["another thread" if event.detail.get("thread") else "the main thread"] += 1
        if event.site is None:
            lacking.append(f"bucket {event.index} of rank {rank} has no line")
        elif not _BACKWARD.search(text := _line(root / event.site.path, event.site.line)):
            lacking.append(f"bucket {event.index} of rank {rank} names {event.site.path}:{event.site.line} `{text}`")
    if not threads:
        lacking.append("no bucket was recorded")
    return lacking, threads


def _line(path: Path, number: int) -> str:
    try:
        return path.read_text(encoding="utf-8").splitlines()[number - 1].strip()
    except (OSError, IndexError):
        return ""


def chosen_devices(run: RecordedRun) -> dict[int, Any]:
    """The device that each rank chose first by torch.cuda.set_device."""
    chosen: dict[int, Any] = {}
    for rank, event in run.events_of(DEVICE):
        chosen.setdefault(rank, event.detail.get("index"))
    return chosen
