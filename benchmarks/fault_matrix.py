"""Each kind of fault on each position of a job: whether the report names the rank and the line, and how soon.

    python benchmarks/fault_matrix.py [KIND ...] [--world 2 8] [--until HH:MM] [--write]

Positions are the first rank, the second, the middle one and the last. The report's time is that from the fault to the first thing
that is printed about it. --write puts the table into benchmarks/fault_matrix.md. A run takes 10 to 20 seconds with two ranks.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddp_audit.cli.recorded import compared_trace
from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import RUNNING, RecordedRun
from ddp_audit.compare.verdict import Comparison
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import TraceError

PROGRAM = Path(__file__).with_name("matrix_program.py")
RESULT = Path(__file__).with_name("fault_matrix.md")
KINDS = (
    "sleep",
    "exception",
    "async-exception",
    "sigkill",
    "sigsegv",
    "sigabrt",
    "sigstop",
    "gil-held",
    "lock",
    "endless-loop",
    "exit-0",
    "full-disk",
)
STALL_AFTER = 4.0


@dataclass(frozen=True)
class Outcome:
    """`blamed`: the ranks that the report blames; `line`: whether the fault's line is in what it says of that rank."""

    kind: str
    world: int
    position: str
    who: int
    blamed: frozenset[int]
    line: bool
    seconds: float | None

    @property
    def said(self) -> str:
        """The fault and what was said of it."""
        line = "its line" if self.line else "another line"
        return f"{self.kind}, {self.world} ranks, {self.position}: blames {sorted(self.blamed) or 'nobody'}, {line}"

    @property
    def is_right(self) -> bool:
        return self.blamed == {self.who}


def positions(world: int) -> dict[str, int]:
    """The ranks at which a fault is put."""
    return {"first": 0, "second": 1, "middle": world // 2, "last": world - 1}


def line_of(kind: str) -> int:
    """The line of a fault in the program."""
    found = [number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if text.endswith(f"# fault: {kind}")]
    (line,) = found
    return line


def run_one(kind: str, world: int, position: str) -> Outcome | str:
    """Runs one fault; or why there is no outcome."""
    who = positions(world)[position]
    first: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        stamp = Path(folder) / "stamp"
        live = LiveComparison(root=Path.cwd())
        late: set[int] = set()

        def seen(run: RecordedRun) -> bool:
            found = live.update(run)
            if found and stamp.exists():
                first.append(time.time())
            return bool(found)

        def stalled(run: RecordedRun) -> None:
            first.append(time.time())
            late.update(rank for rank, one in run.ranks.items() if one.state == RUNNING)

        command = ["torchrun", "--nproc-per-node", str(world), "--standalone", str(PROGRAM), kind, str(who), str(stamp)]
        trace = Path(folder) / "trace"
        ended = run_traced(
            command, directory=trace, stall_after=STALL_AFTER, on_stall="kill", on_divergence=seen, on_stall_report=stalled
        )
        now = time.time()
        if not stamp.exists():
            return f"the program ended with {ended.exit_code} before the fault"
        try:
            _, comparison = compared_trace(trace)
        except TraceError as error:
            return str(error)
        began = float(stamp.read_text())
        blamed = _blamed(comparison, late)
        text = comparison.ranks[who].text + comparison.ranks[who].last + str(comparison.ranks[who].raised_at)
        line = re.search(rf"{PROGRAM.name}:{line_of(kind)}\b", text) is not None
        return Outcome(kind, world, position, who, frozenset(blamed), line, min(first, default=now) - began)


def _blamed(comparison: Comparison, late: set[int]) -> set[int]:
    """The ranks that failed by themselves; else those that are not there where others wait; else those that were late."""
    failed = {rank for rank, state in comparison.ranks.items() if state.failed}
    if failed:
        return failed
    for divergence in comparison.parted:
        absent = {rank for rank, event in divergence.ranks.items() if event is None}
        return absent or set(divergence.odd)
    return late


def table(outcomes: list[Outcome | str]) -> Iterator[str]:
    """A row for each kind and world, and the sums."""
    found = [one for one in outcomes if isinstance(one, Outcome)]
    yield "| fault | ranks | runs | rank right | line right | seconds to the report: median, longest |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        for world in sorted({one.world for one in found}):
            some = [one for one in found if (one.kind, one.world) == (kind, world)]
            if some:
                times = sorted(one.seconds for one in some if one.seconds is not None)
                shown = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}" if times else "-"
                right = sum(one.is_right for one in some)
                yield f"| {kind} | {world} | {len(some)} | {right} | {sum(one.line for one in some)} | {shown} |"
    times = sorted(one.seconds for one in found if one.seconds is not None)
    if times:
        late = times[min(len(times) - 1, int(0.95 * len(times)))]
        right, lines = sum(one.is_right for one in found), sum(one.line for one in found)
        shown = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}; 95 % within {late:.1f}"
        yield f"| all | | {len(found)} | {right} | {lines} | {shown} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS))
    parser.add_argument("--world", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--until", metavar="HH:MM", help="begin no run after that time")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if set(args.kinds) - set(KINDS):
        parser.error(f"no fault is called {', '.join(sorted(set(args.kinds) - set(KINDS)))}")
    planned = [(kind, world, position) for world in args.world for kind in args.kinds for position in positions(world)]
    outcomes: list[Outcome | str] = []
    for kind, world, position in planned:
        if args.until and time.strftime("%H:%M") >= args.until:
            break
        outcome = run_one(kind, world, position)
        outcomes.append(outcome)
        print(kind, world, position, outcome, flush=True)
    lines = list(table(outcomes))
    lost = [f"- {one}" for one in outcomes if isinstance(one, str)]
    wrong = [f"- {one.said}" for one in outcomes if isinstance(one, Outcome) and not (one.is_right and one.line)]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=PROGRAM.parent)
    text = [
        "# The fault matrix",
        "",
        f"Made by `benchmarks/fault_matrix.py` at {commit.stdout.strip()}: {len(outcomes)} of {len(planned)} planned runs, on "
        f"{os.cpu_count()} cores at a load of {os.getloadavg()[0]:.0f},",
        f"with `--stall-after {STALL_AFTER:.0f} --on-stall kill`. A fault is put on the first, second, middle and last rank. Where",
        "nothing diverges, the report waits for the limit of a stall. The line of a rank that was killed can only be that of its",
        "last record.",
        "",
        *lines,
        "",
        *(["Not right:", "", *wrong, ""] if wrong else []),
        *(["Without an outcome:", "", *lost, ""] if lost else []),
    ]
    print(*lines, sep="\n")
    if args.write:
        RESULT.write_text("\n".join(text))


if __name__ == "__main__":
    main()
