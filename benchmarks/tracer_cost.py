"""What the tracer costs a collective: side by side in one process, with and without it.

    python benchmarks/tracer_cost.py [--calls 20000] [--rounds 15]

Runs all_reduce of 4 floats (a) on torch's fake process group, which does nothing, so that the difference is the tracer's alone,
and (b) on gloo with one rank. Rounds of the variants alternate. The table gives CPU microseconds a call: the 5th percentile
over rounds, which says what the code costs, and the median, which has the machine's noise in it. The user's stack is six calls
deep. The native kernel stands in the table where it is built (`python -m ddp_audit.trace.build`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_audit.trace.worker import native
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Tracer


def deep(levels: int, tensor: torch.Tensor, calls: int) -> float:
    """CPU seconds of so many all-reduces, issued from some calls down. CPU and not wall time: other programs may run."""
    if levels:
        return deep(levels - 1, tensor, calls)
    begin = time.process_time()
    for _ in range(calls):
        dist.all_reduce(tensor)
    return time.process_time() - begin


def measure(variants: dict[str, Callable[[], Callable[[], None]]], calls: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, per round. A variant is installed before its round and removed after it."""
    tensor = torch.ones(4)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, install in variants.items():
            remove = install()
            deep(5, tensor, max(1, calls // 10))
            times[name].append(deep(5, tensor, calls) / calls * 1e6)
            remove()
    return times


def traced(folder: str, with_stack: bool, module: Any = None) -> Callable[[], Callable[[], None]]:
    """A variant with the tracer; each installation writes a file of its own."""
    count = 0

    def install() -> Callable[[], None]:
        nonlocal count
        count += 1
        tracer = Tracer(f"{folder}/{with_stack}-{module is not None}-{count}")
        tracer.with_stack = with_stack
        tracer.open(0, dist.get_world_size())
        hook = Hook(tracer, module)

        def remove() -> None:
            hook.remove()
            if tracer.failed:
                raise SystemExit("the tracer failed")

        return remove

    return install


def main() -> None:
    """Prints one table a backend."""
    parser = argparse.ArgumentParser(description="cost of the tracer, microseconds a collective")
    parser.add_argument("--calls", type=int, default=2000, help="calls a round")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = native.build_path()
    module = native.load(path) if native.is_built(path) else None
    what = f"{options.rounds} rounds of {options.calls} all_reduce of 4 float32"
    print(f"torch {torch.__version__}, {what}, CPU microseconds a call")
    print(f"{'backend':<8}{'variant':<28}{'p5':>9}{'median':>9}{'added p5':>10}{'ratio p5':>10}")
    for backend in ("fake", "gloo"):
        if backend == "fake":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        else:
            dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        with tempfile.TemporaryDirectory() as folder:
            variants = {
                "none": lambda: lambda: None,
                "python": traced(folder, True),
                "python without stack": traced(folder, False),
            }
            if module is not None:
                variants["native"] = traced(folder, True, module)
                variants["native without stack"] = traced(folder, False, module)
            times = measure(variants, options.calls, options.rounds)
        base = percentile(times["none"], 5)
        for name, values in times.items():
            low = percentile(values, 5)
            print(f"{backend:<8}{name:<28}{low:>9.2f}{statistics.median(values):>9.2f}{low - base:>10.2f}{low / base:>10.2f}")
        dist.destroy_process_group()


def percentile(values: list[float], percent: int) -> float:
    """A percentile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


if __name__ == "__main__":
    main()
