"""DDP103: a module is changed after DDP has put its hooks on the parameters."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import LoadState, ModuleChange, Move, Node, Program, Wrap
from ddp_audit.tree.values import Obj, constant, the_object
from ddp_audit_rules.facts.training import is_set, replicas_drift, trained_after, wrap_place, wrapped_by_then
from ddp_audit_rules.gradients._moved import moves

_WHOLE = "the gradients of the whole model stay local on every rank"


class ModuleChangedAfterWrap(Rule):
    code = "DDP103"
    name = "module-changed-after-wrap"
    level = "error"
    summary = (
        "A model that is changed after the DDP wrap and trained on: a layer or parameter added, replaced, tied or re-parametrised "
        "(weight_norm, pruning), parameters moved to another device or type, or a state dict loaded with assign=True."
    )
    rationale = (
        "DDP broadcasts and hooks the parameters that it finds when it is made. A new one is neither sent to the other ranks nor "
        "reduced; a replaced one is missed by the reducer, which raises at the next forward; a move gives the parameters new "
        "gradient accumulators on which the hooks do not sit, so nothing is reduced any more, in silence."
    )
    exceptions = (
        "Changes before the wrap, or with a new wrap after them; an optimizer that is built before the wrap; layers without "
        "parameters and plain attributes; moves that change nothing, as to the device where the model is; models that are not "
        "trained afterwards."
    )
    trace_evidence = (
        "Local gradients at a step after this line, parameters that differ, or the reducer's error about a prior reduction."
    )
    source = (
        "torch 2.13, nn/parallel/distributed.py: hooks are put on the gradient accumulators in the constructor; seen in runs with "
        "gloo: a layer added after the wrap, weight_norm, load_state_dict(assign=True) and .double() leave gradients local."
    )
    fix_hint = "finish the model (load, move, convert, add) before the wrap, or make a new wrapper and optimizer after the change"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Adds a second output to the model after the wrap: it is neither sent to the other ranks nor reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 1)])

    def forward(self, x):
        return sum(head(self.body(x)) for head in self.heads)


dist.init_process_group("gloo")
model = DDP(Net())
model.module.heads.append(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("after the wrap: it is neither sent to the other ranks nor reduced", "and wraps it then").replace(
        "model = DDP(Net())\nmodel.module.heads.append(torch.nn.Linear(4, 1))\n",
        "net = Net()\nnet.heads.append(torch.nn.Linear(4, 1))\nmodel = DDP(net)\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reported: set[Span] = set()
        for node in program.of(ModuleChange, Move, LoadState):
            found = wrapped_by_then(program, node)
            if found is None:
                continue
            wrapper, wrap = found
            said = _said(program, node, wrapper, wrap)
            if said is not None and node.span not in reported and trained_after(program, wrapper, node) is not None:
                reported.add(node.span)
                yield self._finding(node, wrapper, *said)

    def _finding(self, node: Node, wrapper: Obj, what: str, effect: str, confidence: str) -> Finding:
        line = wrapper.made.line if wrapper.made is not None else 0
        message = f"{what} after the DDP wrap of line {line}: {effect}."
        explanation = (
            "DDP looks at a model once, in its constructor. All ranks make the same change and nothing distinguishes them, so they "
            "run on with parameters that drift apart, until the reducer misses a gradient that it waits for. It would be right "
            "before the wrap, or with a new wrapper (and optimizer) after it."
        )
        related = wrap_place(wrapper) + guard_relations(node)
        return self.finding(node.span, message, explanation, related=related, guards=node.guards, confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by local gradients, parameters that differ, or the reducer's error."""
        return replicas_drift(run, [r for r in finding.related if r.role == "wrap"])


def _said(program: Program, node: ModuleChange | Move | LoadState, wrapper: Obj, wrap: Wrap) -> tuple[str, str, str] | None:
    """What is done, what comes of it, and how sure that is; None where nothing does."""
    if isinstance(node, ModuleChange):
        return _changed(program, node, wrap)
    if isinstance(node, Move):
        confidence = moves(program, node, wrapper, wrap)
        return (f"{node.text} moves or converts parameters", _WHOLE, confidence) if confidence else None
    if constant(node.args.get("assign")) is True:
        return "load_state_dict(assign=True) replaces the parameters", _WHOLE, "likely"
    return None


def _changed(program: Program, node: ModuleChange, wrap: Wrap) -> tuple[str, str, str] | None:
    what, name = node.what, node.name
    new, old = (the_object(value, "module") for value in (node.value, node.old))
    adds = None if new is None else program.modules.has_parameters(new.key)
    removes = old is not None and program.modules.has_parameters(old.key) is not False
    if what == "added":
        if adds is False:
            return None
        effect = "the new parameters are neither sent to the other ranks nor reduced, and differ from the start"
        return f"{name} gets a module or parameter", effect, "likely" if adds else "possible"
    if what == "replaced" and not adds and not removes:
        return None
    tolerant = is_set(wrap, "find_unused_parameters")
    effect = "the new parameters are not reduced" if what != "tied" else "the tied parameter is not reduced as such"
    if not tolerant:
        effect += ", and the next forward but one raises"
    verb = {"replaced": f"{name} is replaced", "tied": f"{name} is tied to another parameter"}
    return verb.get(what, f"{name} re-parametrises a layer"), effect, "likely"
