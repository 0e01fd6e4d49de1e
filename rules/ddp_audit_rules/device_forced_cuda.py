"""DDP605: under a launcher the device option is overwritten by a CUDA device, whatever it and the backend option say."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddp_audit.findings import Finding, Related
from ddp_audit.program.model import Node, Program, first_of_each_place
from ddp_audit.program.source import conditions_around
from ddp_audit.program.values import Const, defaults_in
from ddp_audit.rule import Context, Rule

_DECIDES = re.compile(r"cuda|device|backend|gpu|nccl|gloo|cpu", re.IGNORECASE)


class DeviceForcedCuda(Rule):
    code = "DDP605"
    name = "device-forced-cuda"
    level = "info"
    what = (
        "An option that names the device (a configuration value, an argument) is overwritten by `cuda:<local rank>` where the "
        "script finds itself distributed, with no look at that option, at the backend, or at whether there is a GPU."
    )
    why = (
        "The option has no effect under torchrun. Choosing the CPU, or gloo as backend, does not make a CPU run: the "
        "script stops at the first use of the device on a machine without GPUs, on every rank."
    )
    quiet = (
        "An assignment under a condition that speaks of the device, the backend or the GPUs; a device computed from the "
        "option; device names that are no option."
    )
    confirmed = "Nothing that a trace holds: the finding says what another choice of the option would do."
    source = "Plain data flow: the last assignment before the first use wins."
    remedy = "take the CUDA device of the local rank only where the device option says cuda, and derive the backend from it"
    outcome = "error all: CUDA"
    bad = '''"""Trains a line on the device that --device names, as one process or as several."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
    args.device = f"cuda:{os.environ['LOCAL_RANK']}"
try:
    model = torch.nn.Linear(4, 1).to(args.device)
    if distributed:
        model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(8, 4, device=args.device)
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
finally:
    if distributed:
        dist.destroy_process_group()
'''
    good = bad.replace(
        "    args.device = f\"cuda:{os.environ['LOCAL_RANK']}\"",
        '    if args.device.startswith("cuda"):\n        args.device = f"cuda:{os.environ[\'LOCAL_RANK\']}"',
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of("forced-device")):
            conditions = conditions_around(program, node.span.path, node.span.line)
            if not any(_DECIDES.search(text) for text in conditions):
                yield self._finding(program, node)

    def _finding(self, program: Program, node: Node) -> Finding:
        old = node.args["old"]
        assert isinstance(old, Const)
        option = next(defaults_in(old))
        backends = [(n, default) for n in program.of("init") if "backend" in n.args for default in defaults_in(n.args["backend"])]
        message = (
            f"In a distributed run `{node.text}` becomes the CUDA device of the process whatever the option "
            f"`{option.name}` says, so it cannot be run on CPUs"
        )
        related = [Related(option.span.path, option.span.line, "option", f"{option.name} = {old.value!r} has no effect then")]
        if backends:
            init, default = backends[0]
            message += f", although the backend is an option (`{default.name}`) that could say gloo"
            related.append(Related(default.span.path, default.span.line, "option", f"the backend, {default.name}"))
            related.append(Related(init.span.path, init.span.line, "init", "the process group takes the backend of the option"))
        explanation = (
            "Every rank fails alike, at the first use of the device, on a machine that has fewer GPUs than processes or "
            "none. With GPUs nothing is wrong."
        )
        return self.finding(node.span, message + ".", explanation, related=related)
