"""DDP213: ranks that part for good in the predicted run, where no other rule says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.compare.run import EXITED, RecordedRun, last_issued, same_file
from ddp_audit.events import ORIGINS, USER, Event, Site
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.source.paths import place_of
from ddp_audit.tree.nodes import Collective, Init, NewGroup, Wrap
from ddp_audit_rules.facts.parted import failed_of_its_own, has_diverged, stalled
from ddp_audit_rules.facts.predicted import on_main_line, span_of_line

if TYPE_CHECKING:
    from ddp_audit.explore.exact.state import Taken
    from ddp_audit.explore.proof import Parting

_REACH = (Init, NewGroup, Wrap, Collective)  # nodes of a program that makes a process group


class PredictedDivergence(Rule):
    code = "DDP213"
    name = "predicted-divergence"
    level = "error"
    yields_to = ("hang", "abort", "error")
    summary = (
        "A script whose predicted run ends in a hang or an abort: the script is interpreted on each rank, and the ranks come to "
        "collectives that cannot meet, one rank ends while another still waits for it, or the ranks wrap models that differ."
    )
    rationale = (
        "The waiting ranks stand in their collective until the timeout of the process group, which is 10 minutes with NCCL and 30 "
        "with gloo. The rule has no list of causes, so it also finds what no other rule has a pattern for: a loop whose length "
        "follows the rank, a function that is chosen by rank from a table, two collectives in opposite order."
    )
    exceptions = (
        "Scripts whose run rests on something unknown: a call of a library that may send, a hook, a framework that trains by "
        "itself, or an exception that the audit inferred and the program does not raise. A rank that an uncaught exception "
        "ends is left to the launcher, which stops the other ranks. Where another rule names the same condition or line, "
        "its finding stands alone. "
        "Where an open condition decides the end, the finding is a warning that names the condition. Where an option that is off "
        "keeps the script from its process group, the run takes it as on, and the finding names it."
    )
    trace_evidence = "A recorded run whose ranks diverge at one of these lines."
    source = (
        "The model of DDP and of gloo, which was compared with torch 2.13 on random programs (benchmarks/agree.py); the programs "
        "of this rule were run with gloo on two ranks."
    )
    fix_hint = "let every rank issue the same collectives in the same order, and leave the loop in the same iteration"
    outcome = "hang 1"
    bad = '''"""Rank 1 trains one step more than rank 0, which has left by then."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
budget = {"steps": 3}
budget.update(steps=budget["steps"] + dist.get_rank())
done = 0
while done != budget["steps"]:
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += 1
print("done", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 1 trains one step more than rank 0, which has left by then.", "Every rank trains the same number of steps."
    ).replace('budget["steps"] + dist.get_rank()', 'budget["steps"] + dist.get_world_size() - 1')

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.executed or not program.has(*_REACH):
            return
        predicted = context.exploration.predicted()
        if predicted is None or predicted.parting is None:
            return
        found = self._finding(context, predicted.parting)
        yield on_main_line(found, predicted.flips)

    def _finding(self, context: Context, parting: Parting) -> Finding:
        standing = {rank: event for rank, event in parting.stops.items() if event is not None}
        _, event = min(standing.items(), key=lambda pair: (pair[1].origin != USER, pair[0]))
        place = parting.condition or event.site
        assert place is not None
        stands = ", ".join(f"rank {r} {_stands(e)}" for r, e in sorted(parting.stops.items())[:3])
        message = {
            "hangs": f"The predicted run hangs: {stands}.",
            "aborts": f"The predicted run is aborted: {stands}.",
        }.get(parting.kind, "The predicted run fails here: the ranks wrap models with different parameters.")
        sentences = [_sentence(parting.condition)] if parting.condition is not None else []
        sentences.append(f"In the predicted run: {parting.explanation.rstrip('.')}.")
        if parting.rests_on:
            sentences.append(parting.resting)
        related = [Related(e.site.path, e.site.line, "stands", f"rank {r} {_stands(e)}") for r, e in standing.items() if e.site]
        return self.finding(
            span_of_line(context, place.path, place.line), message, " ".join(sentences), related=related,
            severity="warning" if parting.rests_on else "error", confidence="likely" if parting.rests_on else "certain",
            fix=Fix("display-only", "build the same model on every rank") if parting.kind == "fails" else None,
        )  # fmt: skip

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank that did not leave in order stands in its last collective at one of the lines."""
        places = [(place.path, place.line) for place in finding.related if place.role == "stands"]
        seen = False
        for rank in run.ranks.values():
            last = last_issued(rank.events)
            event = rank.waiting if rank.waiting is not None else None if last is None else rank.events[last]
            here = event is not None and event.site is not None and _is_at(event.site, places)
            if here and rank.state != EXITED and not any(map(failed_of_its_own, run.ranks.values())):
                return "confirmed" if stalled(run) or has_diverged(run) else "not-exercised"  # else somebody ended the run
            seen = seen or here
        return "not-observed" if seen else super().verify(finding, run)


def _is_at(site: Site, places: Iterable[tuple[str, int]]) -> bool:
    return any(site.line == line and same_file(site.path, path) for path, line in places)


def _stands(event: Event | None) -> str:
    if event is None:
        return "has ended"
    what = event.op if event.origin == USER else ORIGINS[event.origin]
    return f"waits in {what} at {event.site}" if event.site is not None else f"waits in {what}"


def _sentence(taken: Taken) -> str:
    return f"The ranks diverge where {place_of(taken.path, taken.line)} asks `{taken.text}`."
