"""Every fault of fault_programs.py, injected in real runs: what the tracer reports, beside the Flight Recorder and DETAIL.

    python benchmarks/faults.py [NAME ...] [--world 2 3] [--kernel off on] [--no-peers] [--write]

For each fault: the kind that was reported, the ranks that were named, whether the user's lines of both sides are in the report, and
the time from the divergence to the report, with the Python kernel; of `--kernel off on` with two ranks also with the native one.
--write puts the rows into the table of docs/faults.md. Takes about 20 seconds a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("fault_programs.py")
PAGE = Path(__file__).parent.parent / "docs" / "faults.md"
STALL_AFTER = 2  # seconds
START_UP = 120  # seconds that a command may take until its ranks part
MARK = "FAULTS_OF"  # a variable of the environment of everything that is started here

# The kinds of divergence that name a fault rightly; "state" is a report that tells how the odd rank ended.
KINDS: dict[str, set[str]] = {
    "operation": {"operation"},
    "size": {"size"},
    "dtype-of-equal-bytes": {"dtype"},
    "reduce-op": {"reduce-op"},
    "root": {"root"},
    "order-of-equal-shapes": {"crossed"},
    "order-across-two-groups": {"group"},
    "missing-rank": {"missing-rank"},
    "extra-call": {"extra", "missing-rank"},
    "early-exit": {"missing-rank"},
    "exception": {"missing-rank"},
    "sigkill": {"missing-rank"},
    "sigabrt": {"missing-rank"},
    "sigstop": {"missing-rank"},
    "out-of-memory": {"missing-rank"},
    "gil-held": {"missing-rank"},
    "point-to-point-circle": {"order"},
    "message-size": {"size"},
    "message-tag": {"operation"},
    "message-without-partner": {"missing-rank"},
    "members-only-new-group": {"group", "missing-rank", "order"},
    "rank0-evaluation": {"operation", "extra"},
    "uneven-batches": {"operation", "extra"},
    "unused-parameter": {"size", "missing-rank", "operation"},
}


@dataclass
class Seen:
    """What one report said of one fault."""

    kinds: list[str] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)
    lines: bool = False
    seconds: float | None = None
    verdict: str = ""
    records: bool = False  # every rank has records up to the divergence

    def right(self, name: str, world: int) -> bool:
        """Whether the fault was named rightly: its kind, and with three ranks or more the odd one, with two neither."""
        named = bool(KINDS[name] & set(self.kinds)) or self.verdict in KINDS[name]
        blames = not self.odd if world == 2 else self.odd in ([], [0 if name == "rank0-evaluation" else world - 1])
        return named and blames and self.records


def marked(name: str, mark: str) -> set[int]:
    """The lines of a fault with a mark."""
    lines = PROGRAMS.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line == f"def {name.replace('-', '_')}(odd: bool, world: int) -> None:")
    end = next(i for i in range(start + 1, len(lines)) if lines[i].startswith(("@fault", "def ")))
    return {i + 1 for i in range(start, end) if (comment := lines[i].partition("# ")[2]) and mark in comment.split(", ")}


def run_traced(name: str, world: int, kernel: str) -> Seen:
    """One fault under `ddp-audit trace`."""
    with tempfile.TemporaryDirectory() as temporary:
        clock = Path(temporary, "clock")
        clock.mkdir()
        command = [
            sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--format", "json", "--native", kernel,
            "--stall-after", str(STALL_AFTER), "--on-stall", "kill",
            "--dir", f"{temporary}/trace", "--", *torchrun(world), str(PROGRAMS), name,
        ]  # fmt: skip
        process = start(command, {"FAULT_CLOCK": str(clock)}, stderr=subprocess.PIPE)
        told: list[tuple[float, str]] = []
        assert process.stderr is not None and process.stdout is not None
        reader = threading.Thread(target=lambda: told.extend((time.time(), line) for line in process.stderr or ()))
        reader.start()
        try:
            out = process.stdout.read()
            process.wait(120)
        finally:
            end_all()
        reader.join()
        document = json.loads(out)
        started = max((float(path.read_text()) for path in clock.iterdir()), default=None)
    return judged(name, document, told, started)


def judged(name: str, document: dict[str, Any], told: list[tuple[float, str]], started: float | None) -> Seen:
    """What a report of the tracer says of a fault."""
    seen = Seen(verdict=document["verdict"])
    sites: set[int] = set()
    for divergence in document["divergences"]:
        seen.kinds.append(divergence["kind"])
        seen.odd = seen.odd or divergence["odd"]
        for side in divergence["ranks"].values():
            sites |= {int(match) for match in re.findall(r"fault_programs\.py:(\d+)", json.dumps(side))}
    for rank in document["ranks"].values():
        sites |= {int(match) for match in re.findall(r"fault_programs\.py:(\d+)", json.dumps(rank))}
    wanted = [lines for mark in ("odd", "rest") if (lines := marked(name, mark))]
    seen.lines = all(lines & sites for lines in wanted)
    seen.records = all(rank["events"] >= 5 for rank in document["ranks"].values())
    first = next((at for at, line in told if re.search(r"diverged|stalled|waits in|Where the ranks stand", line)), None)
    if first is not None and started is not None:
        seen.seconds = max(0.0, first - started)
    return seen


def run_flight_recorder(name: str, world: int) -> str:
    """What torchfrtrace says of the dumps of one fault; the dumps are written by the program, since gloo never does."""
    with tempfile.TemporaryDirectory() as dumps:
        run_plain([*torchrun(world), str(PROGRAMS), name], {"FAULT_DUMPS": dumps}, 60)
        there = sorted(path.name for path in Path(dumps).iterdir())
        command = [
            sys.executable,
            "-m",
            "torch.distributed.flight_recorder.fr_trace",
            "--allow-incomplete-ranks",
            "-p",
            "dump_",
            dumps,
        ]
        analysed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = analysed.stdout + analysed.stderr
    kinds = sorted(
        set(re.findall(r"MatchState\.([A-Z_]+)|(COLLECTIVE_[A-Z_]+|SIZE_OR_SYNTAX_[A-Z_]+)", said)) - {("FULLY_MATCHED", "")}
    )
    words = [a or b for a, b in kinds] + (["not all ranks joining"] if "Not all ranks joining" in said else [])
    words += ["culprit " + ", ".join(sorted(set(found)))] if (found := re.findall(r"[Cc]ulprit rank[s]? (\d+)", said)) else []
    if analysed.returncode and not words:
        words = [(said.strip().splitlines() or ["fails"])[-1].partition(":")[0]]
    said = "; ".join(words).lower() or "nothing"
    return f"{said} ({len(there)} of {world} dumps)" if there else "no dump is left"


def run_detail(name: str, world: int) -> str:
    """What TORCH_DISTRIBUTED_DEBUG=DETAIL makes of one fault."""
    end, said = run_plain([*torchrun(world), str(PROGRAMS), name], {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, 20)
    if "Signal 11" in said or "exitcode  : -11" in said:
        return "SIGSEGV"
    if "Detected mismatch between collectives" in said:
        return "mismatch between collectives"
    if "failed to pass monitoredBarrier" in said:
        return "a rank failed to pass monitoredBarrier"
    return {None: "nothing in 20 s"}.get(end, "nothing" if end == 0 else "nothing; the run fails")


def run_plain(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """A command with its exit code (None where it had to be ended) and what it said. The seconds count from the divergence."""
    with tempfile.TemporaryDirectory() as clock:
        process = start(command, environment | {"FAULT_CLOCK": clock}, stderr=subprocess.STDOUT)
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stdout or ()))
        reader.start()
        until = time.monotonic() + START_UP
        while process.poll() is None and not any(Path(clock).iterdir()) and time.monotonic() < until:
            time.sleep(0.1)
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(seconds)
        end_all()
        reader.join()
    return code, "".join(said)


def start(command: list[str], environment: dict[str, str], stderr: int) -> subprocess.Popen[str]:
    """Starts a command whose processes carry a mark of this one."""
    known = os.environ | {"OMP_NUM_THREADS": "1", MARK: str(os.getpid())} | environment
    return subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True)


def end_all() -> None:
    """Ends what is left of the commands, stopped ranks included. torchrun gives each rank a session of its own, so they are known
    by their environment."""
    mark = f"{MARK}={os.getpid()}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


def torchrun(world: int) -> list[str]:
    """The launcher's words."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]


