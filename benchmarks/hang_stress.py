"""Does recording make gloo hang? The same stress, again and again, without the tracer, with delays alone, and with each kernel.

    python benchmarks/hang_stress.py [--runs 300] [--minutes 60] [--timeout 120] [--write]

A run is two ranks on gloo. In each of its rounds come several hundred asynchronous all-reduces and broadcasts whose Works nobody
keeps or waits for, then functional collectives whose results are used, then a new DDP wrapper and some steps of it; a barrier ends
the run. The variants:

- none: no hook.
- jitter: no hook; a random time of up to 100 microseconds goes by before each call, also in the backward pass (a tensor's hook).
- bare: a Python kernel at the dispatcher that keeps a tuple and hands the call on, and nothing else of the tracer.
- python, native: the whole tracer, with that kernel.

The ranks are forked from a process that has imported torch, so that a run takes about a second. A run that is not over after the
timeout gets the same time once more, so that a slow one is not taken for a hang; the stacks of a hang are printed, those of C++ too
where gdb is installed. A count of hangs is no proof of innocence: with none in n runs, a rate below 3 / n stays possible (at 95 %).
`--write` puts the table into hang-stress.md beside this file.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP imports it, which takes seconds
import torch.distributed as dist
import torch.distributed.nn  # before the process group is made
from torch import library, nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from ddp_audit.trace.worker import native

VARIANTS = ("none", "jitter", "bare", "python", "native")
RESULT = Path(__file__).with_name("hang-stress.md")
SIZES = (1, 4, 64, 1024, 20_000)


def stress(rounds: int, burst: int, wait: Callable[[], None]) -> None:
    """Issues the same calls on every rank. `wait` comes before each."""
    chosen = random.Random(5)
    tensors = [torch.ones(size) for size in SIZES]
    for _ in range(rounds):
        for _ in range(burst):
            tensor = chosen.choice(tensors).clone()
            wait()
            if chosen.random() < 0.6:
                dist.all_reduce(tensor, async_op=True)
            else:
                dist.broadcast(tensor, src=chosen.randrange(2), async_op=True)
        for _ in range(burst // 20):
            wait()
            total = functional.all_reduce(chosen.choice(tensors), "sum", dist.group.WORLD)
            wait()
            gathered = functional.all_gather_tensor(total, 0, dist.group.WORLD)
            assert float(gathered[0]) == 2.0
        network = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))
        model = DistributedDataParallel(network, bucket_cap_mb=0.002)
        for parameter in network.parameters():
            parameter.register_hook(lambda gradient: wait())
        for _ in range(burst // 40):
            wait()
            model(torch.ones(4, 32)).sum().backward()
    dist.barrier()


def jitter(rank: int) -> Callable[[], None]:
    """A wait of a random time, another on each rank and in each run."""
    delays = random.Random(rank + time.time_ns())

    def wait() -> None:
        end = time.perf_counter() + delays.random() * 1e-4
        while time.perf_counter() < end:
            pass

    return wait


def no_wait() -> None:
    """No wait."""


def install_bare() -> None:
    """A kernel for every operation that keeps a tuple."""
    kept: list[Any] = []
    key = torch._C.DispatchKey.BackendSelect
    after = torch._C._dispatch_keyset_full_after(key)
    implementation = library.Library("c10d", "IMPL")
    globals()["kept"] = (implementation, kept)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "c10d" and any(argument.name == "process_group" for argument in schema.arguments):
            redispatch = getattr(torch.ops.c10d, name).default._handle.redispatch_boxed

            def kernel(keys: Any, *arguments: Any, redispatch: Any = redispatch, name: str = name) -> Any:
                kept.append((name, time.time(), len(arguments)))
                return redispatch(keys & after, *arguments)

            implementation.impl(name, kernel, "BackendSelect", with_keyset=True)


def rank_main(rank: int, variant: str, module: Any, folder: str, rounds: int, burst: int) -> None:
    """One rank of a run, in a process of its own. Never returns."""
    code = 1
    try:
        descriptor = os.open(f"{folder}/stacks-{rank}", os.O_WRONLY | os.O_CREAT, 0o644)
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
        if variant == "bare":
            install_bare()
        elif variant in ("python", "native"):
            install(rank, module if variant == "native" else None, folder)
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
        stress(rounds, burst, jitter(rank) if variant == "jitter" else no_wait)
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


def run_once(variant: str, module: Any, rounds: int, burst: int, timeout: float) -> tuple[str, float, str]:
    """One run: ('ok', 'slow', 'hang' or 'failed'), its seconds, and the stacks of a hang."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        left = {}
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                rank_main(rank, variant, module, folder, rounds, burst)
            left[pid] = rank
        failed = wait_for(left, begin + timeout)
        is_slow = bool(left)
        stacks = look_at(left, folder) if left else ""
        failed = wait_for(left, begin + 2 * timeout) or failed
        seconds = time.monotonic() - begin
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return "failed" if failed else "hang" if left else "slow" if is_slow else "ok", seconds, stacks


