"""DDP102: a module is trained next to a wrapped one and is not wrapped itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import OUTSIDE
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Init, OptimizerMade, Program, Spawn, Step, Wrap
from ddp_audit.tree.questions import root_of
from ddp_audit.tree.values import Obj, options
from ddp_audit_rules.facts.parted import replicas
from ddp_audit_rules.facts.training import reduced_by_hand, shared_again
from ddp_audit_rules.gradients._outside_modules import is_frozen, is_trained, outside_modules


class TrainableModuleUnwrapped(Rule):
    code = "DDP102"
    name = "trainable-module-unwrapped"
    level = "error"
    summary = (
        "A module or parameter (a loss with weights, a temperature, a prompt, a second network, the rest of a partly wrapped "
        "model) whose parameters an optimizer trains in a script that wraps another module, and that is in no wrapper."
    )
    rationale = (
        "Nothing sends its first weights to the other ranks and nothing reduces its gradients. Every rank trains its own copy, and "
        "the wrapped model learns to serve different copies on different ranks; what is saved from rank 0 is one of them."
    )
    exceptions = (
        "Modules inside a wrapped one; modules without parameters, frozen ones, and such that no optimizer has; parts that differ "
        "by rank on purpose, as a classifier split over the ranks or a group of parameters with settings of its rank; "
        "gradients or parameters that the program reduces or sends itself; optimizers whose parameters cannot be followed; scripts "
        "without a DDP wrapper."
    )
    trace_evidence = (
        "Parameters outside of all wrappers that differ between ranks after a step, in an optimizer that holds a wrapper's too."
    )
    source = "Seen in runs with gloo: the gradients of a module outside of every wrapper differ between ranks at the first step."
    fix_hint = "make it a child of the module that is wrapped, or give it a DDP wrapper of its own"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Trains features with a loss that has weights of its own; only the features are wrapped."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class CentreLoss(torch.nn.Module):
    def __init__(self, classes: int, width: int):
        super().__init__()
        self.centres = torch.nn.Parameter(torch.randn(classes, width))

    def forward(self, features, labels):
        return (features - self.centres[labels]).square().mean()


dist.init_process_group("gloo")
features = DDP(torch.nn.Linear(4, 2))
loss = CentreLoss(3, 2)
optimizer = torch.optim.SGD([*features.parameters(), *loss.parameters()], lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    optimizer.zero_grad()
    loss(features(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("only the features are wrapped", "both are wrapped").replace("CentreLoss(3, 2)", "DDP(CentreLoss(3, 2))")

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        wraps = [w for w in program.of(Wrap) if w.style == "ddp" and is_trained(program, w)]
        if not wraps or reduced_by_hand(program) or any(shared_again(program, w) for w in wraps[-1:]):
            return
        reported: set[Span] = set()
        for optimizer in program.of(OptimizerMade):
            for outside, part in outside_modules(program, optimizer):
                where = part.span if part is not None else outside.made
                if where is None or _is_of_another_job(program, optimizer):
                    continue
                if where not in reported and not is_frozen(program, outside):
                    reported.add(where)
                    yield self._finding(program, optimizer, outside, part, wraps)

    def _finding(self, program: Program, optimizer: OptimizerMade, outside: Obj, part: Wrap | None, wraps: list[Wrap]) -> Finding:
        assert outside.made is not None
        if part is None:
            message = (
                f"{outside.text} is trained by the optimizer of line {optimizer.span.line} but is inside no DDP wrapper, so every "
                "rank trains its own copy of it."
            )
        else:
            message = (
                f"Only {part.args['module'].text or 'a part'} of {outside.text} is wrapped, and the optimizer of line "
                f"{optimizer.span.line} trains the rest too: every rank has its own copy."
            )
        explanation = (
            "Its first weights are not sent from rank 0 and its gradients are not reduced, on any rank and without an error: the "
            "copies differ from the start, or from the first step where all ranks are seeded alike. It would be right if each "
            "rank's part were meant to be its own, or if the program reduced these gradients."
        )
        span = outside.made if part is None else part.span
        related = [Related(optimizer.span.path, optimizer.span.line, "optimizer", "trains these parameters")]
        if part is None:
            related += [Related(w.span.path, w.span.line, "wrap", "wraps another module") for w in wraps[:1]]
        else:
            related.append(Related(outside.made.path, outside.made.line, "model", "has parameters outside of the wrapper"))
        # A wrapper around something that could not be followed may hold it after all.
        known = all(any(isinstance(o, Obj) for o in options(w.args["module"])) for w in program.of(Wrap))
        confidence = "likely" if known else "possible"
        return self.finding(span, message, explanation, related=related, guards=optimizer.guards, confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By hashes of what an optimizer holds in addition to the parameters of a wrapper, on the replicas of that wrapper."""
        hashes: dict[tuple[object, ...], dict[int, object]] = defaultdict(dict)
        for rank, event in run.events_of(OUTSIDE):
            hashes[tuple(event.detail.get(key) for key in ("model", "joins", "step", "at"))][rank] = event.detail.get("hash")
        sets = replicas(run)
        known = [[at[rank] for rank in ranks if rank in at] for at in hashes.values() for ranks in sets]
        compared = [set(values) for values in known if len(values) > 1]
        if not compared:
            return "not-exercised"
        return "confirmed" if any(len(values) > 1 for values in compared) else "not-observed"


def _is_of_another_job(program: Program, optimizer: OptimizerMade) -> bool:
    """Whether an optimizer takes its steps where there is no group yet, though the program starts one: as a single process.

    So notebooks and examples show training on one device before that on several, or in a function of its own.
    """
    nodes = root_of(program, optimizer)
    made = optimizer.object
    steps = [n for n in nodes if isinstance(n, Step) and made is not None and n.object is not None and n.object.key == made.key]
    starts = [n.number for n in nodes if isinstance(n, (Init, Spawn, Wrap))]
    return program.has(Init, Spawn) and bool(steps) and all(step.number < min(starts, default=step.number + 1) for step in steps)
