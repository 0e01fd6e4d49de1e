"""Where the tracer's time in a training step goes: CPU of its parts, in the reference trainer on one rank.

    python benchmarks/tracer_share.py [--steps 300] [--blocks 0] [--kernel auto] [-- OPTIONS OF THE TRAINER]

A difference of whole steps (tracer_cost.py) cannot show less than the machine's noise; this counts the tracer's own functions, and
with them the little that counting costs, and the thread that watches. The 10th percentile is that of a machine that does nothing
else; the mean has the looks in it that come every 50th step.

What that misses (the collectives, the functions that call the parts, what the tracer's use of the caches costs the training) is in
`--blocks N`: N blocks of four steps each without the tracer, with its kernel for collectives alone, and with all of it, in turn in
one process that counts nothing else. CPU of the process, all threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the process group is made
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optim
from torch.utils.data import dataloader
from torch.utils.data.distributed import DistributedSampler

from ddp_audit.trace.worker import native, patches
from ddp_audit.trace.worker.api_hooks import ApiHooks
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.watch import Watch
from ddp_audit_trainer import train as trainer
from ddp_audit_trainer.config import parse_config

BACKWARD = "backward: event, gradients, labels"
PARTS = {  # what is told of a method
    (patches.Patches, "_forward_event"): "forward: event, fingerprint of its input, draws",
    (patches.Patches, "_backward"): BACKWARD,
    (ApiHooks, "_clipped"): "clipping of gradients: event",
    (patches.Patches, "_before_step"): "before an optimizer's step: event",
    (patches.Patches, "_after_step"): "after it: hash of the parameters now and then",
    (patches.Patches, "_batch_event"): "batch of a loader",
    (patches.Patches, "_sampler_event"): "sampler",
}
ORIGINAL = "the backward pass itself"
# What the patches of a training step replace.
PATCHED = (
    (DistributedDataParallel, "_pre_forward"),
    (torch.autograd, "backward"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (DistributedSampler, "set_epoch"),
    (DistributedSampler, "__iter__"),
    (torch.nn.Module, "train"),
    (torch.nn.utils, "clip_grad_norm_"),
    (dist.Work, "wait"),
)
HOOKS = (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)
NOTHING, COLLECTIVES, ALL = "no tracer", "collectives alone", "all"
BLOCK = 4  # steps
WARM_UP = 40  # steps that are not counted: silent faults are looked for more often in the first ones
Times = dict[str, list[int]]


def timed(owner: Any, name: str, times: Times, label: str) -> None:
    """Replaces a function by one that notes how many nanoseconds of its thread's CPU it took."""
    function: Callable[..., Any] = getattr(owner, name)

    def around(*args: Any, **kwargs: Any) -> Any:
        start = time.thread_time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            times[label].append(time.thread_time_ns() - start)

    setattr(owner, name, around)


