"""The memory of `ddp-audit trace` while it watches a long run: the largest resident memory of the launcher's process.

    python benchmarks/watcher_memory.py [--ranks 2] [EVENTS ...]

The traced command is this file: it writes generated traces (`generated_traces.py`) piece by piece into the folder that the
launcher watches, so no rank runs and no time goes by in collectives.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated_traces import generate

from ddp_audit.trace.worker import layout

PIECE = 64 * layout.RECORD_SIZE * 1024  # bytes of each file between two pauses


def play(folder: Path, ranks: int, events: int, kind: str) -> None:
    """Writes the traces into a folder as ranks would that run fast."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch), ranks, events, kind, ranks - 1)
        names = [layout.FILE_PATTERN.format(rank) for rank in range(ranks)]
        size = max((Path(scratch) / name).stat().st_size for name in names)
        for at in range(0, size, PIECE):
            for name in names:
                with (Path(scratch) / name).open("rb") as source, (folder / name).open("ab") as target:
                    source.seek(at)
                    target.write(source.read(PIECE))
            time.sleep(0.3)


def measure(ranks: int, events: int, kind: str) -> tuple[float, float, float]:
    """MiB of the launcher, its CPU seconds, and wall seconds."""
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, __file__, "--play", kind, "--ranks", str(ranks), str(events)]
        command = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", folder, "--", *worker]
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime, time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="*", type=int, default=[20_000, 200_000])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kind", default="none", help="how the ranks part, see generated_traces.py (default: none)")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        play(Path(os.environ[layout.ENV_DIRECTORY]), args.ranks, args.events[0], args.play)
        return
    print("| ranks | events each | launcher MiB | CPU s | wall s |")
    print("|---|---|---|---|---|")
    for events in args.events:
        memory, cpu, wall = measure(args.ranks, events, args.kind)
        print(f"| {args.ranks} | {events:,} | {memory:.0f} | {cpu:.1f} | {wall:.1f} |", flush=True)


if __name__ == "__main__":
    main()
