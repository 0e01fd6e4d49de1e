"""Each kind of fault on each position of a job: whether the report names the rank and the line, and how soon.

    python benchmarks/fault_matrix.py [KIND ...] [--world 2 8] [--position first ..] [--torchrun] [--more] [--write]

Positions are the first rank, the second, the middle one and the last. The report's time is that from the fault to the first thing
that is printed about it. Ranks are forked from one process that has imported torch (forked_ranks.py), or with --torchrun started
one by one. Each outcome is kept in fault_matrix.json; --write makes fault_matrix.md of all that are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ddp_audit.cli.recorded import compared_trace
from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import RUNNING, RecordedRun
from ddp_audit.compare.verdict import Comparison
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import TraceError

PROGRAM = Path(__file__).with_name("matrix_program.py")
FORKED = Path(__file__).with_name("forked_ranks.py")
RESULT = Path(__file__).with_name("fault_matrix.md")
KEPT = RESULT.with_suffix(".json")
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
TRIES = 3  # on a full machine the beginning of a run can stand still for so long


@dataclass(frozen=True)
class Outcome:
    """`blamed`: the ranks that the report blames; `line`: whether the fault's line is in what it says of that rank; `seconds`: from
    the fault to the first word of it; `lost`: why nothing can be said."""

    kind: str
    world: int
    position: str
    who: int
    way: str
    blamed: tuple[int, ...] = ()
    line: bool = False
    seconds: float = 0.0
    lost: str = ""

    @property
    def said(self) -> str:
        """The fault and what was said of it."""
        what = f"{self.kind}, {self.world} ranks, {self.position} ({self.way})"
        if self.lost:
            return f"{what}: {self.lost}"
        return f"{what}: blames {list(self.blamed) or 'nobody'}, {'its line' if self.line else 'another line'}"

    @property
    def is_right(self) -> bool:
        return self.blamed == (self.who,)


def positions(world: int) -> dict[str, int]:
    """The ranks at which a fault is put."""
    return {"first": 0, "second": 1, "middle": world // 2, "last": world - 1}


def line_of(kind: str) -> int:
    """The line of a fault in the program."""
    found = [number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if text.endswith(f"# fault: {kind}")]
    (line,) = found
    return line


def started(world: int, way: str) -> list[str]:
    """The words that start a program on so many ranks."""
    if way == "torchrun":
        return ["torchrun", "--nproc-per-node", str(world), "--standalone"]
    return [sys.executable, str(FORKED), str(world)]


def run_one(kind: str, world: int, position: str, way: str) -> Outcome:
    """Runs one fault."""
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
            if stamp.exists():
                first.append(time.time())
                late.update(rank for rank, one in run.ranks.items() if one.state == RUNNING)

        command = [*started(world, way), str(PROGRAM), kind, str(who), str(stamp)]
        trace = Path(folder) / "trace"
        ended = run_traced(
            command, directory=trace, stall_after=STALL_AFTER, on_stall="kill", on_divergence=seen, on_stall_report=stalled
        )
        now = time.time()
        if not stamp.exists():
            return Outcome(kind, world, position, who, way, lost=f"the program ended with {ended.exit_code} before the fault")
        try:
            _, comparison = compared_trace(trace)
        except TraceError as error:
            return Outcome(kind, world, position, who, way, lost=str(error))
        found = tuple(sorted(blamed(comparison, late)))
        text = comparison.ranks[who].text + comparison.ranks[who].last + str(comparison.ranks[who].raised_at)
        line = re.search(rf"{PROGRAM.name}:{line_of(kind)}\b", text) is not None
        seconds = round(min(first, default=now) - float(stamp.read_text()), 2)
        return Outcome(kind, world, position, who, way, found, line, seconds)


def blamed(comparison: Comparison, late: set[int]) -> set[int]:
    """The ranks that failed by themselves; else those that are not there where others wait; else those that were late."""
    failed = {rank for rank, state in comparison.ranks.items() if state.failed}
    if failed:
        return failed
    for divergence in comparison.parted:
        absent = {rank for rank, event in divergence.ranks.items() if event is None}
        return absent or set(divergence.odd)
    return late


def table(outcomes: list[Outcome]) -> Iterator[str]:
    """A row for each kind and world, and the sums."""
    yield "| fault | ranks | runs | rank right | line right | seconds to the report: median, longest |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        for world in sorted({one.world for one in outcomes}):
            some = [one for one in outcomes if (one.kind, one.world) == (kind, world)]
            if some:
                yield row(kind, str(world), some)
    for world in sorted({one.world for one in outcomes}):
        yield row("all", str(world), [one for one in outcomes if one.world == world])
    yield row("all", "", outcomes)


def row(kind: str, world: str, some: list[Outcome]) -> str:
    times = sorted(one.seconds for one in some if not one.lost)
    shown = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}" if times else "-"
    if kind == "all" and times:
        shown += f"; 95 % within {times[min(len(times) - 1, int(0.95 * len(times)))]:.1f}"
    return f"| {kind} | {world} | {len(some)} | {sum(one.is_right for one in some)} | {sum(one.line for one in some)} | {shown} |"


def page(outcomes: list[Outcome]) -> str:
    """The table and what is not right in it."""
    wrong = [f"- {one.said}" for one in outcomes if not one.is_right]
    no_line = [f"- {one.said}" for one in outcomes if one.is_right and not one.line]
    ways = sorted({(one.world, one.way) for one in outcomes})
    text = [
        "# The fault matrix",
        "",
        f"Made by `benchmarks/fault_matrix.py`: {len(outcomes)} runs on {os.cpu_count()} cores that other work filled, with",
        f"`--stall-after {STALL_AFTER:.0f} --on-stall kill`. A fault is put on the first, second, middle and last rank (of two",
        "ranks the last three are one). Ranks are forked from one process that has imported torch (`forked_ranks.py`), or started",
        f"by torchrun: {', '.join(f'{world} ranks {way}' for world, way in ways)}. Where nothing diverges, the report waits",
        "for the limit of a stall. The line of a rank that was killed or stopped is the one at which it was last seen. Here the",
        "rank sends itself the signal, and the tracer notes where; of one that is killed from outside it is the line of the last",
        "heartbeat, of which there are ten a second (two with the native kernel).",
        "",
        *table(outcomes),
        "",
        *(["The rank not right:", "", *wrong, ""] if wrong else []),
        *(["The rank right, and another line than that of the fault:", "", *no_line, ""] if no_line else []),
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS))
    parser.add_argument("--world", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--position", nargs="+", choices=tuple(positions(2)), default=list(positions(2)))
    parser.add_argument("--torchrun", action="store_true", help="start each rank by itself")
    parser.add_argument("--more", action="store_true", help="leave out what is kept")
    parser.add_argument("--until", metavar="HH:MM", help="begin no run after that time")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if set(args.kinds) - set(KINDS):
        parser.error(f"no fault is called {', '.join(sorted(set(args.kinds) - set(KINDS)))}")
    way = "torchrun" if args.torchrun else "forked"
    for kind, world, position in [(kind, world, p) for world in args.world for kind in args.kinds for p in args.position]:
        if args.until and time.strftime("%H:%M") >= args.until:
            break
        key = f"{kind} {world} {position}"
        if args.more and key in _kept():
            continue
        for _ in range(TRIES):
            outcome = run_one(kind, world, position, way)
            if not outcome.lost:
                break
        print(f"{outcome.said}, {outcome.seconds} s", flush=True)
        kept = {**_kept(), key: outcome}
        KEPT.write_text("{\n" + ",\n".join(f'"{key}": {json.dumps(asdict(one))}' for key, one in kept.items()) + "\n}\n")
    if args.write:
        RESULT.write_text(page(list(_kept().values())))


def _kept() -> dict[str, Outcome]:
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return {key: Outcome(**{**one, "blamed": tuple(one["blamed"])}) for key, one in found.items()}


if __name__ == "__main__":
    main()
