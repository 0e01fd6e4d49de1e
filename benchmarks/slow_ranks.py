"""How often a slow rank is found, and that even runs get no verdict; writes benchmarks/slow_ranks.md with --write.

    python benchmarks/slow_ranks.py --seeds 40 --real 10 --write

Generated steps (`generated_steps.py`) have noise, load and pauses; real runs are of two and four gloo ranks on this machine, with a
sleep in one phase of one rank. Their steps are 50. A slow-down is a share of a step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from generated_steps import BUSY, QUIET, SHARES, Noise, steps_of

from ddp_audit.compare.waiting import Straggler, waiting
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.launcher import run_traced

STEPS = 51
PROGRAM = Path(__file__).with_name("slow_program.py")
RESULT = Path(__file__).with_name("slow_ranks.md")
REAL_STEP = 0.1  # seconds of a real step, about; the sleeps are shares of it


def generated(ranks: int, seed: int, noise: Noise, steps: int = STEPS, **slow: object) -> list[Straggler]:
    """The verdict on one generated run."""
    varied = {"buffers": seed % 2 == 0, "metric": seed % 3 == 0, "hosts": 2 if seed % 5 == 0 else 1}
    found = waiting(steps_of(ranks, steps, seed, noise=noise, **varied, **slow))  # type: ignore[arg-type]
    return found[0].stragglers if found else []


def real(ranks: int, slow: int, phase: str, share: float) -> list[Straggler] | None:
    """The verdict on one real run; None where it failed."""
    settings = {"SLOW": slow, "PHASE": phase, "EXTRA": share * REAL_STEP, "STEPS": STEPS + 2, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in settings.items()})
    with tempfile.TemporaryDirectory() as folder:
        command = ["torchrun", "--nproc-per-node", str(ranks), "--standalone", str(PROGRAM)]
        ended = run_traced(command, directory=folder, stall_after=0)
        if ended.exit_code:
            return None
        found = waiting(load_columns(folder)[0])
    return found[0].stragglers if found else None


def table_of_generated(seeds: int) -> Iterator[str]:
    yield "| ranks | phase | 5 % | 10 % | 20 % | another rank or phase |"
    yield "|---|---|---|---|---|---|"
    for ranks in (2, 4, 8, 16, 64):
        count = seeds if ranks < 64 else max(10, seeds // 4)
        for phase in SHARES:
            cells, wrong = [], 0
            for share in (0.05, 0.1, 0.2):
                right = 0
                for seed in range(count):
                    slow = seed % ranks
                    found = generated(ranks, 1000 + seed, QUIET, slow=slow, phase=phase, share=share)
                    right += any((one.rank, one.phase) == (slow, phase) for one in found)
                    wrong += any((one.rank, one.phase) != (slow, phase) for one in found)
                cells.append(f"{right} of {count}")
            yield f"| {ranks} | {phase} | {' | '.join(cells)} | {wrong} |"


def table_of_even(seeds: int) -> Iterator[str]:
    yield "| ranks | steps | noise | runs | with a verdict |"
    yield "|---|---|---|---|---|"
    for name, noise in (("usual", QUIET), ("heavy", BUSY)):
        for ranks in (2, 4, 8, 64):
            for steps in (STEPS, 401) if ranks < 64 else (STEPS,):
                count = max(seeds, 50) if ranks < 64 else 20
                false = sum(bool(generated(ranks, seed, noise, steps)) for seed in range(count))
                yield f"| {ranks} | {steps - 1} | {name} | {count} | {false} |"


def table_of_real(runs: int) -> Iterator[str]:
    yield "| ranks | phase | slow-down | runs | found | another verdict |"
    yield "|---|---|---|---|---|---|"
    kinds = [(2, "", 0.0), *((2, phase, share) for phase in SHARES for share in (0.1, 0.2)), (2, "forward", 0.05), (4, "data", 0.2)]
    for ranks, phase, share in kinds:
        count = right = other = failed = 0
        for number in range(runs if phase else 5 * runs):
            slow = number % ranks
            found = real(ranks, slow if phase else -1, phase, share)
            if found is None:
                failed += 1
                continue
            count += 1
            right += any((one.rank, one.phase) == (slow, phase) for one in found)
            other += any((one.rank, one.phase) != (slow, phase) for one in found)
        note = f" ({failed} more failed)" if failed else ""
        yield f"| {ranks} | {phase or 'even'} | {100 * share:.0f} % | {count}{note} | {right if phase else '-'} | {other} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="generated runs of each kind")
    parser.add_argument("--real", type=int, default=0, help="real runs of each kind; five times as many even ones")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    began = time.process_time()
    parts = [
        ("Generated runs of 50 steps, one rank slow: found with its phase", table_of_generated(args.seeds)),
        ("Generated even runs", table_of_even(args.seeds)),
    ]
    if args.real:
        load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores at their start"
        title = f"Real runs of 50 steps ({load}; a slow-down of 10 % sleeps {REAL_STEP * 100:.0f} ms a step)"
        parts.append((title, table_of_real(args.real)))
    out = ["# Slow ranks", "", "By `benchmarks/slow_ranks.py`; [Slow or stuck](../docs/slow-or-stuck.md) explains the verdict.", ""]
    for title, table in parts:
        print(title, flush=True)
        out += [f"## {title}", ""]
        for line in table:
            print(line, flush=True)
            out.append(line)
        out.append("")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=PROGRAM.parent)
    out.append(f"At {commit.stdout.strip() or '?'}, {time.process_time() - began:.0f} CPU seconds without the real runs' own.")
    if args.write:
        RESULT.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
