"""Puts the observer into a script that is started by plain python and spawns its ranks itself, and into those ranks.

Python imports this module at its start where this folder is on PYTHONPATH. A process becomes a rank when it makes a process group, and
writes its facts when it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch.distributed as dist
from observer import Observer
from torch.distributed import distributed_c10d


def observe(base: str, devices: int) -> None:
    """Watches this process; its facts go to BASE.RANK.json."""
    observer, begin, ranks = Observer(devices), dist.init_process_group, []

    def init_process_group(*args: Any, **named: Any) -> None:
        begin(*args, **named)
        ranks.append(dist.get_rank())

    def write() -> None:
        if ranks:
            Path(f"{base}.{ranks[0]}.json").write_text(json.dumps(observer.record() | {"code": 0, "error": ""}))

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    observer.install()
    atexit.register(write)
    Finalize(None, write, exitpriority=100)  # a spawned process ends without atexit


if "CASE_RECORD" in os.environ:
    observe(os.environ["CASE_RECORD"], int(os.environ.get("CASE_DEVICES", "0")))
