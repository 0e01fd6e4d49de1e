"""The list of checks, and what each one runs."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import judging
from subruns import ROOT, TracedRun, last_lines, run, traced
from writer import FAILED, LEFT_OUT, NOT_POSSIBLE, PASSED, Result

from ddp_audit_trainer.hazards import HAZARDS, Hazard

TRAINER = ("-m", "ddp_audit_trainer.train", "--attention", "manual")  # its mask is a buffer, which DDP broadcasts
NO_DEVICE = "no CUDA device"
CPU_HAZARDS = ("flag-after-forward", "skip-all-reduce")  # of the CPU form; the tests run all of them on the CPU
_REFUSED = re.compile(r"Duplicate GPU detected[^\n]*")


@dataclass
class Place:
    """Where the checks run. `runs` are the traces of the runs without a hazard, which later checks look at."""

    has_cuda: bool
    folder: Path
    runs: dict[str, TracedRun] = field(default_factory=dict)

    @property
    def device(self) -> list[str]:
        """Options of the trainer for two ranks on gloo: on one GPU, or on the CPU."""
        if self.has_cuda:
            return ["--device", "cuda", "--backend", "gloo", "--share-device"]
        return ["--device", "cpu", "--backend", "gloo"]


Did = tuple[str, str, dict[str, Any]]  # status, what is said of it, details


@dataclass(frozen=True)
class Check:
    """One check. `seconds` is its time-out; `beside` says that others of this kind may run at the same time."""

    name: str
    what: str
    seconds: float
    perform: Callable[[Check, Place], Did]
    needs_cuda: bool = False
    beside: bool = False
    in_cpu_form: bool = True

    def result(self, place: Place) -> Result | None:
        """What is known of the check before it runs: None where it is to be run."""
        if self.needs_cuda and not place.has_cuda:
            return Result(self.name, self.what, NOT_POSSIBLE, NO_DEVICE)
        if not self.in_cpu_form and not place.has_cuda:
            return Result(self.name, self.what, LEFT_OUT, "the CPU form runs some hazards only; `make demo` runs each of them")
        return None


def judged(lacking: Sequence[str], seen: str, details: dict[str, Any] | None = None) -> Did:
    """Passed with what was seen, or failed with what is lacking."""
    return FAILED if lacking else PASSED, "; ".join(lacking) or seen, details or {}


def native_kernel(check: Check, place: Place) -> Did:
    """Builds the native kernel where it is not built."""
    from ddp_audit.trace.build import find_compiler

    ended = run([sys.executable, "-m", "ddp_audit.trace.build", "--ensure"], check.seconds)
    if ended.code == 0:
        return PASSED, "built, and it works", {}
    if find_compiler() is None:
        return NOT_POSSIBLE, "no C++ compiler; the runs below use the Python kernel", {}
    return FAILED, "not built in time" if ended.code is None else last_lines(ended.err or ended.out), {}


def clean(ranks: int, options: Sequence[str] | None = None) -> Callable[[Check, Place], Did]:
    """A traced run of the trainer without a hazard; without `options` on gloo, where the checks run."""

    def perform(check: Check, place: Place) -> Did:
        words = [*TRAINER, *(place.device if options is None else options)]
        done = traced(words, ranks=ranks, folder=place.folder / check.name, timeout=check.seconds)
        place.runs[check.name] = done
        return judged(judging.of_clean_run(done), _compared(done), {"arguments": words})

    return perform


def _compared(done: TracedRun) -> str:
    compared = (done.document.get("prediction") or {}).get("compared", {})
    counts = "/".join(str(count) for count in compared.values())
    return f"predicted = traced on {counts} collectives a rank"


def nccl_on_one_device(check: Check, place: Place) -> Did:
    """Two ranks of NCCL on one GPU: a run as any other, or NCCL's refusal, which is then the result."""
    words = [*TRAINER, "--device", "cuda", "--backend", "nccl", "--share-device"]
    done = traced(words, ranks=2, folder=place.folder / check.name, timeout=check.seconds)
    lacking = judging.of_clean_run(done)
    refused = _REFUSED.search(done.ended.err)
    if refused and lacking and done.ended.code:
        return PASSED, f"NCCL refuses two ranks on one device: {refused.group().strip()}", {"refused": True}
    if not lacking:
        place.runs[check.name] = done
    return judged(lacking, f"NCCL allows two ranks on one device: {_compared(done)}", {"refused": False})


def hazard(one: Hazard) -> Callable[[Check, Place], Did]:
    """A traced run of the trainer with a hazard."""

    def perform(check: Check, place: Place) -> Did:
        words = ["-m", "ddp_audit_trainer.train", *place.device, "--hazard", one.name, *one.arguments]
        done = traced(words, ranks=2, folder=place.folder / check.name, timeout=check.seconds)
        found = f"{', '.join(one.codes)} confirmed" if one.codes else "found by the trace alone"
        return judged(judging.of_hazard(one, done), f"{one.evidence}, {found}, {_compared(done)}", {"arguments": words})

    return perform


