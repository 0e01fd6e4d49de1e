"""DDP602: something goes to the current CUDA device before each process has one of its own."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Collective, CurrentDevice, DeviceChoice, Init, Node, Program, Spawn
from ddp_audit.tree.questions import calls_of, is_given, is_kind, speaks_of
from ddp_audit.tree.values import Const
from ddp_audit_rules.devices._cuda import may_use_nccl, places_for_user
from ddp_audit_rules.facts.evidence import by_devices
from ddp_audit_rules.facts.writers import SEVERAL, is_distributed, who

_MAYBE = "barrier"  # NCCL guesses a device by the rank where none is set and none was used; on usual machines it is the right one


class DeviceNotSet(Rule):
    code = "DDP602"
    name = "device-not-set"
    level = "warning"
    summary = (
        "A `.cuda()`, a device `cuda` without a number, or an object collective on NCCL, where no process has set a device of its "
        "own before (`torch.cuda.set_device`, or `device_id` of init_process_group)."
    )
    rationale = (
        "The current device of a new process is 0. All ranks of a node put their model, or the tensor behind the object "
        "collective, on the first device: its memory runs out, the others idle, and NCCL stops with `Duplicate GPU detected` or "
        "hangs."
    )
    exceptions = (
        "init_process_group with a device_id; set_device before the first use; one visible device for each process; jobs on gloo; "
        "frameworks that place processes; code that names a device by the local rank everywhere and has no object collective. A "
        "barrier alone is only possible: NCCL guesses its device by the rank."
    )
    trace_evidence = (
        "Models of several ranks on one device (the silent fault same-device). Equal indices show nothing, where each "
        "process may see one GPU alone."
    )
    source = (
        "torch 2.13, distributed/distributed_c10d.py: object collectives on NCCL send from the current device; the barrier takes "
        "that of the group, the one used before, or the rank modulo the number of devices. Without an accelerator the fault cannot "
        "show itself; the example falls back to the CPU."
    )
    outcome = "clean"
    fix_hint = (
        "call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before anything else that uses CUDA, or give "
        "init_process_group a device_id"
    )
    bad = '''"""Trains a line on the current device of each process, which nobody has set, or on the CPU without one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
model = torch.nn.Linear(4, 1)
if torch.cuda.is_available():
    model = model.cuda()
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4, device=next(model.parameters()).device)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
'''
    good = (
        bad.replace("which nobody has set", "which is that of its local rank")
        .replace("import torch\nimport torch.d", "import os\n\nimport torch\nimport torch.d")
        .replace("    model = model.cuda()", '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n    model = model.cuda()')
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_distributed(program) or not may_use_nccl(program) or places_for_user(program):
            return
        if any("device_id" in node.args or "**" in node.args for node in program.of(Init)):
            return
        uses = [node for node in program.nodes if _uses_current(program, node)]
        use = next((node for node in uses if _is_sure(node)), uses[0] if uses else None)
        if use is None:
            return
        every = [n for n in program.of(DeviceChoice) if n.via == "set_device"]
        sets = [n for n in every if not isinstance(n.index, Const)]
        if any(n.number < use.number for n in sets):
            return
        if not every and (speaks_of(program, "set_device") or calls_of(program, "cuda.device") or is_given(program, "device_id")):
            return
        late = next((n for n in sets if n.number > use.number and n.is_called), None)
        if sets and late is None:
            return
        yield self._finding(program, use, late)

    def _finding(self, program: Program, use: Node, late: DeviceChoice | None) -> Finding:
        what = f"runs this {use.op} on" if isinstance(use, Collective) else "puts this on"
        never = "which no process has set" if late is None else f"which is set later (line {late.span.line})"
        message = f"Every rank {what} its current CUDA device, {never}: all ranks of a node use device 0 here."
        explanation = (
            "NCCL wants each rank on a device of its own: it ends with `Duplicate GPU detected` or hangs. Where it does not, all "
            "processes of the node share the memory of the first device. It does no harm where each process sees one device, or on "
            "gloo."
        )
        begun = list(program.of(Init))[:1]  # none where only the wrapper tells that there is a group
        made = [Related(init.span.path, init.span.line, "init", "makes the process group without a device") for init in begun]
        related = [
            *made,
            *guard_relations(use),
        ]
        if late is not None:
            related.append(Related(late.span.path, late.span.line, "device", late.text))
        confidence = "likely" if use.is_called and _is_sure(use) else "possible"
        fix = None
        if not program.has(Spawn) and not any(
            "rank" in init.args for init in begun
        ):  # torchrun, or what sets LOCAL_RANK as it does
            fix = Fix("unsafe", self.fix_hint, "where-cuda" if calls_of(program, "cuda.is_available") else "")
        return self.finding(use.span, message, explanation, related=related, confidence=confidence, guards=use.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by models of several ranks on one device; not-observed where each rank of a host chose another index.

        Equal indices show nothing: each process may see one GPU alone, which is then its device 0.
        """
        return by_devices(run)


def _is_sure(use: Node) -> bool:
    """Whether a use is one for certain."""
    return not (isinstance(use, Collective) and use.op == _MAYBE)


def _uses_current(program: Program, node: Node) -> bool:
    """Whether a node uses the current CUDA device on several ranks."""
    if isinstance(node, CurrentDevice):
        return who(program, node) == SEVERAL
    if not isinstance(node, Collective) or not is_kind(node.op, "on-current-device") or node.hidden:
        return False
    if {"device_ids", "device", "group"} & set(node.args):
        return False
    return _on_devices(program)


def _on_devices(program: Program) -> bool:
    """Whether tensors are put on CUDA devices at all, and the backend is surely not gloo."""
    return program.has(DeviceChoice, CurrentDevice)
