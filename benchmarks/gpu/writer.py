"""The result of a check: a JSON file, and a page of Markdown made from the same object."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED = "passed"
FAILED = "failed"
NOT_POSSIBLE = "not possible"
LEFT_OUT = "left out"
STATUSES = (PASSED, FAILED, NOT_POSSIBLE, LEFT_OUT)

CPU_FORM = "cpu"
GPU_FORM = "gpu"
_TITLES = {
    CPU_FORM: "CPU form of the check for a machine with a GPU",
    GPU_FORM: "Check on a machine with a GPU",
}
_ABOUT = {
    CPU_FORM: "No CUDA device was there. Everything below ran on the CPU with gloo and says nothing about CUDA or NCCL; it shows "
    "that the check itself works.",
    GPU_FORM: "Everything below ran on this device, but for the checks that name the CPU.",
}


@dataclass
class Result:
    """What became of one check. `said` is the reason where it did not pass, and what was seen where it did."""

    name: str
    what: str
    status: str
    said: str = ""
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def as_object(form: str, machine: dict[str, Any], results: list[Result], seconds: float) -> dict[str, Any]:
    """The object of the JSON file."""
    counts = Counter(result.status for result in results)
    return {
        "version": 1,
        "form": form,
        "machine": machine,
        "counts": {status: counts[status] for status in STATUSES},
        "seconds": round(seconds, 1),
        "checks": [{**asdict(result), "seconds": round(result.seconds, 1)} for result in results],
    }


def exit_code(document: dict[str, Any]) -> int:
    """1 where a check failed, or none passed."""
    return 1 if document["counts"][FAILED] or not document["counts"][PASSED] else 0


def write(document: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Writes `result-FORM.json` and `result-FORM.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page = (folder / f"result-{document['form']}.{ending}" for ending in ("json", "md"))
    data.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page.write_text(as_page(document), encoding="utf-8")
    return data, page


def as_page(document: dict[str, Any]) -> str:
    """The page: what ran, on what, and what became of each check."""
    form = document["form"]
    counts = ", ".join(f"{count} {status}" for status, count in document["counts"].items() if count)
    lines = [
        f"# {_TITLES[form]}",
        "",
        f"Written by `make gpu-check` (`benchmarks/gpu/check.py`). {_ABOUT[form]}",
        "",
        f"**{counts}**, in {document['seconds']:.0f} s.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in document["machine"].items()),
        "",
        "| check | result | seconds | what was seen, or why not |",
        "|---|---|---|---|",
    ]
    for check in document["checks"]:
        lines.append(f"| {check['name']} | {check['status']} | {check['seconds']:.0f} | {_cell(check['said'])} |")
    for check in document["checks"]:
        if "cost" in check["details"]:
            lines += ["", *_costs(check["details"]["cost"])]
    lines += ["", "## What each check is", ""]
    lines += [f"- **{check['name']}**: {check['what']}" for check in document["checks"]]
    return "\n".join(lines) + "\n"


def _costs(cost: dict[str, Any]) -> list[str]:
    head = (
        f"Microseconds on {cost['device']} with {cost['backend']}, one rank, {cost['rounds']} rounds that alternate between the "
        f"variants, {cost['calls']:,} all-reduces of 4 float32 or {cost['steps']} training steps a round."
    )
    lines = [
        "## What the tracer costs",
        "",
        head,
        "",
        "| of | variant | least | median | added to the least |",
        "|---|---|---|---|---|",
    ]
    for key, of in (("call_cpu_us", "CPU a collective"), ("step_cpu_us", "CPU a step"), ("step_wall_us", "wall a step")):
        base = cost[key]["none"]["least"]
        for variant, value in cost[key].items():
            added = "" if variant == "none" else f"{value['least'] - base:+,.1f}"
            lines.append(f"| {of} | {variant} | {value['least']:,.1f} | {value['median']:,.1f} | {added} |")
    return lines


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
