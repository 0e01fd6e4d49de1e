"""DDP108: a part of a wrapped model that its forward never uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD
from ddp_audit.findings import Finding
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Forward, Inside, Program
from ddp_audit.tree.questions import dotted, is_kind, written
from ddp_audit.tree.values import ClassInfo, Key, Obj
from ddp_audit_rules.facts.training import is_set, reducer_gave_up, wrap_place
from ddp_audit_rules.gradients._model_parts import frozen, looked_into, uses


class UnusedParameters(Rule):
    code = "DDP108"
    name = "unused-parameters"
    level = "info"
    summary = (
        "A layer or parameter of a wrapped model that its forward touches on no way through it, although it requires a gradient "
        "and the wrapper does not look for unused parameters."
    )
    rationale = (
        "The reducer waits for a gradient of every parameter. In the first step the bucket that holds the unused one, which is the "
        "only bucket then, is not reduced at all: the optimizer steps with local gradients, and the second forward raises "
        "'Expected to have finished reduction' on every rank. find_unused_parameters=True makes it run, at the cost of a walk "
        "through the graph in every step."
    )
    exceptions = (
        "find_unused_parameters=True or static_graph=True; frozen parts; tied weights; parts that the forward reaches by a name "
        "that is computed, by children() or modules(), or in a function that could not be followed; models with a base class of a "
        "library; models whose inner methods the training loop calls."
    )
    trace_evidence = "The reducer's error about parameters that did not receive a gradient."
    source = "torch 2.13, reducer.cpp: ensure_prior_reduction_finished; seen in runs with gloo: it raises in the second forward."
    fix_hint = "remove the part, or freeze it before the wrap; find_unused_parameters=True only where the graph really changes"
    outcome = "error all: Expected to have finished reduction"
    bad = '''"""A head from pre-training is left in the model and is never used."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.for_pretraining = torch.nn.Linear(4, 10)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(3):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("is left in the model and is never used", "is taken out of the model before the wrap").replace(
        "model = DDP(Net())\n", "net = Net()\ndel net.for_pretraining\nmodel = DDP(net)\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for wrap, wrapper, module, inside in looked_into(program):
            tolerant = [is_set(wrap, option) for option in ("find_unused_parameters", "static_graph")]
            if True in tolerant or not _is_plain(module) or _called_by_parts(program, wrapper):
                continue
            for part in _unused(program, module, inside):
                if part.made is not None and not frozen(program, part) and not _tied(program, part):
                    yield self._finding(program, wrapper, part, "possible" if None in tolerant else "likely")

    def _finding(self, program: Program, wrapper: Obj, part: Obj, confidence: str) -> Finding:
        assert part.made is not None
        message = (
            f"The forward of the wrapped model never uses {program.modules.name(part)}, so its parameters get no gradient and the "
            "second forward raises on every rank."
        )
        explanation = (
            "The reducer does not finish without them: the gradients of the first step stay local, and the next forward raises "
            "'Expected to have finished reduction in the prior iteration'. It would not happen if they were frozen before the "
            "wrap, or with find_unused_parameters=True."
        )
        return self.finding(part.made, message, explanation, related=wrap_place(wrapper), confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by the reducer's error."""
        if not any(e.kind == FORWARD for _, e in run.all_events()):
            return "not-exercised"
        return "confirmed" if reducer_gave_up(run) else "not-observed"


def _is_plain(module: Obj) -> bool:
    return isinstance(module.cls, ClassInfo) and all(is_kind(base, "plain-module") for base in module.cls.outside_bases())


def _called_by_parts(program: Program, wrapper: Obj) -> bool:
    """Whether the training loop calls the inner module, or a method of it, past the wrapper."""
    forwards = (n for n in program.of(Forward) if n.through == "module" and n.grad is not False)
    return any(n.object is not None and n.object.key == wrapper.key for n in forwards)


def _unused(program: Program, module: Obj, inside: Inside) -> list[Obj]:
    """The outermost parts of a model whose parameters are all unused."""
    modules, used = program.modules, uses(program, inside)

    def idle(key: Key) -> bool:
        return key in modules.objects and bool(modules.has_parameters(key)) and not modules.inside(key) & used.keys()

    found: list[Obj] = []
    queue, seen = [module.key], {module.key}
    while queue:
        for child in modules.children.get(queue.pop(), ()):
            if child in seen:
                continue
            seen.add(child)
            if child not in used and modules.names.get(child) in inside.asked:
                continue  # one attribute may be made in several arms; the forward is followed with one of them
            if idle(child):
                found.append(modules.objects[child])
            else:
                queue.append(child)
    return sorted(found, key=lambda part: (part.made.path, part.made.line) if part.made is not None else ("", 0))


def _tied(program: Program, part: Obj) -> bool:
    """Whether some code reads a parameter of a part, as one that ties weights does."""
    name = program.modules.names.get(part.key, "").rpartition(".")[2]
    reads = (one.node for one in written(program, ast.Attribute, name) if is_kind(one.node.attr, "of-parameter"))
    return not name or any(dotted(node.value).rpartition(".")[2] == name for node in reads)
