"""What the tracer costs a collective and a training step, side by side with what torch has for the same purpose.

    python benchmarks/tracer_cost.py [--rounds 15] [--calls 2000] [--steps 50] [--write]

Every variant has processes of its own, two ranks on gloo, and they take turns: while one variant runs its round the others wait, so
that whatever else the machine does falls on all of them alike; who comes first changes from round to round. CPU time is counted
(user and system, all threads of a process), since other programs may run. The variants:

- nothing: no tracer, the Flight Recorder off. Nothing again: the same, so that one sees what is noise.
- python, native: the whole tracer, with that kernel. The native one must be built (`python -m ddp_audit.trace.build`).
- python bare, native bare: without what looks for silent faults (fingerprints of batches, hashes of parameters, draws, labels).
- flight recorder: torch's default, 2,000 entries with Python stacks. flight recorder, C++: with TORCH_FR_CPP_STACK.
- CommDebugMode: torch's own counter of collectives, entered for each round or step. In steps it runs without its module tracker,
  which raises an IndexError where a module is called twice in one forward (torch 2.13).
- DETAIL: TORCH_DISTRIBUTED_DEBUG=DETAIL. It crashes DDP on gloo (torch 2.13), so it has calls and no steps.

Calls are all-reduces of 4 floats issued from six calls down: on torch's fake process group, which does nothing, on gloo with one
rank, and on gloo with two, which wait for each other. Steps are those of the reference trainer, in the size that it has by default,
in one whose step takes 36 ms of CPU and in a larger one; its own code runs, and only `learning_rate` is replaced, which it calls
once a step, to end a round there. Of the rounds the 5th percentile says what the code costs, and the median has the machine's noise
in it. `--write` puts the result into tracer-cost.json and tracer-cost.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import tempfile
import time
import traceback
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP imports it, which takes seconds
import torch.distributed as dist
import torch.distributed.nn  # before the process group is made
import torch.testing._internal.distributed.fake_pg  # makes the backend "fake" known

from ddp_audit.trace.worker import native

VARIANTS = (
    "nothing",
    "nothing again",
    "python",
    "native",
    "python bare",
    "native bare",
    "flight recorder",
    "flight recorder, C++",
    "CommDebugMode",
    "DETAIL",
)
WITHOUT_STEPS = ("DETAIL",)  # it crashes in DDP's constructor
WITHOUT_FAKE = ("flight recorder", "flight recorder, C++", "DETAIL")  # they have no part in the fake group
ONLY_STEPS = ("python bare", "native bare")
SIZES = {
    "step, default size": ["--n-layer", "2", "--n-embd", "64", "--block-size", "32", "--batch-size", "4"],
    "step, 36 ms": ["--n-layer", "3", "--n-embd", "96", "--block-size", "64", "--batch-size", "4"],
    "step, larger": ["--n-layer", "4", "--n-head", "4", "--n-embd", "192", "--block-size", "64", "--batch-size", "8"],
}
CALLS = ("call, fake group", "call, gloo, 1 rank", "call, gloo, 2 ranks")
RESULT = Path(__file__).with_name("tracer-cost.json")
# Steps before the first round, half of them in the larger size: silent faults are looked for more often in the first ones.
WARM_UP = 40

Clock = tuple[float, float]


def clock() -> Clock:
    return time.process_time(), time.perf_counter()


def since(start: Clock, count: int) -> Clock:
    """Microseconds of CPU and of wall time, each of `count` times."""
    cpu, wall = clock()
    return (cpu - start[0]) / count * 1e6, (wall - start[1]) / count * 1e6


def install(variant: str, rank: int, folder: str, module: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Prepares this process, which has no process group yet, for a variant; returns what makes a context for what is measured."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000" if variant.startswith("flight") else "0"
    os.environ["TORCH_FR_CPP_STACK"] = str(variant.endswith("C++")).lower()
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL" if variant == "DETAIL" else "OFF"
    dist.set_debug_level_from_env()
    if variant == "CommDebugMode":
        from torch.distributed.tensor.debug import CommDebugMode

        return CommDebugMode
    kernel, _, rest = variant.partition(" ")
    if kernel in ("python", "native"):
        from ddp_audit.trace.worker import patches
        from ddp_audit.trace.worker.hook import Hook
        from ddp_audit.trace.worker.tracer import Tracer
        from ddp_audit.trace.worker.watch import Watch

        if rest == "bare":
            without_evidence(patches)
        tracer = Tracer(folder)
        tracer.open(rank, 2)
        globals()["tracer"] = (tracer, patches.Patches(tracer), Hook(tracer, module if kernel == "native" else None), Watch(tracer))
    return nullcontext


def without_modules(make: Callable[[], Any]) -> Any:
    """CommDebugMode without its module tracker; any other context as it is."""
    mode = make()
    tracker = getattr(mode, "advanced_module_tracker", None)
    if tracker is not None:
        tracker.__enter__ = tracker.__exit__ = lambda *args: None
        tracker.module_parents_dict[tracker.name] = set()
    return mode


def without_evidence(patches: Any) -> None:
    """Takes out what looks for silent faults."""
    patches.Patches._fingerprint = lambda *args: 0
    patches.Patches._labels = lambda *args, **kwargs: None
    patches.StateSampler.is_due = lambda *args: False
    for name in ("after_batch", "after_step", "at_forward"):
        setattr(patches.Draws, name, lambda *args: 0)


def serve_calls(pipe: Connection, variant: str, rank: int, folder: str, module: Any) -> None:
    """One rank's process: a round of so many calls of a kind whenever it is asked."""
    around = install(variant, rank, f"{folder}/calls-{variant}", module)
    store = dist.FileStore(f"{folder}/store-calls-{variant}", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    groups = {CALLS[2]: None, CALLS[1]: [dist.new_group([0]), dist.new_group([1])][rank]}
    if variant not in WITHOUT_FAKE:
        groups[CALLS[0]] = dist.new_group([0, 1], backend="fake")
    tensor = torch.ones(4)
    for what, count in iter(pipe.recv, None):
        with around():
            deep(5, tensor, max(1, count // 10), groups[what])
            start = clock()
            deep(5, tensor, count, groups[what])
            taken = since(start, count)
        pipe.send(taken)


def deep(levels: int, tensor: torch.Tensor, calls: int, group: Any) -> None:
    """So many all-reduces, issued from some calls down."""
    if levels:
        deep(levels - 1, tensor, calls, group)
        return
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)


class Gate:
    """Takes the place of the trainer's `learning_rate`: ends a round after so many steps, and waits for the next."""

    def __init__(
        self, pipe: Connection, original: Callable[..., float], around: Callable[[], AbstractContextManager[Any]], warm_up: int
    ) -> None:
        self._pipe = pipe
        self._around = around
        self._step: AbstractContextManager[Any] = nullcontext()
        self._original = original
        self._left = self._count = warm_up
        self._start = clock()

    def __call__(self, config: argparse.Namespace, step: int) -> float:
        self._step.__exit__(None, None, None)
        if not self._left:
            self._pipe.send(since(self._start, self._count))
            asked = self._pipe.recv()
            if asked is None:
                os._exit(0)
            self._left = self._count = asked[1]
            self._start = clock()
        self._left -= 1
        self._step = without_modules(self._around)
        self._step.__enter__()
        return self._original(config, step)


def serve_steps(pipe: Connection, variant: str, rank: int, folder: str, module: Any, size: str, port: int) -> None:
    """One rank's process: the trainer, which stands still between rounds."""
    from ddp_audit_trainer import train as trainer
    from ddp_audit_trainer.config import parse_config

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    around = install(variant, rank, f"{folder}/{size}-{variant}", module)
    trainer.learning_rate = Gate(pipe, trainer.learning_rate, around, WARM_UP // (2 if "larger" in size else 1))
    options = ["--device", "cpu", "--max-steps", "1000000", "--max-epochs", "1000000", "--eval-interval", "1000000"]
    trainer.train(parse_config([*options, "--data", f"{folder}/tokens", *SIZES[size]]))


def guarded(serve: Callable[..., None], *args: Any) -> None:
    """Runs a rank's process to its end; what goes wrong is told, and the other side finds the pipe closed."""
    try:
        serve(*args)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def start(serve: Callable[..., None], variant: str, *args: Any) -> list[Connection]:
    """The two ranks of a variant, forked from this process, which has imported all that they need."""
    pipes = []
    for rank in range(2):
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        context.Process(target=guarded, args=(serve, there, variant, rank, *args), daemon=True).start()
        there.close()
        pipes.append(here)
    return pipes


def round_of(pipes: list[Connection], asked: Any) -> Clock:
    """One round of both ranks: the means of their CPU and wall times."""
    for pipe in pipes:
        pipe.send(asked)
    answers = [pipe.recv() for pipe in pipes]
    return statistics.mean(cpu for cpu, _ in answers), statistics.mean(wall for _, wall in answers)


def measure(options: argparse.Namespace, module: Any, variants: list[str], folder: str) -> dict[str, dict[str, list[Clock]]]:
    """What is measured -> variant -> CPU and wall microseconds of each round."""
    found: dict[str, dict[str, list[Clock]]] = {}
    running = {v: start(serve_calls, v, folder, module) for v in variants if v not in ONLY_STEPS}
    for what in (what for what in CALLS if options.only in what):
        taking_part = [v for v in running if what != CALLS[0] or v not in WITHOUT_FAKE]
        found[what] = {v: [] for v in taking_part}
        for number in range(options.rounds + 1):
            for variant in turned(taking_part, number):
                taken = round_of(running[variant], (what, options.calls))
                if number:  # the first round warms up
                    found[what][variant].append(taken)
    stop(running)
    Path(folder, "tokens").write_bytes(array("H", random.Random(1).choices(range(256), k=1 << 20)).tobytes())
    for number, size in enumerate(size for size in SIZES if options.only in size):
        steps = max(5, options.steps // (10 if "larger" in size else 1))
        running = {
            v: start(serve_steps, v, folder, module, size, 29600 + 20 * number + at)
            for at, v in enumerate(variants)
            if v not in WITHOUT_STEPS
        }
        for pipes in running.values():
            for pipe in pipes:
                pipe.recv()  # warmed up
        found[size] = {v: [] for v in running}
        for number in range(options.rounds):
            for variant in turned(list(running), number):
                found[size][variant].append(round_of(running[variant], (size, steps)))
        stop(running)
    return found


def turned(variants: list[str], number: int) -> list[str]:
    """The variants in the order of a round."""
    at = number % len(variants)
    return variants[at:] + variants[:at]


def stop(running: dict[str, list[Connection]]) -> None:
    for pipes in running.values():
        for pipe in pipes:
            pipe.send(None)
    for process in multiprocessing.active_children():
        process.join(10)
        process.kill()


def percentile(values: list[float], percent: int) -> float:
    """A percentile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def summed_up(found: dict[str, dict[str, list[Clock]]]) -> dict[str, dict[str, dict[str, float]]]:
    """What is measured -> variant -> p5 and median of CPU and wall, and what is added to `nothing` in the same rounds."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for what, times in found.items():
        base = times["nothing"]
        result[what] = {}
        for variant, rounds in times.items():
            cpu, wall = [c for c, _ in rounds], [w for _, w in rounds]
            added = statistics.median(c - b for (c, _), (b, _) in zip(rounds, base, strict=True))
            row = {
                "cpu_p5": percentile(cpu, 5),
                "cpu_median": statistics.median(cpu),
                "wall_median": statistics.median(wall),
                "added_p5": percentile(cpu, 5) - percentile([c for c, _ in base], 5),
                "added_median": added,
                "added_percent": 100 * added / statistics.median(c for c, _ in base),
                "rounds": len(rounds),
            }
            result[what][variant] = {name: round(value, 2) for name, value in row.items()}
    return result


def page(options: argparse.Namespace, result: dict[str, dict[str, dict[str, float]]]) -> str:
    """The tables."""
    machine = f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores"
    text = [
        "# What the tracer costs",
        "",
        f"Made by `make tracer-cost` ({machine}, rounds of {options.calls} calls, {options.steps} steps, or",
        "a tenth of those, at least 5, in the larger size; the variants take turns). CPU time of one rank's process.",
        "`added` is the median over the rounds of the difference to the round of `nothing` beside it. The rows are explained",
        "in `benchmarks/tracer_cost.py`.",
    ]
    for what, rows in result.items():
        is_step = what.startswith("step")
        unit, scale = ("ms", 1000) if is_step else ("us", 1)
        text += [
            "",
            f"## A {what} ({rows['nothing']['rounds']} rounds)",
            "",
            f"| | CPU {unit}, p5 | median | added, p5 | added | added % |",
            "|---|---|---|---|---|---|",
        ]
        for variant, row in rows.items():
            cells = [f"{row[name] / scale:.2f}" for name in ("cpu_p5", "cpu_median", "added_p5", "added_median")]
            text.append(f"| {variant} | {' | '.join(cells)} | {row['added_percent']:.1f} |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="cost of the tracer, a collective and a step")
    parser.add_argument("--calls", type=int, default=2000, help="calls a round")
    parser.add_argument("--steps", type=int, default=50, help="training steps a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--variants", default=";".join(VARIANTS), help="separated by semicolons; `nothing` must be among them")
    parser.add_argument("--only", default="", help="measure only what has this in its name (`step`, `gloo`); the rest is as before")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} and {RESULT.with_suffix('.md').name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    variants = options.variants.split(";")
    path = native.build_path()
    module = native.load(path) if native.is_built(path) else None
    if module is None:
        variants = [variant for variant in variants if not variant.startswith("native")]
    with tempfile.TemporaryDirectory() as folder:
        result = summed_up(measure(options, module, variants, folder))
    if options.only and RESULT.exists():
        result = {**json.loads(RESULT.read_text(encoding="utf-8"))["microseconds"], **result}
        result = {what: result[what] for what in (*CALLS, *SIZES) if what in result}
    text = page(options, result)
    print(text, end="")
    if options.write:
        about = {"torch": str(torch.__version__), "python": platform.python_version(), "cores": os.cpu_count()}
        RESULT.write_text(json.dumps({**about, "microseconds": result}, indent=1) + "\n", encoding="utf-8")
        RESULT.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