def report(times: Times, steps: int, step_ns: float, watch_ns: float) -> None:
    """Prints the table; the backward pass itself is taken out of what is around it."""
    inside, outside = times.pop(ORIGINAL), times[BACKWARD]
    times[BACKWARD] = [whole - part for whole, part in zip(outside, inside, strict=True)]
    print(f"torch {torch.__version__}, {steps} steps of {step_ns / 1e6:.1f} ms of CPU; microseconds a step")
    print(f"{'part':<52}{'a step':>8}{'p10':>9}{'median':>9}{'mean':>9}")
    totals = [watch_ns / 1e3] * 3
    for label, taken in times.items():
        ordered, often = sorted(taken), len(taken) / steps
        row = [often * ordered[len(ordered) * percent // 100] / 1e3 for percent in (10, 50)]
        row.append(sum(taken) / steps / 1e3)
        totals = [total + part for total, part in zip(totals, row, strict=True)]
        print(f"{label:<52}{often:>8.2f}{row[0]:>9.1f}{row[1]:>9.1f}{row[2]:>9.1f}")
    print(f"{'the thread that watches':<60}" + f"{watch_ns / 1e3:>9.1f}" * 3)
    shares = ", ".join(f"{100 * total * 1e3 / step_ns:.2f} %" for total in totals)
    print(f"{'all':<60}{totals[0]:>9.1f}{totals[1]:>9.1f}{totals[2]:>9.1f}\nof the step: {shares}")


class Parts:
    """Counts the parts in so many steps."""

    def __init__(self, steps: int, times: Times) -> None:
        self._steps, self._times = steps, times
        self._start, self._watch_start = 0, 0

    def before(self, step: int, watch: threading.Thread) -> bool:
        """Called before each step; whether this was the last one."""
        watch_ns = time.clock_gettime_ns(time.pthread_getcpuclockid(watch.ident or 0))
        if step == WARM_UP:
            self._times.clear()
            self._start, self._watch_start = time.process_time_ns(), watch_ns
        elif step == WARM_UP + self._steps:
            step_ns = (time.process_time_ns() - self._start) / self._steps
            report(self._times, self._steps, step_ns, (watch_ns - self._watch_start) / self._steps)
            return True
        return False


class Blocks:
    """Runs blocks of steps with and without the tracer. `originals` are the functions that PATCHED names, before they were."""

    def __init__(self, blocks: int, tracer: Tracer, originals: list[Any]) -> None:
        self._blocks, self._tracer, self._originals = blocks, tracer, originals
        self._patched = [getattr(owner, name) for owner, name in PATCHED]
        self._hooks = [dict(hooks) for hooks in HOOKS]
        self._taken: dict[str, list[float]] = {NOTHING: [], COLLECTIVES: [], ALL: []}
        self._mode, self._start = ALL, 0

    def before(self, step: int, _: threading.Thread) -> bool:
        """Called before each step; whether this was the last one."""
        if step < WARM_UP or (step - WARM_UP) % BLOCK:
            return False
        if step > WARM_UP:
            self._taken[self._mode].append((time.process_time_ns() - self._start) / BLOCK / 1e3)
        modes = list(self._taken)
        self._mode = modes[(modes.index(self._mode) + 1) % len(modes)]
        self._switch(self._mode)
        if all(len(taken) == self._blocks for taken in self._taken.values()):
            self._report()
            return True
        self._start = time.process_time_ns()
        return False

    def _switch(self, mode: str) -> None:
        self._tracer.on = mode != NOTHING
        for (owner, name), function in zip(PATCHED, self._patched if mode == ALL else self._originals, strict=True):
            setattr(owner, name, function)
        for hooks, ours in zip(HOOKS, self._hooks, strict=True):
            hooks.clear()
            hooks.update(ours if mode == ALL else {})

    def _report(self) -> None:
        print(f"torch {torch.__version__}, {self._blocks} blocks of {BLOCK} steps each; microseconds of CPU a step")
        print(
            f"{'':<20}"
            + "".join(f"{name:>10}" for name in ("p10", "p25", "median", "mean"))
            + f"{'added at p10, p25, median, mean':>42}"
        )
        base = self._row(NOTHING)
        for mode in self._taken:
            row = self._row(mode)
            added = ", ".join(f"{100 * (mine - without) / without:+.2f} %" for mine, without in zip(row, base, strict=True))
            print(f"{mode:<20}" + "".join(f"{value:>10.0f}" for value in row) + f"{added:>42}")

    def _row(self, mode: str) -> list[float]:
        ordered = sorted(self._taken[mode])
        return [*(ordered[len(ordered) * percent // 100] for percent in (10, 25, 50)), sum(ordered) / len(ordered)]


def main() -> None:
    """Trains, and leaves when enough steps are counted."""
    parser = argparse.ArgumentParser(description="the tracer's share of a training step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--kernel", choices=native.MODES, default=native.AUTO, help="whether the native kernel is used")
    parser.add_argument("options", nargs="*", help="of the trainer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    originals = [getattr(owner, name) for owner, name in PATCHED]
    times: Times = defaultdict(list)
    if not options.blocks:
        timed(torch.autograd, "backward", times, ORIGINAL)
        for (owner, name), label in PARTS.items():
            timed(owner, name, times, label)
    tracer = Tracer(tempfile.mkdtemp())
    tracer.open(0, 1)
    keep = (patches.Patches(tracer), Hook(tracer, native.load_for_rank(options.kernel)))
    watch = Watch(tracer)
    counter = Blocks(options.blocks, tracer, originals) if options.blocks else Parts(options.steps, times)
    original = trainer.learning_rate

    def learning_rate(config: argparse.Namespace, step: int) -> float:
        if counter.before(step, watch._thread):
            sys.stdout.flush()
            watch.stop()
            os._exit(int(tracer.failed or not keep))
        return float(original(config, step))

    trainer.learning_rate = learning_rate
    trainer.print = lambda *args, **kwargs: None
    for_ever = ["--max-steps", "1000000", "--max-epochs", "1000000", "--eval-interval", "1000000"]
    fixed = ["--device", "cpu", "--backend", "gloo", "--accumulation", "2"]
    trainer.train(parse_config([*fixed, *for_ever, *options.options]))


if __name__ == "__main__":
    main()
