"""Starts a program under torchrun and keeps what the Flight Recorder knows of it: `flight.py FOLDER SECONDS PROGRAM [ARGUMENT ..]`.

On gloo nothing dumps the Flight Recorder's ring, so each rank does it here: when the program has ended, in whatever way, or SECONDS
after its process group was made. The groups are added that such a dump lacks, without which torchfrtrace does not read it.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

SETTLE = 20.0  # seconds to wait for the dumps of the others: the launcher ends them when one rank leaves
_once = threading.Lock()


def dump(folder: Path) -> None:
    """Writes this rank's ring, once, and waits for those of the others."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not _once.acquire(blocking=False):
        return
    ring = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, True, False))
    groups = {entry["process_group"] for entry in ring.get("entries", [])}
    ring["pg_config"] = {name: {"name": name, "desc": desc, "ranks": str(list(range(world)))} for name, desc in groups}
    partial = folder / f".{rank}"
    partial.write_bytes(pickle.dumps(ring))
    partial.rename(folder / f"dump_{rank}")
    until = time.monotonic() + SETTLE
    while time.monotonic() < until and len(list(folder.glob("dump_*"))) < world:
        time.sleep(0.1)


def watch(folder: Path, seconds: float) -> None:
    """Ends this rank with a dump when it has had its time."""
    while not dist.is_initialized():
        time.sleep(0.1)
    time.sleep(seconds)
    dump(folder)
    os._exit(3)


def main() -> None:
    folder, seconds, program = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(program).parent)
    threading.Thread(target=watch, args=(folder, seconds), daemon=True).start()
    code = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        code = 1
        raise
    finally:
        dump(folder)
        if code == 0:
            os._exit(0)


if __name__ == "__main__":
    main()