def row(name: str, ours: dict[tuple[int, str], Seen], flight: str, detail: str) -> str:
    """One line of the table."""
    cells = []
    for (world, _), seen in ours.items():
        kinds = ", ".join(dict.fromkeys(seen.kinds)) or seen.verdict
        blamed = f"; rank {', '.join(map(str, seen.odd))}" if seen.odd else ""
        when = "" if seen.seconds is None else f"; {seen.seconds:.1f} s"
        cells.append(
            f"{'' if seen.right(name, world) else '**wrong** '}{kinds}{blamed}; lines {'yes' if seen.lines else '**no**'}{when}"
        )
    return f"| {name} | " + " | ".join([*cells, flight, detail]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--world", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--kernel", choices=("off", "on"), nargs="+", default=["off"])
    parser.add_argument("--no-peers", action="store_true", help="the tracer alone")
    parser.add_argument("--write", action="store_true", help="write these rows of docs/faults.md")
    args = parser.parse_args()
    unknown = set(args.names) - set(KINDS)
    if unknown:
        print(f"no fault is called {', '.join(sorted(unknown))}; they are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    first, *more = args.kernel
    ways = [*((world, first) for world in args.world), *((args.world[0], kernel) for kernel in more)]
    native = {"off": "", "on": ", native kernel"}
    head = [
        "fault",
        *(f"ddp-audit, {world} ranks{native[kernel]}" for world, kernel in ways),
        "Flight Recorder, torchfrtrace",
        "DETAIL",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    print("\n".join(lines), flush=True)
    wrong = 0
    for name in args.names or KINDS:
        ours = {way: run_traced(name, *way) for way in ways}
        wrong += sum(not seen.right(name, world) or not seen.lines for (world, _), seen in ours.items())
        peers = ("", "") if args.no_peers else (run_flight_recorder(name, 2), run_detail(name, 2))
        lines.append(row(name, ours, *peers))
        print(lines[-1], flush=True)
    print(f"{wrong} wrong")
    if args.write:
        PAGE.write_text(page(merged(lines)), encoding="utf-8")
    return int(wrong > 0)


def merged(lines: list[str]) -> list[str]:
    """A table with the rows that the page has of other faults, where its columns are the same."""
    known = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")] if PAGE.exists() else []
    rows = {line.split("|")[1].strip(): line for line in known[2:]} if known[:1] == lines[:1] else {}
    rows.update({line.split("|")[1].strip(): line for line in lines[2:]})
    return [*lines[:2], *(rows[name] for name in KINDS if name in rows)]


def page(lines: list[str]) -> str:
    """The page of the documentation."""
    text = [
        "# Faults and who sees them",
        "",
        f"Made by `make faults`: each fault is injected in a real run on gloo, under the tracer (`--stall-after {STALL_AFTER}`),",
        "under the Flight Recorder (its ring is written by the program, since nothing does on gloo, and completed so that",
        "torchfrtrace can read it), and with `TORCH_DISTRIBUTED_DEBUG=DETAIL`. The last rank is the odd one (the first in",
        "rank0-evaluation). The report names it where three ranks allow a majority; with two it blames neither. The seconds are",
        "those from the divergence to the report, and grow with the load of the machine",
        f"({os.cpu_count()} cores with {os.getloadavg()[1]:.0f} processes that wanted them). DETAIL has 20 seconds from the",
        "divergence.",
        "",
        *lines,
        "",
        "The programs are in `benchmarks/fault_programs.py`.",
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
