"""DDP111: replicas start from different weights: changed on some ranks after the wrap, or never sent from rank 0."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import LoadState, Node, ParameterWrite, Program, Wrap
from ddp_audit.tree.questions import first_of_each_place, is_given, speaks_of
from ddp_audit.tree.values import Obj
from ddp_audit_rules.facts.training import replicas_drift, shared_again, trained_after, wrap_place, wrapped_by_then
from ddp_audit_rules.gradients._replicas import drawn_apart, why_unequal

_PARTED = ("skip_allreduce", "params_and_buffers_to_ignore")


class UnequalReplicas(Rule):
    code = "DDP111"
    name = "unequal-replicas"
    level = "error"
    summary = (
        "Weights that differ between ranks when training starts: loaded, drawn or written on some ranks only after the DDP wrap, "
        "loaded from a file of each rank's own, drawn again after the wrap from unequal random streams, or never sent because the "
        "wrapper was made with init_sync=False."
    )
    rationale = (
        "DDP sends rank 0's parameters once, in its constructor. Afterwards it averages gradients, never parameters: replicas that "
        "differ then take the same steps from different places, forever. What rank 0 saves is not what the others computed "
        "gradients for, and training is worse than on one device, without an error."
    )
    exceptions = (
        "A load on rank 0 alone before the wrap (the constructor sends it); the same load on all ranks; parameters that are "
        "broadcast afterwards or wrapped again; weights drawn again under one seed; a model that is not trained afterwards, as one "
        "that rank 0 loads for a last evaluation."
    )
    trace_evidence = "Parameters that differ between ranks at the first optimizer step or at the end."
    source = (
        "torch 2.13, nn/parallel/distributed.py: _sync_module_states in the constructor and nowhere else; seen in runs with gloo: "
        "load_state_dict on rank 0 after the wrap leaves equal gradients and parameters that differ by a constant."
    )
    fix_hint = "load or initialise before the wrap, or the same on every rank, or broadcast the parameters from rank 0 afterwards"
    outcome = "parameters-differ"
    bad = '''"""Goes on from saved weights, which rank 0 alone loads into the model that is wrapped already."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
saved = {"weight": torch.ones(1, 4), "bias": torch.zeros(1)}
model = DDP(torch.nn.Linear(4, 1))
if dist.get_rank() == 0:
    model.module.load_state_dict(saved)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("into the model that is wrapped already", "before the wrap, which sends them to the others").replace(
        "model = DDP(torch.nn.Linear(4, 1))\nif dist.get_rank() == 0:\n    model.module.load_state_dict(saved)\n",
        "net = torch.nn.Linear(4, 1)\nif dist.get_rank() == 0:\n    net.load_state_dict(saved)\nmodel = DDP(net)\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if speaks_of(program, *_PARTED) or is_given(
            program, "allreduce", False
        ):  # experts: each rank has its own parameters on purpose
            return
        reported_places: set[Span] = set()
        changes: list[LoadState | ParameterWrite] = [
            node for node in program.of(LoadState, ParameterWrite) if wrapped_by_then(program, node) is not None
        ]
        for node in first_of_each_place(changes):  # a constructor may have come to the same place before the wrap
            found = wrapped_by_then(program, node)
            if found is None:
                continue
            wrapper = found[0]
            why, place = why_unequal(program, node), _place(program, node, found[1])
            if (
                why
                and place not in reported_places
                and trained_after(program, wrapper, node) is not None
                and not shared_again(program, node)
            ):
                reported_places.add(place)
                yield self._changed(node, wrapper, why, place)
        for wrap in first_of_each_place(program.of(Wrap)):
            drawn = drawn_apart(program, wrap)
            if drawn is not None:
                yield self._never_sent(wrap, drawn)

    def _changed(self, node: Node, wrapper: Obj, why: str, place: Span) -> Finding:
        line = wrapper.made.line if wrapper.made is not None else 0
        what = "Weights are loaded" if isinstance(node, LoadState) else "Weights are drawn or written"
        message = f"{what} {why} after the wrap of line {line}, so the ranks train different replicas."
        explanation = (
            "DDP sends parameters from rank 0 in its constructor and never again. From here on all ranks get the same averaged "
            "gradients and apply them to different parameters; nothing fails and nothing brings them together. It would be right "
            "before the wrap, on every rank alike, or with a broadcast of the parameters after it."
        )
        related = wrap_place(wrapper) + guard_relations(node)
        if place != node.span:
            related.append(Related(node.span.path, node.span.line, "write", "the weights are changed here"))
        return self.finding(place, message, explanation, related=related, guards=node.guards)

    def _never_sent(self, wrap: Node, made: Related) -> Finding:
        message = (
            "The wrapper is made with init_sync=False over weights that each rank has drawn for itself, so the replicas differ."
        )
        explanation = (
            "Without the first broadcast every rank keeps its own initial weights; gradients are averaged, parameters never are. "
            "It would be right where all ranks draw under one seed or load the same file."
        )
        return self.finding(wrap.span, message, explanation, related=[made], guards=wrap.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by parameters that differ between ranks."""
        places = [r for r in finding.related if r.role == "wrap"]
        return replicas_drift(run, places or [Related(finding.span.path, finding.span.line, "wrap", "")])


def _place(program: Program, node: Node, wrap: Node) -> Span:
    """Where a change is reported: at the call that leads to it, where the constructor of the module came to the same place."""
    before = any(n.span == node.span and n.number < wrap.number for n in program.of(type(node)))
    return node.calls[0] if before and node.calls else node.span
