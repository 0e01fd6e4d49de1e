"""What the tracer costs, side by side: one process a variant (no tracer, each kernel), whose rounds alternate.

    python benchmarks/gpu/cost.py --device cuda --backend nccl [--rounds 9] [--calls 2000] [--steps 30]

Prints one JSON object. Each process is one rank with a group of its own, so that the whole tracer (kernel, patches, watch) is in it
or not. A round is `calls` all-reduces of 4 floats, or `steps` training steps of a small network under DDP (forward, backward,
AdamW). While one process runs its round the others wait. Microseconds of CPU a call, and of CPU and wall time a step: the least of
the rounds says what the code costs, the median has the machine's noise in it. The device is waited for inside the time of the steps
and outside of that of the calls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VARIANTS = ("none", "python", "native")


def serve(device_name: str, backend: str, variant: str, folder: str) -> None:
    """One process: runs the rounds that its standard input asks for, answers each with a line. Ends with what it recorded."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    device = torch.device(device_name, 0) if device_name == "cuda" else torch.device(device_name)
    tracer, keep = install(variant, folder)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(4, device=device)
    network = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(256, 256), nn.GELU())]).to(device)
    model = DistributedDataParallel(network, device_ids=[0] if device.type == "cuda" else None, bucket_cap_mb=0.5)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(32, 256, device=device)

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def calls(count: int) -> None:
        for _ in range(count):
            dist.all_reduce(tensor)

    def steps(count: int) -> None:
        for _ in range(count):
            model(inputs).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        settle()

    for line in sys.stdin:
        what, count = line.split()
        settle()
        wall, cpu = time.perf_counter(), time.process_time()
        (calls if what == "calls" else steps)(int(count))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        settle()
        print(json.dumps([cpu / int(count) * 1e6, wall / int(count) * 1e6]), flush=True)
    print(json.dumps({"failed": tracer is not None and tracer.failed}), flush=True)
    dist.destroy_process_group()
    if keep:
        keep[-1].stop()


def install(variant: str, folder: str) -> tuple[Any, tuple[Any, ...]]:
    """The whole tracer with the kernel that the variant names, or none."""
    if variant == "none":
        return None, ()
    from ddp_audit.trace.worker import native
    from ddp_audit.trace.worker.hook import Hook
    from ddp_audit.trace.worker.patches import Patches
    from ddp_audit.trace.worker.tracer import Tracer
    from ddp_audit.trace.worker.watch import Watch

    tracer = Tracer(folder)
    tracer.open(0, 1)
    module = native.load(native.build_path()) if variant == "native" else None
    return tracer, (Patches(tracer), Hook(tracer, module), Watch(tracer))


def is_built() -> bool:
    """Whether the native kernel is built here."""
    from ddp_audit.trace.worker import native

    return native.is_built(native.build_path())


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Starts the processes, lets them run their rounds in turn, and sums up."""
    variants = [variant for variant in VARIANTS if variant != "native" or is_built()]
    own = [sys.executable, str(Path(__file__).resolve()), "--device", options.device, "--backend", options.backend]
    started = {
        variant: subprocess.Popen(
            [*own, "--serve", variant, "--folder", f"{folder}/{variant}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for variant in variants
    }
    times: dict[str, dict[str, list[list[float]]]] = {what: {variant: [] for variant in variants} for what in ("calls", "steps")}
    for number in range(options.rounds + 1):  # the first round warms up
        for what, count in (("calls", options.calls), ("steps", options.steps)):
            for variant, process in started.items():
                answer = ask(process, f"{what} {count}\n")
                if number:
                    times[what][variant].append(answer)
    ended = {}
    for variant, process in started.items():
        out, _ = process.communicate()
        told = json.loads(out.splitlines()[-1]) if out.strip() else {"failed": True}
        ended[variant] = {**told, "collectives": 0 if variant == "none" else recorded(f"{folder}/{variant}")}
    return {
        "device": options.device,
        "backend": options.backend,
        "rounds": options.rounds,
        "calls": options.calls,
        "steps": options.steps,
        "cpus": os.cpu_count(),
        "ended": ended,
        "call_cpu_us": {variant: summary([cpu for cpu, _ in rounds]) for variant, rounds in times["calls"].items()},
        "step_cpu_us": {variant: summary([cpu for cpu, _ in rounds]) for variant, rounds in times["steps"].items()},
        "step_wall_us": {variant: summary([wall for _, wall in rounds]) for variant, rounds in times["steps"].items()},
    }


def recorded(folder: str) -> int:
    """How many collectives stand in the trace of a process."""
    from ddp_audit.events import COLLECTIVE
    from ddp_audit.trace.store import load_run

    return sum(1 for _ in load_run(folder).events_of(COLLECTIVE))


def ask(process: subprocess.Popen[str], line: str) -> list[float]:
    """One round of one process."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"a process ended in its round: {line.strip()}")
    return [float(number) for number in json.loads(answer)]


def summary(values: list[float]) -> dict[str, float]:
    """The least of the rounds, and their median."""
    ordered = sorted(values)
    return {"least": round(ordered[0], 2), "median": round(statistics.median(ordered), 2)}


def main() -> None:
    """Measures, or serves as one of the processes."""
    parser = argparse.ArgumentParser(description="cost of the tracer, one process a variant")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--backend", choices=("gloo", "nccl"), required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=2000, help="all-reduces a round")
    parser.add_argument("--steps", type=int, default=30, help="training steps a round")
    parser.add_argument("--serve", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.device, options.backend, options.serve, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options, folder)))


if __name__ == "__main__":
    main()
