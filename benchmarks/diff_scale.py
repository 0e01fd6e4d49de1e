"""What `ddp-audit diff` costs on traces of many ranks: seconds, CPU and memory of the whole process.

python benchmarks/diff_scale.py [--repeat 3] [--folder DIR] [RANKSxEVENTS ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated_traces import generate

SIZES = ("1024x10000", "16384x1000")


def measure(folder: Path) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and the largest resident memory in KiB of one `ddp-audit diff`."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "ddp_audit", "diff", str(folder)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 1:
        raise SystemExit(f"diff of a run that diverged ended with code {code}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="RANKSxEVENTS")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the traces go (default: a temporary folder)")
    args = parser.parse_args()
    print("| ranks | events each | wall s | CPU s | memory MiB | load |")
    print("|---|---|---|---|---|---|")
    for size in args.sizes:
        ranks, events = map(int, size.split("x"))
        folder = Path(tempfile.mkdtemp(prefix="generated-", dir=args.folder))
        try:
            generate(folder, ranks, events, "reduce-op", ranks // 2)
            runs = [measure(folder) for _ in range(args.repeat)]
        finally:
            shutil.rmtree(folder)
        wall, cpu, memory = (min(values) for values in zip(*runs, strict=True))
        print(f"| {ranks:,} | {events:,} | {wall:.1f} | {cpu:.1f} | {memory / 1024:.0f} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
