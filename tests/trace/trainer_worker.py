"""Runs the reference trainer on two ranks, without the tracer and with each kernel: `trainer_worker.py FOLDER`. Prints JSON.

The ranks are forked from this process, which has imported torch, so that a run takes a second. `run` says for each what rank 0
printed, losses, evaluations, the hash of all parameters, and what collectives its Flight Recorder has.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it, which takes seconds
from safe_worker import issued

from ddp_audit_trainer import train

OPTIONS = ["--device", "cpu", "--max-steps", "8", "--dropout", "0.2", "--lengths", "varied", "--sampling", "random-windows"]


def run(folder: Path, kernel: str, port: int) -> str:
    """What rank 0 prints, without times; `kernel` is "none", "off" or "on"."""
    folder.mkdir()
    children = []
    for rank in range(2):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(os.open(folder / str(rank), os.O_WRONLY | os.O_CREAT, 0o644), 1)
                train_rank(folder, kernel, rank, port)
                collectives = issued()
                print("collectives", len(collectives), collectives)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if codes != [0, 0]:
        raise SystemExit(f"the ranks ended with {codes}")
    return re.sub(r"\d+ ms", "", (folder / "0").read_text())


def train_rank(folder: Path, kernel: str, rank: int, port: int) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", **address)
    sys.argv = ["train", *OPTIONS]
    if kernel != "none":
        os.environ.update(DDP_AUDIT_TRACE_DIR=str(folder / "trace"), DDP_AUDIT_NATIVE=kernel)
        from ddp_audit.trace.worker import boot

        boot.start()
        train.main()
        boot._leave()
    else:
        train.main()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    print(json.dumps({kernel: run(folder / kernel, kernel, free_port()) for kernel in ("none", *sys.argv[2:])}))


if __name__ == "__main__":
    main()
