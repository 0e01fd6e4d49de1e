"""Runs scripts one after another in one process, each with a process group of its own: one start for many programs.

Each group meets over a file of its own: over the launcher's store a second group would find the addresses of the first. The
import of torch.distributed.nn comes before the groups: it keeps one alive otherwise, whose threads may end the process.
What a script leaves is kept until the end: torch 2.13 now and then waits for ever where a wrapper is freed while a thread of its
group still drops the last reduction's callback, since the one holds the interpreter lock that the other needs.
"""

import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

folder, scripts = Path(sys.argv[1]), sys.argv[2:]
init = dist.init_process_group
kept = []
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
for number, script in enumerate(scripts):
    store = dist.FileStore(str(folder / f"store-{number}"), world_size)
    dist.init_process_group = lambda backend, store=store: init(backend, store=store, rank=rank, world_size=world_size)
    kept.append((store, runpy.run_path(script, run_name="__main__")))
