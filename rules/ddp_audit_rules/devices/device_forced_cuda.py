"""DDP605: under a launcher the device option is overwritten by a CUDA device, whatever it and the backend option say."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import ForcedDevice, Init, Node
from ddp_audit.tree.questions import arms_around, first_of_each_place, names_in, says
from ddp_audit.tree.values import Default, constant, defaults_in

_WHY = (
    "Every rank fails alike, at the first use of the device, on a machine that has fewer GPUs than processes or none. With GPUs "
    "nothing is wrong."
)


class DeviceForcedCuda(Rule):
    code = "DDP605"
    name = "device-forced-cuda"
    level = "info"
    summary = (
        "An option that names the device (a configuration value, an argument) is overwritten by `cuda:<local rank>` where the "
        "script finds itself distributed, with no look at that option, at the backend, or at whether there is a GPU. So is a plain "
        "`device = 'cpu'` where the backend is an option. The option's own line is named too."
    )
    rationale = (
        "The option has no effect under torchrun. Choosing the CPU, or gloo as backend, does not make a CPU run: the "
        "script stops at the first use of the device on a machine without GPUs, on every rank."
    )
    exceptions = (
        "An assignment under a condition that speaks of the device, the backend or the GPUs; a device computed from the "
        "option; device names that are not options, where the backend is not an option either."
    )
    trace_evidence = "Nothing that a trace holds: the finding says what another choice of the option would do."
    source = "Plain data flow: the last assignment before the first use wins."
    fix_hint = "take the CUDA device of the local rank only where the device option says cuda, and derive the backend from it"
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
        backends = [(n, default) for n in program.of(Init) if "backend" in n.args for default in defaults_in(n.args["backend"])]
        said: set[Span] = set()
        for node in first_of_each_place(program.of(ForcedDevice)):
            arms = arms_around(program, node.span.path, node.span.line)
            tests = [arm.statement.test for arm in arms if isinstance(arm.statement, (ast.If, ast.While))]
            words = {name.lower() for test in tests for name in names_in(test)}
            option = next(defaults_in(node.old), None)
            if any(says(word, "chooses-device") for word in words) or not (option or backends):
                continue
            yield self._finding(node, option, backends)
            for one, what in ((option, "device"), (backends[0][1] if backends else None, "backend")):
                if one is not None and one.span not in said:
                    said.add(one.span)
                    yield self._option(node, one, what)

    def _finding(self, node: ForcedDevice, option: Default | None, backends: list[tuple[Init, Default]]) -> Finding:
        message = f"Distributed runs always use CUDA: `{node.text}` becomes the CUDA device of the process"
        related = []
        if option is not None:
            message += f" whatever `{option.name}` says"
            old = constant(node.old)
            related.append(Related(option.span.path, option.span.line, "option", f"{option.name} = {old!r} has no effect then"))
        if backends:
            init, default = backends[0]
            message += f", although `{default.name}` could be gloo"
            related.append(Related(default.span.path, default.span.line, "option", f"the backend, {default.name}"))
            related.append(Related(init.span.path, init.span.line, "init", "the process group takes the backend of the option"))
        return self.finding(node.span, message + ".", _WHY, related=related, cause=node.place)

    def _option(self, node: Node, option: Default, what: str) -> Finding:
        """What the option itself promises and does not do."""
        if what == "device":
            message = f"The option `{option.name}` has no effect in a distributed run: line {node.span.line}"
            message += " replaces it by the CUDA device of the process."
        else:
            message = f"`{option.name}` = gloo does not make a run on CPUs: line {node.span.line} takes the CUDA device whatever"
            message += " the backend is."
        related = [Related(node.span.path, node.span.line, "device", f"`{node.text}` becomes a CUDA device here")]
        return self.finding(option.span, message, _WHY, related=related, cause=node.place)
