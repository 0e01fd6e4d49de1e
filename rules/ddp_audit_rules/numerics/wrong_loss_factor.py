"""DDP802: the loss carries a factor that makes the gradient W, 1/W or N times that of one process."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FACTOR
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Node, Program
from ddp_audit.tree.questions import MEAN, SUM, first_of_each_place, loss_of, scale_matters, scales_by_hand, trained_by_ddp
from ddp_audit_rules.facts.evidence import looks_at, totals
from ddp_audit_rules.facts.training import wrap_behind
from ddp_audit_rules.numerics._loss_factors import divided_before_engine, scaled_by_window, scaled_by_world

_BY_ENGINE = "Leave the division to Accelerate, or make it with gradient_accumulation_steps=1. All ranks are wrong alike."


class WrongLossFactor(Rule):
    code = "DDP802"
    name = "wrong-loss-factor"
    level = "warning"
    summary = (
        "A mean loss that is divided by the world size, or multiplied by it without a global count, before the backward of a DDP "
        "model; micro-batches that are accumulated without a division by their number, or with two."
    )
    rationale = (
        "DDP sums the gradients and divides them by the number of ranks. A second division makes them W times smaller than those "
        "of one process with the whole batch, a multiplication W times greater; N accumulated micro-batches make N times the "
        "gradient. The learning rate, the limit of clipping and weight decay then mean something else on every number of ranks."
    )
    exceptions = (
        "A loss with a count that was summed over the ranks (loss * world_size / global_count is right); sums in place of means; "
        "gradients that are scaled by hand or by a communication hook; frameworks that divide by themselves (where the script "
        "divides once more, it is reported); values that are only logged. Optimizers of Adam's kind divide the factor out, so "
        "without clipping it is only possible."
    )
    trace_evidence = (
        "Steps that were looked at: what a mean loss is multiplied by before its backward, the number of backward passes and of "
        "ranks make the number of ranks or of micro-batches, or one part of it, in place of 1."
    )
    source = (
        "torch 2.13, csrc/distributed/c10d/reducer.cpp: gradients are divided by the world size before they are summed. Seen in "
        "runs: loss / world_size gives half of the gradient on two ranks."
    )
    outcome = "shows gradient is 0.50 of that of one process"
    fix_hint = "leave the mean over the ranks to DDP, and divide by the number of accumulated micro-batches once"
    bad = '''"""Divides the loss by the number of ranks; DDP does that again. Compares with one process and the whole batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
alone = torch.nn.Linear(4, 1)
model = DDP(torch.nn.Linear(4, 1))
model.module.load_state_dict(alone.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
whole = torch.randn(8 * world_size, 4)

x = whole[rank * 8 : (rank + 1) * 8]
loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
loss = loss / world_size
loss.backward()

torch.nn.functional.mse_loss(alone(whole), whole.sum(1, keepdim=True)).backward()
ratio = (model.module.weight.grad.norm() / alone.weight.grad.norm()).item()
optimizer.step()
if rank == 0:
    print(f"the gradient is {ratio:.2f} of that of one process", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("loss = loss / world_size\n", "").replace(
        "Divides the loss by the number of ranks; DDP does that again.", "Leaves the mean over the ranks to DDP."
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if scales_by_hand(program):
            return
        for backward in first_of_each_place(program.of(Backward)):
            if "engine" in backward.args:
                message = divided_before_engine(backward)
                if message:
                    yield self.finding(backward.span, message, _BY_ENGINE, guards=backward.guards)
                continue
            loss = loss_of(backward.target, program)
            if not trained_by_ddp(program, backward) or loss.is_global or loss.reduced == SUM:
                continue
            message = scaled_by_world(loss) if loss.worlds else scaled_by_window(program, backward, loss)
            if message:
                yield self._finding(program, backward, message, loss.reduced == MEAN and scale_matters(program))

    def _finding(self, program: Program, backward: Node, message: str, sure: bool) -> Finding:
        explanation = (
            "All ranks are wrong alike, so nothing differs between them and nothing fails: the learning rate has another meaning "
            "than in a run of one process. Optimizers of Adam's kind hide it until gradients are clipped."
        )
        related: list[Related] = []
        for forward in program.forwards_of(backward.target)[:1]:
            wrap = wrap_behind(program, forward)
            related.append(Related(forward.span.path, forward.span.line, "forward", forward.text))
            related += [] if wrap is None else [Related(wrap.span.path, wrap.span.line, "wrap", "averages the gradients")]
        confidence = "likely" if sure else "possible"
        return self.finding(backward.span, message, explanation, related=related, confidence=confidence, guards=backward.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By what the losses of this backward were multiplied by, where each is one mean over its batch."""
        from ddp_audit.compare.factors import is_near

        looks = looks_at(run, FACTOR, finding.span)
        found = [one for events in looks.values() for one in totals(events)]
        if any(is_near(total, 1) for total, _ in found):
            return "not-observed"
        known = [(total, int(event.detail[key])) for total, event in found for key in ("replicas", "passes")]
        matching = [total for total, by in known if by > 1 and (is_near(total, by) or is_near(total, 1 / by))]
        return "confirmed" if matching else "not-exercised"
