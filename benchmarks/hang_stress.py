"""Does recording make gloo hang? The same stress, again and again, without the tracer, with delays alone, and with each kernel.

    python benchmarks/hang_stress.py [--runs 100] [--minutes 15] [--timeout 90] [--variants none,jitter,python,native]

A run is two ranks on gloo: asynchronous all-reduces and broadcasts that nobody waits for, functional collectives and DDP steps,
then a barrier. `jitter` waits a random time of up to 100 microseconds before each call and has no hook; the others have the whole
tracer in them. The ranks are forked from a process that has imported torch, so that a run takes about a second. A run that is
not over after the timeout counts as a hang; the slowest of the others tells whether the timeout was fair. The stacks of a hang
are printed. A count of hangs is no proof of innocence: with none in n runs, a rate below 3 / n stays possible (at 95 %).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP imports it, which takes seconds
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from ddp_audit.trace.worker import native

VARIANTS = ("none", "jitter", "python", "native")


def stress(calls: int, delays: random.Random | None) -> None:
    """Issues the same calls on every rank."""
    chosen = random.Random(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)))
    tensors = [torch.ones(size) for size in (1, 4, 64, 1024, 20_000)]
    for _ in range(calls):
        if delays is not None:
            end = time.perf_counter() + delays.random() * 1e-4
            while time.perf_counter() < end:
                pass
        kind = chosen.random()
        tensor = chosen.choice(tensors).clone()
        if kind < 0.5:
            dist.all_reduce(tensor, async_op=True)
        elif kind < 0.8:
            dist.broadcast(tensor, src=chosen.randrange(2), async_op=True)
        elif kind < 0.95:
            functional.all_reduce(tensor, "sum", dist.group.WORLD)
        else:
            model(torch.ones(4, 32)).sum().backward()
    dist.barrier()


def rank_main(rank: int, variant: str, module: Any, folder: str, calls: int) -> None:
    """One rank of a run, in a process of its own. Never returns."""
    code = 1
    try:
        descriptor = os.open(f"{folder}/stacks-{rank}", os.O_WRONLY | os.O_CREAT, 0o644)
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
        if variant in ("python", "native"):
            install(rank, module if variant == "native" else None, folder)
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
        stress(calls, random.Random(rank + time.time_ns()) if variant == "jitter" else None)
        code = 0
    finally:
        os._exit(code)


def install(rank: int, module: Any, folder: str) -> None:
    """The whole tracer, as in a traced run."""
    from ddp_audit.trace.worker.hook import Hook
    from ddp_audit.trace.worker.patches import Patches
    from ddp_audit.trace.worker.tracer import Tracer
    from ddp_audit.trace.worker.watch import Watch

    tracer = Tracer(f"{folder}/trace")
    tracer.open(rank, 2)
    keep = (Patches(tracer), Hook(tracer, module), Watch(tracer))
    globals()["keep"] = keep


def run_once(variant: str, module: Any, calls: int, timeout: float) -> tuple[str, float, str]:
    """One run: ('ok', 'hang' or 'failed'), its seconds, and the stacks of a hang."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        left = {}
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                rank_main(rank, variant, module, folder, calls)
            left[pid] = rank
        failed = False
        while left and time.monotonic() - begin < timeout:
            for pid in list(left):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del left[pid]
                    failed = failed or status != 0
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        if not left:
            return "failed" if failed else "ok", seconds, ""
        for pid in left:
            os.kill(pid, signal.SIGUSR1)
        time.sleep(2)
        stacks = "\n".join(f"rank {rank}:\n{Path(folder, f'stacks-{rank}').read_text()}" for rank in left.values())
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return "failed" if failed else "hang", seconds, stacks


def main() -> None:
    """Runs the variants in turn and prints a table at the end."""
    parser = argparse.ArgumentParser(description="hangs of a gloo stress, with and without the tracer")
    parser.add_argument("--runs", type=int, default=100, help="runs of each variant")
    parser.add_argument("--minutes", type=float, default=15, help="stop after so long")
    parser.add_argument("--timeout", type=float, default=90, help="seconds after which a run is a hang")
    parser.add_argument("--calls", type=int, default=600, help="calls a run")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    variants = options.variants.split(",")
    module = None
    if "native" in variants:
        path = native.build_path()
        if not native.is_built(path):
            parser.error("the native kernel is not built: python -m ddp_audit.trace.build")
        module = native.load(path)
    results: dict[str, list[tuple[str, float]]] = {variant: [] for variant in variants}
    end = time.monotonic() + options.minutes * 60
    for number in range(options.runs):
        for variant in variants:
            if time.monotonic() > end:
                break
            what, seconds, stacks = run_once(variant, module, options.calls, options.timeout)
            results[variant].append((what, seconds))
            if what != "ok":
                print(f"run {number} {variant}: {what} after {seconds:.1f} s\n{stacks}", flush=True)
    print(f"torch {torch.__version__}, {options.calls} calls a run, timeout {options.timeout:g} s")
    print(f"{'variant':<10}{'runs':>6}{'hangs':>7}{'failed':>8}{'median s':>10}{'slowest s':>11}")
    for variant, found in results.items():
        times = sorted(seconds for what, seconds in found if what == "ok") or [0.0]
        counts = [sum(what == kind for what, _ in found) for kind in ("hang", "failed")]
        print(f"{variant:<10}{len(found):>6}{counts[0]:>7}{counts[1]:>8}{times[len(times) // 2]:>10.2f}{times[-1]:>11.2f}")


if __name__ == "__main__":
    main()