def tracer_cost(check: Check, place: Place) -> Did:
    """The tracer's cost, per collective and per step, against no tracer."""
    device, backend = ("cuda", "nccl") if place.has_cuda else ("cpu", "gloo")
    script = Path(__file__).with_name("cost.py")
    ended = run([sys.executable, str(script), "--device", device, "--backend", backend], check.seconds)
    try:
        cost = json.loads(ended.out)
    except ValueError:
        return FAILED, f"no measurement, code {ended.code}: {last_lines(ended.err)}", {}
    least = (cost["rounds"] + 1) * cost["calls"]
    lacking = [
        f"the tracer with the {variant} kernel recorded {end['collectives']} collectives"
        for variant, end in cost["ended"].items()
        if variant != "none" and (end["failed"] or end["collectives"] < least)
    ]
    base, kernels = cost["call_cpu_us"]["none"]["least"], [v for v in cost["call_cpu_us"] if v != "none"]
    added = ", ".join(f"{kernel} {cost['call_cpu_us'][kernel]['least'] - base:+.1f}" for kernel in kernels)
    return judged(lacking, f"CPU microseconds added to a collective (least of the rounds): {added}", {"cost": cost})


def bucket_lines(check: Check, place: Place) -> Did:
    """Each bucket of the runs before has a line of the script's backward, whichever thread issued it."""
    lacking, seen = [], []
    for name, done in place.runs.items():
        recorded = judging.recorded(done.folder)
        if recorded is None:
            lacking.append(f"{name} left no trace")
            continue
        wrong, threads = judging.of_bucket_lines(recorded)
        lacking += [f"{name}: {text}" for text in wrong[:3]]
        seen.append(f"{name}: " + ", ".join(f"{count} buckets issued by {thread}" for thread, count in sorted(threads.items())))
    if not place.runs:
        lacking.append("no run to look at")
    return judged(lacking, "; ".join(seen))


def one_device(check: Check, place: Place) -> Did:
    """Two ranks choose device 0: DDP507 is found and the recorded choices confirm it."""
    script = str(Path(__file__).with_name("one_device.py").relative_to(ROOT))
    done = traced([script, "--backend", "gloo"], ranks=2, folder=place.folder / check.name, timeout=check.seconds)
    lacking = judging.of_document(done)
    recorded = judging.recorded(done.folder)
    chosen = judging.chosen_devices(recorded) if recorded is not None else {}
    if chosen != {0: 0, 1: 0}:
        lacking.append(f"the recorded devices of the ranks are {chosen}")
    if done.document:
        lacking += judging.of_verdicts(done.document, ["DDP507"])
    return judged(lacking, "both ranks recorded on device 0, DDP507 confirmed")


def all_checks() -> list[Check]:
    """Every check, in the order of the result."""
    cpu = ["--device", "cpu", "--backend", "gloo"]
    nccl = ["--device", "cuda", "--backend", "nccl"]
    checks = [
        Check("native-kernel", "The native kernel of the tracer is built.", 150, native_kernel),
        Check("cpu-gloo-one-rank", "The trainer on one CPU rank with a group, traced.", 75, clean(1, cpu)),
        Check("nccl-one-rank", "The trainer on one rank with NCCL, traced.", 90, clean(1, nccl), needs_cuda=True),
        Check("gloo-two-ranks", "The trainer on two ranks with gloo: CUDA tensors on one GPU, CPU tensors without.", 90, clean(2)),
        Check("nccl-two-ranks-one-device", "NCCL with two ranks on one GPU.", 90, nccl_on_one_device, needs_cuda=True),
        Check("bucket-lines", "Each recorded bucket names a line of the script's backward.", 30, bucket_lines),
        Check("ranks-on-one-device", "Two ranks that choose one device are noticed.", 60, one_device, needs_cuda=True),
        Check("tracer-cost", "The tracer's cost per collective and per step, against no tracer.", 100, tracer_cost),
    ]
    for name, each in HAZARDS.items():
        listed = name in CPU_HAZARDS
        checks.append(Check(f"hazard-{name}", each.what, 90, hazard(each), beside=True, in_cpu_form=listed))
    return checks


def cleaned(text: str, folder: Path) -> str:
    """A text without the paths of this machine, short enough for a table."""
    names = {str(ROOT): ".", str(folder): "TRACES", sys.prefix: "PYTHON", tempfile.gettempdir(): "TMP", str(Path.home()): "HOME"}
    for path, name in names.items():
        if path != "/":
            text = text.replace(path, name)
    return text if len(text) <= 500 else text[:497] + "..."
