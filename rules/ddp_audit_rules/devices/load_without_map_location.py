"""DDP603: every rank loads a checkpoint onto the device that it was saved from."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import PLACE, READ
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Load, LoadState, Program, Save
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import RANK, Const
from ddp_audit_rules.devices._cuda import is_on_cuda, may_use_nccl
from ddp_audit_rules.facts.evidence import looks_at
from ddp_audit_rules.facts.loaded_states import has_state, is_from_cpu, loaded_states, to_cpu, unless_resumed
from ddp_audit_rules.facts.writers import SEVERAL, is_distributed, path_of, who


class LoadWithoutMapLocation(Rule):
    code = "DDP603"
    name = "load-without-map-location"
    level = "warning"
    summary = (
        "torch.load without map_location, on several ranks of a job that uses CUDA, of a checkpoint that this script saves from "
        "the device of one rank."
    )
    rationale = (
        "A file remembers the device of each tensor, and torch.load puts it there again. What rank 0 saved is tagged cuda:0, so "
        "every rank of a node holds a copy of the checkpoint on the device of rank 0, which has room for its own and not for "
        "eight; and every other rank opens a context there. On a machine with fewer devices the load fails."
    )
    exceptions = (
        "A map_location of any kind; loads by one rank; checkpoints that are saved from the CPU; data that is not the state of a "
        "model or optimizer; jobs on gloo alone. Where the script does not save the checkpoint itself, where it comes from is not "
        "known, so it is only possible."
    )
    trace_evidence = "A rank's load put tensors on a GPU on which the rank has no model. On a machine without one nothing can show."
    source = (
        "torch 2.13, torch/serialization.py: storages are restored on the location in the file unless map_location says otherwise. "
        "Without an accelerator the fault cannot show itself; the example falls back to the CPU."
    )
    outcome = "clean"
    fix_hint = "load to the CPU (`map_location='cpu'`) or to the rank's own device, and let load_state_dict copy from there"
    bad = '''"""Goes on from a checkpoint. Each process loads it to the device that rank 0 saved it from, if any."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "last.pt")
model = torch.nn.Linear(4, 1)
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
    model = model.cuda()
model = DDP(model)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), path)
dist.barrier()
model.module.load_state_dict(torch.load(path))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4, device=next(model.parameters()).device)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
'''
    good = bad.replace("torch.load(path)", 'torch.load(path, map_location="cpu")').replace(
        "loads it to the device that rank 0 saved it from, if any", "loads it to the CPU"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_distributed(program) or not (may_use_nccl(program) or is_on_cuda(program)):
            return
        saves = [node for node in program.of(Save) if has_state(node)]
        if any(is_from_cpu(program, node) for node in saves):
            return
        states = loaded_states(program)
        for node in first_of_each_place(n for n in program.of(Load) if n.number in states and who(program, n) == SEVERAL):
            where = node.args.get("map_location")
            path = path_of(node)
            if path is not None and RANK in path.taint:
                continue  # the file of the rank itself, which saved it from the device that it uses
            if "**" in node.args or (where is not None and not (isinstance(where, Const) and where.value is None)):
                continue
            yield self._finding(program, node, saves, states[node.number])

    def _finding(self, program: Program, node: Load, saves: list[Save], used: LoadState) -> Finding:
        message = (
            "Every rank loads this checkpoint onto the device it was saved from, so the copies of all ranks of a node share one "
            "device."
        )
        explanation = (
            "The current device does not count: torch.load goes by what is written in the file. load_state_dict then copies to the "
            "right device, but the memory on the first was needed, and each process keeps a context there. It does no harm where "
            "the file was saved from the CPU."
        )
        related = [Related(used.span.path, used.span.line, "use", used.text), *guard_relations(node)]
        related += [Related(n.span.path, n.span.line, "save", "tags the tensors with their device") for n in saves[:1]]
        confidence = "likely" if saves and node.is_called else "possible"
        guards, option = unless_resumed(node, used, saves)
        if option:
            message = f"If `{option}` is a checkpoint of this script, e{message[1:]}"
        fix = to_cpu(program, node)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the devices of what was loaded, and of the models that the rank wrapped."""
        own: dict[int, set[str]] = {}
        for rank, event in run.events_of(PLACE):
            own.setdefault(rank, set()).update(event.detail.get("devices") or ())
        known = {
            rank: {device for event in events for device in event.detail.get("devices") or ()}
            for rank, events in looks_at(run, READ, finding.span).items()
            if rank in own
        }
        if not any(known.values()):
            return "not-exercised"
        return "confirmed" if any(devices - own[rank] for rank, devices in known.items()) else "not-observed"
