"""DDP115: an attribute of the inner module is read on the wrapper, which does not have it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import EXCEPTION
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import MissingAttribute, Program
from ddp_audit.tree.questions import always_runs, calls_of, code_at, comes_from, dotted, first_of_each_place, names_in, runs_with
from ddp_audit_rules.facts.evidence import seen_at
from ddp_audit_rules.facts.training import wrap_behind


class AttributeOfWrapper(Rule):
    code = "DDP115"
    name = "attribute-of-wrapper"
    level = "error"
    summary = "An attribute or method of the user's module that is read on the DistributedDataParallel object around it."
    rationale = (
        "The wrapper passes on nothing but its forward: the line raises AttributeError on every rank that runs it. Where a rank "
        "test lets only one rank run it, that rank dies and the others wait in their next collective until the launcher ends them."
    )
    exceptions = (
        "Attributes of nn.Module and of DistributedDataParallel, attributes that the program sets on the wrapper, subclasses "
        "of the wrapper that define them, hasattr and getattr with a default, and lines inside try."
    )
    trace_evidence = "An AttributeError that leaves the script at this place."
    source = "torch 2.13, nn/parallel/distributed.py: DistributedDataParallel defines no __getattr__ of its own; seen in a run."
    fix_hint = "read it on the inner module: model.module.name"
    outcome = "error all: 'DistributedDataParallel' object has no attribute 'scale'"
    bad = '''"""Prints the model's own scale through the wrapper, which has no such attribute."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.scale = 2.0

    def forward(self, x):
        return self.layer(x) * self.scale


dist.init_process_group("gloo")
model = DDP(Line())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("scale", model.scale, flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("through the wrapper, which has no such attribute", "on the inner module").replace(
        "model.scale,", "model.module.scale,"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(MissingAttribute)):
            wrapper = node.object
            if wrapper is None or node.tries or _is_asked_for(program, node.span.path, node.name):
                continue
            if any(g.via == "except" or comes_from(g.test, "asks-what-it-is") for g in node.guards):
                continue
            if program.frameworks.wraps_models and any(not g.taint and g.via == "if" for g in node.guards):
                continue  # the arm of another engine, whose model this name stands for too
            name = node.name
            some = [g for g in node.rank_guards if g.ranks() != "all ranks"]
            who = f"{some[0].ranks()} raises" if some else "every rank raises"
            message = f"DistributedDataParallel has no attribute {name}: {who} AttributeError here; it belongs to the inner module."
            explanation = (
                f"{some[0].describe()[:1].upper() + some[0].describe()[1:]}. The rank that fails leaves, and the others wait "
                "in their next collective until the launcher ends them."
                if some
                else "The wrapper forwards calls to the module's forward and nothing else; all ranks fail alike."
            )
            related = guard_relations(node)
            if wrapper.made is not None:
                related.append(Related(wrapper.made.path, wrapper.made.line, "wrap", "wrapped here"))
            sure = "likely" if node.sure else "possible"
            fix = _on_inner(program, node)
            yield self.finding(node.span, message, explanation, related=related, confidence=sure, guards=node.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by an AttributeError about this attribute that left the script from this place; not-observed where ranks
        recorded something here."""
        name, span = _name(finding), finding.span
        for _, event in run.events_at(span.path, span.line, span.end_line):
            text = str(event.detail.get("text"))
            if event.kind == EXCEPTION and event.detail.get("type") == "AttributeError" and "no attribute" in text and name in text:
                return "confirmed"
        return "not-observed" if seen_at(finding, run) else "not-exercised"


def _on_inner(program: Program, node: MissingAttribute) -> Fix | None:
    """The attribute of the inner module, where the name holds nothing but the wrapper; unsafe for a method."""
    code, wrap = code_at(program, node.span, ast.Attribute), wrap_behind(program, node)
    owner = "" if code is None else dotted(code.value)
    if not owner or not node.sure or wrap is None:
        return None
    if not always_runs(program, wrap) and not runs_with(program, wrap, node):
        return Fix("unsafe", f'read it on the inner module: getattr({owner}, "module", {owner}).{node.name}', "getattr")
    calls = calls_of(program, node.name, path=node.span.path)
    is_called = any(call.source.span(call.node.func) == node.span for call in calls)
    return Fix("unsafe" if is_called else "safe", f"read it on the inner module: {owner}.module.{node.name}")


def _name(finding: Finding) -> str:
    return finding.message.partition("attribute ")[2].partition(":")[0]


def _is_asked_for(program: Program, path: str, name: str) -> bool:
    """Whether the file asks by hasattr whether an object has this attribute."""
    return any(name in names_in(call.node) for call in calls_of(program, "hasattr", path=path))
