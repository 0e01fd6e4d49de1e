"""The tools that watch a run: the tracer of this tool, the Flight Recorder with torchfrtrace, and TORCH_DISTRIBUTED_DEBUG=DETAIL.

Each program is run under each of them in a folder of its own, with the limit of STALL seconds for a run that stands still. All
tools get the same programs. A report is what the tool says; that a run hung, or ended with an exception, is not the tool's word.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from intent import Intent
from static_tools import Report, Tool, files_of

from ddp_audit import __version__

STALL = 4  # seconds without an event after which a run is taken to stand still
LIMIT = 90  # seconds that a run may take in all, on a busy machine
CRASH = "crash"
FLIGHT = Path(__file__).with_name("flight.py")
_PLACE = re.compile(r"([\w./-]+\.py)(?::|\", line )(\d+)")
_FLIGHT_WORDS = re.compile(r"MatchState\.([A-Z_]+)|(COLLECTIVE_[A-Z_]+|SIZE_OR_SYNTAX_[A-Z_]+)|(Not all ranks joining)")


def dynamic_tools(programs: Sequence[Intent]) -> list[Tool]:
    """What each tool says of the programs, one after the other."""
    tools = [
        Tool("ddp-audit trace", __version__),
        Tool("Flight Recorder, torchfrtrace", f"torch {torch.__version__}"),
        Tool("TORCH_DISTRIBUTED_DEBUG=DETAIL", f"torch {torch.__version__}"),
    ]
    crashes: Counter[str] = Counter()
    for program in programs:
        for tool, run in zip(tools, (traced, recorded, detailed), strict=True):
            said = run(program)
            tool.reports[program.path] = [report for report in said if report.rule != CRASH]
            crashes[tool.name] += len(said) - len(tool.reports[program.path])
            print(f"{program.name}: {tool.name}: {sorted({r.rule for r in tool.reports[program.path]}) or 'nothing'}", flush=True)
    for tool in tools:
        if crashes[tool.name]:
            tool.missing = f"{crashes[tool.name]} of {len(tool.reports)} runs ended with SIGSEGV under it"
    return tools


def traced(program: Intent) -> list[Report]:
    """Divergences, silent faults and stalls of `ddp-audit trace`, without the audit that usually goes before it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--prediction", "off", "--format", "json",
            "--stall-after", str(STALL), "--on-stall", "kill", "--dir", f"{folder}/trace", "--", *_torchrun(program),
            str(program.path), *program.started.arguments,
        ]  # fmt: skip
        out, _ = _run(command, program, folder)
    try:
        document = json.loads(out)
    except json.JSONDecodeError:
        return []
    found = [report for entry in document["divergences"] for report in _reports(entry["kind"], entry, program)]
    found += [report for entry in document["silent"] for report in _reports(entry["kind"], entry, program)]
    if not found and document["verdict"] not in ("agreed", "incomplete"):
        found = _reports(document["verdict"], document["ranks"], program)
    return found


def recorded(program: Intent) -> list[Report]:
    """What torchfrtrace makes of the dumps of a run."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as dumps:
        command = [*_torchrun(program), str(FLIGHT), dumps, str(3 * STALL), str(program.path), *program.started.arguments]
        _run(command, program, folder)
        analysis = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "--allow-incomplete-ranks", "-p", "dump_"]
        done = subprocess.run([*analysis, dumps], capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    words = {"".join(found).lower() for found in _FLIGHT_WORDS.findall(said)} - {"fully_matched"}
    return [report for word in sorted(words) for report in _reports(word, said, program)]


def detailed(program: Intent) -> list[Report]:
    """The errors that DETAIL adds to those of the transport."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*_torchrun(program), str(program.path), *program.started.arguments]
        out, err = _run(command, program, folder, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    said = out + err
    if "SIGSEGV" in said:  # of the ranks that it watches; no program here does that by itself
        return [Report(CRASH)]
    texts = {"mismatch": "Detected mismatch between collectives", "missing-rank": "failed to pass monitoredBarrier"}
    return [report for rule, text in texts.items() if text in said for report in _reports(rule, said, program)]


def _reports(rule: str, said: Any, program: Intent) -> list[Report]:
    """The report, with the places of the program that are named."""
    text = said if isinstance(said, str) else json.dumps(said)
    own = {path.name: path for path in files_of(program)}
    places = {(own[Path(name).name], int(line)) for name, line in _PLACE.findall(text) if Path(name).name in own}
    return [Report(rule, frozenset(places))]


def _torchrun(program: Intent) -> list[str]:
    ranks = str(program.started.world_size)
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]


def _run(command: list[str], program: Intent, folder: str, **more: str) -> tuple[str, str]:
    """Runs a command beside its program; what it wrote. After the limit its process group is killed, and so are the ranks."""
    mark = f"BUGBENCH_OF={os.getpid()}"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CASE_FOLDER": folder} | dict(program.started.environment) | more
    environment |= dict([mark.split("=")])
    process = subprocess.Popen(
        command, cwd=program.path.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        _end_marked(mark)
        return process.communicate()
    finally:
        _end_marked(mark)


def _end_marked(mark: str) -> None:
    """Ends what carries a mark in its environment: torchrun gives each rank a session of its own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
