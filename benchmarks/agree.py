"""Runs many random programs on the machine and on real DistributedDataParallel, and writes down where they differ.

    python benchmarks/agree.py [N] [--seed S] [--unequal M] [--join J] [--write]

N programs that both ranks run alike are compared event by event and gradient by gradient; M more differ between the ranks, and
their end (completes, hangs, aborts) and the place where each rank stands are compared. Two ranks, gloo, CPU. Exit code 1 where
anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "machine"))
sys.path.insert(0, str(ROOT / "tests" / "explore"))

import agreement  # noqa: E402 - found by the path above
import drawing  # noqa: E402
from drawing_scripts import draw_script  # noqa: E402
from forked_ranks import ForkedRanks, held  # noqa: E402
from predictor import Case  # noqa: E402
from real_ranks import RealRanks  # noqa: E402


@dataclass(frozen=True)
class Kind:
    """A kind of programs: how they are drawn, compared and made smaller."""

    name: str
    draw: Callable[..., Case]
    compare: Callable[[Case, RealRanks], str | None]
    shrink: Callable[[Case, RealRanks], Case]


EQUAL = Kind("True", drawing.draw_case, agreement.disagreement, agreement.shrink)
UNEQUAL = Kind("False", drawing.draw_unequal_case, agreement.outcome_disagreement, agreement.shrink_unequal)
WIDE = Kind("wide", drawing.draw_wide_case, agreement.disagreement, lambda case, real: case)
JOIN = Kind("join", drawing.draw_join_case, agreement.disagreement, lambda case, real: case)
SHRUNK = 20  # disagreements that are made small; the others are counted


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the machine with torch on random programs.")
    parser.add_argument("number", nargs="?", type=int, default=1000, help="programs that are the same on both ranks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unequal", type=int, default=None, help="programs that differ between ranks; default N/50")
    parser.add_argument("--join", type=int, default=None, help="programs of uneven inputs under join; default N/20")
    parser.add_argument("--wide", type=int, default=None, help="programs on three and four ranks; default N/10")
    parser.add_argument("--scripts", type=int, default=None, help="scripts on two to four processes; default N/50")
    parser.add_argument("--focus", default="", help="features that every program has, with commas (see FEATURES of drawing.py)")
    parser.add_argument("--write", action="store_true", help="write benchmarks/agree-result.json")
    arguments = parser.parse_args()
    unequal = arguments.number // 50 if arguments.unequal is None else arguments.unequal
    join = arguments.number // 20 if arguments.join is None else arguments.join
    wide = arguments.number // 10 if arguments.wide is None else arguments.wide
    began = time.monotonic()
    ends: Counter[str] = Counter()
    with RealRanks(timeout=1.5) as real:
        equal_found = campaign(real, arguments.number, arguments.seed, EQUAL, focus=arguments.focus)
        join_found = campaign(real, join, arguments.seed, JOIN, focus=arguments.focus)
        wide_found = campaign(real, wide, arguments.seed, WIDE, focus=arguments.focus)
        scripts = arguments.number // 50 if arguments.scripts is None else arguments.scripts
        scripts_found = script_campaign(scripts, arguments.seed)
        unequal_found = campaign(real, unequal, arguments.seed, UNEQUAL, ends=ends, focus=arguments.focus)
    result = {
        "torch": torch_version(),
        "python": sys.version.split()[0],
        "backend": "gloo",
        "ranks": 2,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - began),
        "cpus": os.cpu_count(),
        "equal_programs": {"run": arguments.number, **equal_found},
        "join_programs": {"run": join, **join_found},
        "wide_programs": {"run": wide, "ranks": [3, 4], **wide_found},
        "scripts": {"run": scripts, "ranks": [2, 3, 4], **scripts_found},
        "unequal_programs": {"run": unequal, "ends": dict(sorted(ends.items())), **unequal_found},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.write:
        (ROOT / "benchmarks" / "agree-result.json").write_text(text + "\n", encoding="utf-8")
    return 1 if any(found["disagreements"] for found in (equal_found, join_found, wide_found, scripts_found, unequal_found)) else 0


def campaign(
    real: RealRanks, number: int, seed: int, kind: Kind, *, ends: Counter[str] | None = None, focus: str = ""
) -> dict[str, Any]:
    """Runs `number` programs; returns the count of disagreements and the smallest program of each kind of them."""
    draw, compare, shrink = kind.draw, kind.compare, kind.shrink
    found = 0
    smallest: dict[str, dict[str, Any]] = {}
    for i in range(number):
        case = draw(random.Random(f"{seed}/{kind.name}/{i}"), focus=focus)
        difference = compare(case, real)
        if ends is not None:
            ends[agreement.predicted_outcome(case).kind] += 1
        if difference is None:
            continue
        found += 1
        print(f"program {i}: {difference}", file=sys.stderr, flush=True)
        if found > SHRUNK:
            continue
        small = shrink(case, real)
        text = compare(small, real) or difference
        label = text.split(": ", 1)[-1].split(" ", 2)[0] + (" hang" if "hangs" in text else "")
        size = sum(map(len, small.programs))
        if label not in smallest or size < smallest[label]["size"]:
            smallest[label] = {"difference": text, "size": size, "case": asdict(small)}
    return {"disagreements": found, "smallest": list(smallest.values())}


def script_campaign(number: int, seed: int) -> dict[str, Any]:
    """Predicts `number` scripts and runs them on real processes; returns the count of disagreements, and the shortest script."""
    found = 0
    smallest: list[dict[str, Any]] = []
    with ForkedRanks() as forked, tempfile.TemporaryDirectory() as folder:
        for i in range(number):
            world_size, text = draw_script(random.Random(f"{seed}/script/{i}"))
            script = Path(folder) / f"script{i}.py"
            script.write_text(text, encoding="utf-8")
            difference = held(forked, script, world_size)
            if difference is not None:
                found += 1
                print(f"script {i}: {difference}", file=sys.stderr, flush=True)
                smallest = sorted([*smallest, {"difference": difference, "size": len(text), "case": text}], key=_size)[:1]
    return {"disagreements": found, "smallest": smallest}


def _size(entry: dict[str, Any]) -> int:
    return int(entry["size"])


def torch_version() -> str:
    import torch

    return str(torch.__version__)


if __name__ == "__main__":
    sys.exit(main())
