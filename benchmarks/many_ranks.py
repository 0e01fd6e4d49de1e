"""Real jobs of very many ranks under the tracer: time to the report, memory, and whether it names the rank and the line.

    python benchmarks/many_ranks.py [--world 64 256] [--kind KIND ..] [--simulated 10000] [--write]

The ranks are real processes on gloo, forked from one that has imported torch (forked_ranks.py), and train a tiny model
(matrix_program.py) with one fault in the rank at two thirds: another operation, a rank that sleeps, one that raises, none. All of
it runs under `ddp-audit trace --on-stall kill`. Simulated ranks are trace files (generated_traces.py) that `ddp-audit diff` reads.
Rows are kept in many_ranks.json; --write makes many_ranks.md of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from fault_matrix import FORKED, PROGRAM, blamed, line_of
from generated_traces import generate

from ddp_audit.cli.recorded import compared_trace

RESULT = Path(__file__).with_name("many_ranks.md")
KEPT = RESULT.with_suffix(".json")
KINDS = ("none", "operation", "sleep", "exception")
STALL_AFTER = 30
MIB = 1 << 20
Row = dict[str, Any]


def real(world: int, kind: str) -> Row:
    """One traced job."""
    who = world * 2 // 3
    with tempfile.TemporaryDirectory() as folder:
        stamp, trace = Path(folder) / "stamp", Path(folder) / "trace"
        command = [sys.executable, "-u", "-m", "ddp_audit", "trace", "--no-check", "--dir", str(trace), "--on-stall", "kill"]
        command += ["--stall-after", str(STALL_AFTER), "--native", "off", "--"]
        command += [sys.executable, str(FORKED), str(world), str(PROGRAM), kind, str(who), str(stamp)]
        began = time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        sizes = Sizes(process.pid, stamp)
        sizes.start()
        first = ended = 0.0
        for line in process.stdout or ():
            ended = time.time() if line.startswith(f"The {world} ranks") else ended
            if not first and stamp.exists() and line.strip():
                first = time.time()
        code = process.wait()
        done = time.time()
        sizes.join()
        _, comparison = compared_trace(trace)
        faulted = float(stamp.read_text())
        told = comparison.ranks[who]
        return {
            "world": world,
            "kind": kind,
            "until fault": faulted - began,
            "first word": first - faulted,
            "report": done - faulted,
            "launcher MiB": sizes.launcher,
            "launcher CPU s": sizes.seconds,
            "ranks MiB": sizes.ranks,
            "exit code": code,
            "rank right": sorted(blamed(comparison, late(comparison))) == ([] if kind == "none" else [who]),
            "line right": kind == "none" or f"{PROGRAM.name}:{line_of(kind)}" in f"{told.text}{told.last}{told.raised_at}",
        }


def late(comparison: Any) -> set[int]:
    """The ranks that were in no collective when the others waited."""
    waiting = {rank for rank, one in comparison.ranks.items() if "all_reduce" in one.last and "waits" not in one.last}
    return set(comparison.ranks) - waiting if waiting and len(waiting) < len(comparison.ranks) else set()


class Sizes(threading.Thread):
    """What the launcher has taken so far, until it ends, and the memory of all ranks together at the fault, in MiB."""

    def __init__(self, pid: int, stamp: Path) -> None:
        super().__init__(daemon=True)
        self.launcher = self.ranks = 0
        self.seconds = 0.0
        self._process, self._stamp = Path(f"/proc/{pid}"), stamp

    def run(self) -> None:
        while True:
            try:
                lines = (self._process / "status").read_text().splitlines()
                peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
                if not peaks:  # it has ended
                    return
                self.launcher = peaks[0] // 1024
                words = (self._process / "stat").read_text().rpartition(")")[2].split()
                self.seconds = sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                return
            if not self.ranks and self._stamp.exists():
                self.ranks = self._all_ranks()
            time.sleep(0.1)

    def _all_ranks(self) -> int:
        """Shared pages count once."""
        total = 0
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(FORKED) in (entry / "cmdline").read_text().split("\0")[1:2]:
                    lines = (entry / "smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            except OSError:
                continue
        return total // 1024


def simulated(ranks: int, count: int, kind: str) -> Row:
    """One diff of generated traces, as a page for people."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "trace", ranks, count, kind, ranks // 2)
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "ddp_audit", "diff", str(Path(folder) / "trace"), "--format", "html"]
        began = time.time()
        with page.open("w") as file:
            process = subprocess.Popen(command, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
        text = page.read_text()
        return {
            "ranks": ranks,
            "events": count,
            "kind": kind,
            "seconds": time.time() - began,
            "CPU s": usage.ru_utime + usage.ru_stime,
            "MiB": usage.ru_maxrss // 1024,
            "page KiB": len(text) // 1024,
            "exit code": os.waitstatus_to_exitcode(status),
            "names the rank": f"rank {ranks // 2} " in text,
        }


def page(kept: dict[str, Row]) -> str:
    """The tables."""
    text = [
        "# Jobs of very many ranks",
        "",
        "Made by `python benchmarks/many_ranks.py --write` on 2 cores that other work filled: times are those of a full machine.",
        "",
        "## Real ranks",
        "",
        "Each rank is a process, forked from one that has imported torch (`forked_ranks.py`): it takes seconds, too long for",
        "256 processes on two cores. The tracer is installed by that import, as in any traced run, and each fork opens its",
        "file in `init_process_group`, as where a program forks its ranks itself. The model is tiny, in DDP; of more than 100",
        "ranks it is in none and they all-reduce by hand, since the memory of this machine holds no more. Rank N * 2 / 3 has the",
        f"fault in its sixth step. `--stall-after {STALL_AFTER} --on-stall kill`, Python kernel.",
        "",
    ]
    columns = ["world", "kind", "until fault", "first word", "report", "launcher MiB", "launcher CPU s", "ranks MiB"]
    text += table([row for row in kept.values() if "world" in row], [*columns, "exit code", "rank right", "line right"])
    text += [
        "",
        "`until fault`: seconds from the start to the fault, with the connections of each rank to each other.",
        "`first word`: seconds from the fault to what is printed first about it; without a fault, to the report. `report`: to the",
        "launcher's end, with the end of all ranks. `ranks MiB`: all ranks together at the fault, shared pages counted once.",
        "",
        "## Simulated ranks",
        "",
        "Traces of so many ranks, written by `generated_traces.py`, and `ddp-audit diff --format html` on them. The rank in the",
        "middle parts from the others at three quarters of the run; `none`: nobody does.",
        "",
    ]
    columns = ["ranks", "events", "kind", "seconds", "CPU s", "MiB", "page KiB", "exit code", "names the rank"]
    text += table([row for row in kept.values() if "ranks" in row], columns)
    return "\n".join(text) + "\n"


def table(rows: list[Row], columns: list[str]) -> list[str]:
    shown = [[f"{row[c]:.1f}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *(f"| {' | '.join(row)} |" for row in shown)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--simulated", type=int, nargs="*", default=[10_000])
    parser.add_argument("--events", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    kept: dict[str, Row] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    plans = [(f"real {world} {kind}", real, (world, kind)) for world in args.world for kind in args.kind]
    for ranks in args.simulated:
        for count in args.events:
            plans += [(f"simulated {ranks} {count} {kind}", simulated, (ranks, count, kind)) for kind in ("operation", "none")]
    for name, function, values in plans:
        kept[name] = function(*values)
        print(name, kept[name], flush=True)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    if args.write:
        RESULT.write_text(page(kept))


if __name__ == "__main__":
    main()
