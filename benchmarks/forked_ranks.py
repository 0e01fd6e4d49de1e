"""Starts a script on many ranks of one machine as torchrun does, but by forking, so that torch is imported once for all of them.

    python benchmarks/forked_ranks.py RANKS SCRIPT [ARGUMENTS ...]

For jobs of more ranks than this machine could start one by one: importing torch takes seconds of a core for each process. This
process imports it, and every rank is a fork of it, with the variables that torchrun sets, that runs SCRIPT as its main program and
leaves by the interpreter's own end. Under `ddp-audit trace` the tracer is installed in this process, as after any `import torch`;
a fork has its own file from `init_process_group` on, as with a program that forks its ranks itself. When a rank fails, the others
get SIGTERM, and after some seconds SIGKILL; the exit code is then 1.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it, which takes seconds and 200 MB
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.parallel
import torch.optim

_PATIENCE = 30.0
_POLL = 0.1


def main() -> None:
    ranks, words = int(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum()  # what is set up at the first use is shared too
    assert dist.is_available() and torch.optim.SGD
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gc.collect()
    gc.freeze()  # the collector writes into what it looks at, which would copy the pages into every rank
    pids: dict[int, int] = {}
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
            sys.argv = words
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
            return
        pids[pid] = rank
    sys.exit(watch(pids))


def watch(pids: dict[int, int]) -> int:
    """Waits for the ranks; ends them when one has failed."""
    failed, told = 0, 0.0
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            rank = pids.pop(pid)
            if status and not failed:
                failed, told = 1, time.monotonic()
                print(f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
                _send(pids, signal.SIGTERM)
            continue
        if failed and time.monotonic() - told > _PATIENCE:
            _send(pids, signal.SIGKILL)
        time.sleep(_POLL)
    return failed


def _send(pids: dict[int, int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


if __name__ == "__main__":
    main()
