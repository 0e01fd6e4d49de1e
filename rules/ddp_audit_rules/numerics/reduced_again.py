"""DDP806: a running total is all-reduced in place, grows, and is all-reduced again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Collective

if TYPE_CHECKING:
    from ddp_audit.explore.exact.totals import SummedAgain
    from ddp_audit.explore.proof import Predicted


class ReducedAgain(Rule):
    code = "DDP806"
    name = "reduced-again"
    level = "warning"
    summary = (
        "A running total is summed over the ranks, each rank adds its own part to the result, and the total is summed over the "
        "ranks again."
    )
    rationale = (
        "After the first all-reduce every rank holds the sum of all ranks. The second one adds these sums up, so everything "
        "that was counted before counts once for each rank. Early batches weigh more than late ones, and the number grows with "
        "the world size. A mean of two such totals looks plausible and is wrong."
    )
    exceptions = (
        "A copy that is reduced while the total stays local; a total that is reset before each reduction; one reduction after "
        "the loop; a maximum, a minimum or an average; a sum that is divided by the number of ranks before it grows; a flag that "
        "the program compares or tests after the sum; totals that some ranks reset; code that the predicted run does not reach."
    )
    trace_evidence = "Nothing that a trace holds: it has the calls of collectives and not the numbers in their tensors."
    source = (
        "torch 2.13: all_reduce writes the sum into its input. Seen in runs with gloo: on two ranks a total of four batches of "
        "8 rows counts 240 rows in place of 64."
    )
    fix_hint = "keep the total local, and all-reduce a copy of it (`shown = total.clone()`) or the total itself once after the loop"
    outcome = "shows 240 of 64 rows"
    bad = '''"""Counts the rows of a validation, and adds the counts of all ranks up after each batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
count = torch.zeros(1)
for batch in torch.randn(4, 8, 4):
    count += len(batch)
    dist.all_reduce(count)
print(f"{count.item():.0f} of 64 rows", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("after each batch", "once").replace(
        "    count += len(batch)\n    dist.all_reduce(count)\n", "    count += len(batch)\ndist.all_reduce(count)\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.executed or not any("reduce" in str(n.op) for n in program.of(Collective)):
            return
        predicted = context.exploration.predicted()
        seen: set[tuple[str, int]] = set()
        for again in _on_all_ranks(predicted) if predicted is not None else ():
            if again.place not in seen:
                seen.add(again.place)
                yield self._finding(context, again)

    def _finding(self, context: Context, again: SummedAgain) -> Finding:
        path, line = again.place
        before, (added_path, added_line) = again.before.site, again.added[-1]
        assert before is not None and again.event.site is not None
        same = (before.path, before.line) == (again.event.site.path, again.event.site.line)
        earlier = "an earlier pass" if same else f"line {before.line}"
        message = (
            f"This sums a total over the ranks that already holds the sum of {earlier}, so each rank counts the old part once more."
        )
        explanation = (
            f"Each rank adds its own part to the global sum in line {added_line}. The next all-reduce multiplies what was there "
            "before by the number of ranks, and adds the new parts once. All ranks get the same wrong number, and nothing fails."
        )
        related = [Related(added_path, added_line, "addition", "adds the rank's own part to the sum of all ranks")]
        if (again.event.site.path, again.event.site.line) != again.place:
            related.append(Related(again.event.site.path, again.event.site.line, "collective", "the all-reduce itself"))
        if not same:
            related.append(Related(before.path, before.line, "collective", "summed it over the ranks before"))
        lines = context.lines(path)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        start = len(text) - len(text.lstrip()) + 1
        span = Span(path, line, start, line, max(start, len(text.rstrip()) + 1))
        return self.finding(span, message, explanation, related=related)


def _on_all_ranks(predicted: Predicted) -> list[SummedAgain]:
    """The totals that every rank sums again: where some ranks start theirs again, the sum may be right."""
    found = predicted.run.summed_again
    places = [{again.place for again in of_rank} for of_rank in found.values()]
    everywhere = set.intersection(*places) if len(places) > 1 else set()
    return [again for again in next(iter(found.values()), []) if again.place in everywhere]
