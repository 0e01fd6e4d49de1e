"""DDP106: a second backward after forwards that armed the reducer only once."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, FORWARD, STEP
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Forward, Node
from ddp_audit.tree.questions import forwards_behind
from ddp_audit.tree.values import Obj
from ddp_audit_rules.facts.evidence import is_at
from ddp_audit_rules.facts.training import reaches_step, reduced_by_hand, wrap_place
from ddp_audit_rules.gradients._used_up import used_up_by


class SeveralForwardsOneSync(Rule):
    code = "DDP106"
    name = "several-forwards-one-sync"
    level = "error"
    summary = (
        "A backward through a DDP wrapper that follows another backward through it with no forward in between: two forwards "
        "and then two backwards, two losses of one forward with a backward each, or a loop of backwards over losses that were "
        "computed before."
    )
    rationale = (
        "A forward prepares the reducer, and the first backward uses that up. The second one adds gradients of each rank's own "
        "to those that were reduced, without an error: the ranks step with different gradients and drift apart."
    )
    exceptions = (
        "The losses summed and one backward; a forward before each backward; a second backward under no_sync() (DDP105 looks at "
        "those); gradients that are zeroed before an optimizer of this model steps, as a discriminator's are in the generator's "
        "turn; gradients that the program reduces itself. Forwards between which the buffers are sent again do not matter here: "
        "torch 2.13 does not report it on CPU."
    )
    trace_evidence = "A backward at this place that reduced no bucket, where an earlier one of the same step reduced."
    source = (
        "torch 2.13, reducer.cpp: prepare_for_backward expects hooks, finalize_backward expects none any more; seen in runs with "
        "gloo: forward, forward, backward, backward leaves the second gradient local, and so does a second backward of one forward."
    )
    fix_hint = "add the losses and call backward once, or run each backward right after its forward"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Trains a critic on real and false samples: both forwards first, then both backwards; the second is not reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
critic = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
judge = torch.nn.BCEWithLogitsLoss()
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    real, false = critic(torch.randn(8, 4) + 1), critic(torch.randn(8, 4))
    optimizer.zero_grad()
    loss_real = judge(real, torch.ones(8, 1))
    loss_false = judge(false, torch.zeros(8, 1))
    loss_real.backward()
    loss_false.backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("then both backwards; the second is not reduced", "then one backward of the sum").replace(
        "    loss_real.backward()\n    loss_false.backward()\n", "    (loss_real + loss_false).backward()\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reported_places: set[Span] = set()
        for backward in program.of(Backward):
            if backward.span in reported_places:
                continue
            forwards = forwards_behind(program, backward)
            by_wrapper = {f.object.key: f.object for f in forwards if f.object is not None}
            for wrapper in by_wrapper.values():
                own = [f for f in forwards if f.object is not None and f.object.key == wrapper.key]
                earlier = None if "inputs" in backward.args else used_up_by(program, backward, own, wrapper)
                if earlier is None or reduced_by_hand(program, backward):
                    continue
                harm = reaches_step(program, backward, wrapper)
                if harm is not False:
                    reported_places.add(backward.span)
                    yield self._finding(backward, earlier, own, wrapper, "likely" if harm else "possible")
                    break

    def _finding(self, backward: Backward, earlier: Backward, own: list[Forward], wrapper: Obj, confidence: str) -> Finding:
        forward = own[-1]
        if earlier is backward:
            how = f"Only the first of these backwards is reduced: the forward of line {forward.span.line} is outside the loop"
        else:
            how = (
                f"The backward of line {_line(earlier, backward)} has already used the reduction that the forward of line "
                f"{_line(forward, backward)} prepared"
            )
        message = f"{how}, so these gradients stay local on every rank."
        explanation = (
            "DDP expects one reduction for all forwards since the last one. On every rank this backward adds gradients of its own "
            "batch to reduced ones, nothing is reported, and the parameters of the ranks differ from the next step on. It does "
            "not matter where the gradients are zeroed before the optimizer of this model steps."
        )
        related = [Related(forward.span.path, forward.span.line, "forward", "prepares the reducer, once")]
        if earlier is not backward:
            related.append(Related(earlier.span.path, earlier.span.line, "backward", "reduces, and ends what was prepared"))
        related += wrap_place(wrapper)
        return self.finding(backward.span, message, explanation, related=related, guards=backward.guards, confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a backward at this place that reduced nothing after another one of the same step had, with the wrapper's
        synchronisation on."""
        seen = shown = False
        for one in run.ranks.values():
            reduced, sync = False, True
            for event in one.events:
                if event.kind == STEP:
                    reduced = False
                elif event.kind == FORWARD:
                    sync = event.detail.get("sync") is not False
                elif event.kind == BACKWARD:
                    buckets = int(event.detail.get("buckets") or 0)
                    if is_at(event, finding.span):
                        seen = True
                        shown = shown or (buckets == 0 and reduced and sync)
                    reduced = reduced or buckets > 0
        return "confirmed" if shown else "not-observed" if seen else "not-exercised"


def _line(node: Node, other: Node) -> int:
    """The line of a node; where another node of interest has the same one, that of the call that leads there."""
    return node.calls[-1].line if node.calls and node.span == other.span else node.span.line