def wait_for(left: dict[int, int], end: float) -> bool:
    """Takes the processes out of `left` that end in time. Returns whether one has failed."""
    failed = False
    while left and time.monotonic() < end:
        for pid in list(left):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del left[pid]
                failed = failed or status != 0
        time.sleep(0.02)
    return failed


def look_at(left: dict[int, int], folder: str) -> str:
    """The stacks of processes that wait."""
    told = []
    for pid, rank in left.items():
        os.kill(pid, signal.SIGUSR1)
        time.sleep(3)
        told.append(f"rank {rank}:\n{Path(folder, f'stacks-{rank}').read_text()}")
        if shutil.which("gdb"):
            command = ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
            told.append(done.stdout)
    return "\n".join(told)


def main() -> None:
    """Runs the variants in turn and prints a table at the end."""
    parser = argparse.ArgumentParser(description="hangs of a gloo stress, with and without the tracer")
    parser.add_argument("--runs", type=int, default=300, help="runs of each variant")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so long")
    parser.add_argument(
        "--timeout", type=float, default=120, help="seconds after which a run is slow, and after twice as many a hang"
    )
    parser.add_argument("--rounds", type=int, default=2, help="rounds a run")
    parser.add_argument("--burst", type=int, default=400, help="asynchronous calls a round")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # functional collectives are renamed from torch to torch
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
            what, seconds, stacks = run_once(variant, module, options.rounds, options.burst, options.timeout)
            results[variant].append((what, seconds))
            if what != "ok":
                print(f"run {number} {variant}: {what} after {seconds:.1f} s\n{stacks}", flush=True)
        if number % 20 == 0 or number == options.runs - 1:
            print(f"after {number + 1} rounds of the variants\n{table(results)}", flush=True)
    if options.write:
        shape = f"{options.rounds} rounds of {options.burst} asynchronous calls a run"
        title = f"torch {torch.__version__}, two ranks, {shape}, timeout {options.timeout:g} s and as much again"
        text = f"# Hangs of gloo under stress\n\nMade by `hang_stress.py`: {title}.\n\n{table(results)}\n"
        RESULT.write_text(text, encoding="utf-8")


def table(results: dict[str, list[tuple[str, float]]]) -> str:
    """What came of the runs, a row a variant."""
    lines = ["| variant | runs | hangs | slow | failed | median s | slowest s |", "|---|---|---|---|---|---|---|"]
    for variant, found in results.items():
        times = sorted(seconds for what, seconds in found if what == "ok") or [0.0]
        counts = " | ".join(str(sum(what == kind for what, _ in found)) for kind in ("hang", "slow", "failed"))
        lines.append(f"| {variant} | {len(found)} | {counts} | {times[len(times) // 2]:.2f} | {times[-1]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
