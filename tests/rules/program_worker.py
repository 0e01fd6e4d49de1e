"""Worker under torchrun: runs several programs one after another, each in a child process of its own, and notes how each ended.

`program_worker.py FOLDER` runs the files that FOLDER/list.json names. torch is imported once and the children are forked, which
saves most of the time that a torchrun of each program would take. A program sees what torchrun gives it; its process group has
keys of its own in the launcher's store.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.optim
import torch.nn.parallel
from torch.utils._python_dispatch import TorchDispatchMode


class Reductions(TorchDispatchMode):
    """Counts the all-reduces of this process, those of DDP's reducer included."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.name().startswith("c10d::allreduce_")
        return func(*args, **(kwargs or {}))


def use_own_keys(prefix: str) -> None:
    """Lets init_process_group of this process meet its peers under a prefix in the launcher's store."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    where = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group = functools.partial(dist.init_process_group, store=dist.PrefixStore(prefix, store), **where)


def child(program: Path, result: Path) -> None:
    """Runs one program with its output in files; the process ends here."""
    rank = os.environ["RANK"]
    output = os.open(result.with_suffix(f".{rank}.out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    code, reductions = 0, Reductions()
    # Kept to the end of the process: to free a process group waits for its threads, and these may wait for the interpreter.
    scope: dict[str, Any] = {"__name__": "__main__"}
    try:
        use_own_keys(program.stem)
        with reductions:
            exec(compile(program.read_text(), str(program), "exec"), scope)
    except BaseException:
        traceback.print_exc()
        code = 1
    result.with_suffix(f".{rank}.count").write_text(str(reductions.count))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    torch.set_num_threads(1)
    assert not dist.is_initialized()
    codes = {}
    for name in json.loads((folder / "list.json").read_text()):
        pid = os.fork()
        if pid == 0:
            child(folder / f"{name}.py", folder / name)
        until = time.monotonic() + 60
        ended, status = os.waitpid(pid, os.WNOHANG)
        while not ended and time.monotonic() < until:
            time.sleep(0.02)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        codes[name] = os.waitstatus_to_exitcode(status)
    (folder / f"codes.{rank}.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
