"""Where the tracer's time in a training step goes: CPU of the thread in each of its parts, in the reference trainer on one rank.

    python benchmarks/tracer_share.py [--steps 300] [-- OPTIONS OF THE TRAINER]

A difference of whole steps (tracer_cost.py) cannot show less than the machine's noise; this counts the tracer's own functions, and
with them the little that counting costs. Collectives are not in it: tracer_cost.py has what they cost. The 10th percentile is that
of a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.nn  # before the process group is made

from ddp_audit.trace.worker import native, patches
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.watch import Watch
from ddp_audit_trainer import train as trainer
from ddp_audit_trainer.config import parse_config

PARTS = {  # what is told of a method of Patches
    "_forward_event": "forward: event, fingerprint of its input, draws",
    "_batch_event": "batch of a loader",
    "_before_step": "before an optimizer's step: event",
    "_after_step": "after it: hash of the parameters now and then",
    "_sampler_event": "sampler",
    "_backward": "backward: event, gradients, labels",
}
ORIGINAL = "the backward pass itself"
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


def report(times: Times, steps: int, step_ns: float) -> None:
    """Prints the table; the backward pass itself is taken out of what is around it."""
    inside, outside = times.pop(ORIGINAL), times[PARTS["_backward"]]
    times[PARTS["_backward"]] = [whole - part for whole, part in zip(outside, inside, strict=True)]
    print(f"torch {torch.__version__}, {steps} steps of {step_ns / 1e6:.1f} ms of CPU; microseconds a step")
    print(f"{'part':<52}{'a step':>8}{'p10':>9}{'median':>9}")
    totals = [0.0, 0.0]
    for label, taken in times.items():
        ordered, often = sorted(taken), len(taken) / steps
        row = [often * ordered[len(ordered) * percent // 100] / 1e3 for percent in (10, 50)]
        totals = [total + part for total, part in zip(totals, row, strict=True)]
        print(f"{label:<52}{often:>8.2f}{row[0]:>9.1f}{row[1]:>9.1f}")
    shares = " and ".join(f"{100 * total * 1e3 / step_ns:.2f} %" for total in totals)
    print(f"{'all':<60}{totals[0]:>9.1f}{totals[1]:>9.1f}\nof the step: {shares}")


def main() -> None:
    """Trains, and leaves when enough steps are counted."""
    parser = argparse.ArgumentParser(description="the tracer's share of a training step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("options", nargs="*", help="of the trainer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    times: Times = defaultdict(list)
    timed(torch.autograd, "backward", times, ORIGINAL)
    for name, label in PARTS.items():
        timed(patches.Patches, name, times, label)
    tracer = Tracer(tempfile.mkdtemp())
    tracer.open(0, 1)
    module = native.load_for_rank(native.AUTO)
    keep = (patches.Patches(tracer), Hook(tracer, module), Watch(tracer))
    begin = [0]
    original = trainer.learning_rate

    def learning_rate(config: argparse.Namespace, step: int) -> float:
        if step == WARM_UP:
            times.clear()
            begin[0] = time.process_time_ns()
        elif step == WARM_UP + options.steps:
            report(times, options.steps, (time.process_time_ns() - begin[0]) / options.steps)
            sys.stdout.flush()
            keep[2].stop()
            os._exit(int(tracer.failed))
        return float(original(config, step))

    trainer.learning_rate = learning_rate
    trainer.print = lambda *args, **kwargs: None
    for_ever = ["--max-steps", "1000000", "--max-epochs", "1000000", "--eval-interval", "1000000"]
    fixed = ["--device", "cpu", "--backend", "gloo", "--accumulation", "2"]
    trainer.train(parse_config([*fixed, *for_ever, *options.options]))


if __name__ == "__main__":
    main()
