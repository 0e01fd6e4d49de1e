"""DDP105: an optimizer step that follows micro-batches of which none was reduced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import STEP
from ddp_audit.findings import Finding, Related
from ddp_audit.program.model import Guard, Node, Program, first_of_each_place
from ddp_audit.program.sync import (
    Switch,
    atoms,
    forwards_behind,
    is_length,
    is_off,
    iterations,
    late_flags,
    loop_atom,
    names_of_loops,
    opened,
    passes,
    suppositions,
    switches,
)
from ddp_audit.program.values import DATA, World
from ddp_audit.rule import Context, Rule


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """A backward that comes before a step in the same iteration, with the switches of its forwards and its own guards."""

    backward: Node
    forwards: tuple[tuple[Node, list[Switch]], ...]
    guards: tuple[Guard, ...]

    def unsynced(self, world: World) -> bool | None:
        answers = [is_off(found, world) for _, found in self.forwards]
        return False if False in answers else None if None in answers else True


class UnsyncedOptimizerStep(Rule):
    code = "DDP105"
    name = "unsynced-optimizer-step"
    level = "error"
    what = (
        "An optimizer step that can be taken after a micro-batch whose gradients were not reduced: the condition of no_sync() "
        "(or of require_backward_grad_sync) and the condition of the step do not agree at some position of the loop."
    )
    why = (
        "Every rank steps with the gradients that it accumulated by itself. Nothing hangs and nothing is reported; the "
        "parameters of the ranks differ from that step on. The usual case is the last, incomplete window of an epoch."
    )
    quiet = (
        "Conditions that agree at every position that was tried, also where only the forward stands inside no_sync() and a "
        "later micro-batch is reduced before the step; conditions that cannot be computed; frameworks that step and reduce by "
        "themselves."
    )
    confirmed = (
        "A step at this place whose gradients were never reduced (the trace notes it for each step), or parameters that differ."
    )
    source = (
        "torch 2.13, nn/parallel/distributed.py: a forward inside no_sync() does not prepare the reducer; seen in runs with "
        "gloo: a step on the last batch of an epoch inside no_sync() makes the parameters of two ranks differ."
    )
    remedy = "compute one boolean, `sync = (i + 1) % n == 0 or i + 1 == len(loader)`, and use it for no_sync() and for the step"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Accumulates windows of 4 of 6 batches; the step on the last batch uses gradients that were never reduced."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
batches = [torch.randn(8, 4) for _ in range(6)]
window = 4
for i, x in enumerate(batches):
    full = (i + 1) % window == 0
    with nullcontext() if full else model.no_sync():
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / window
        loss.backward()
    if full or i + 1 == len(batches):
        optimizer.step()
        optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace(
            "the step on the last batch uses gradients that were never reduced", "the last batch is reduced like a full window"
        )
        .replace("full = (i + 1) % window == 0\n", "full = (i + 1) % window == 0 or i + 1 == len(batches)\n")
        .replace("if full or i + 1 == len(batches):", "if full:")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        late = {(forward.number, backward.number) for _, forward, backward in late_flags(program)}
        for step in first_of_each_place(program.of("step")):
            before = _passes_before(program, step)
            if not before or any((f.number, p.backward.number) in late for p in before for f, _ in p.forwards):
                continue
            if not any(found for p in before for _, found in p.forwards):
                continue
            if all(any(s.test is None for s in found) for p in before for _, found in p.forwards):
                if _never(step):
                    continue
                yield self._finding(program, step, before, {})
                continue
            supposed = _contradiction(program, step, before)
            if supposed is not None:
                yield self._finding(program, step, before, supposed)

    def _finding(self, program: Program, step: Node, before: list[_Pass], supposed: dict[str, Any]) -> Finding:
        forward, found = next((f, s) for p in reversed(before) for f, s in p.forwards if s)
        switch = next((s for s in found), None)
        names = names_of_loops(program, step, supposed)
        case = ", ".join(
            f"{names.get(name, name.removeprefix('option '))} = {value}"
            for name, value in sorted(supposed.items(), key=lambda pair: not pair[0].startswith("loop:"))
        )
        where = f"for instance with {case}, " if case else ""
        message = (
            f"This step can use gradients that no rank reduced: {where}the forward of line {forward.span.line} runs with "
            "synchronisation off and the step is taken all the same."
        )
        explanation = (
            "Each rank then steps with what it accumulated by itself, so the parameters of the ranks differ from this step "
            "on, without an error and without a hang; a later all-reduce averages gradients, never parameters."
        )
        related = [Related(forward.span.path, forward.span.line, "forward", "decides whether its backward is reduced")]
        if switch is not None:
            related.append(Related(forward.span.path, switch.line, "sync", switch.text))
        related += [Related(g.span.path, g.span.line, "guard", g.text) for g in step.guards[-1:] if g.via != "early-exit"]
        return self.finding(step.span, message, explanation, related=related, guards=step.guards)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a step at this place that used gradients which were never reduced."""
        steps = [e for _, e in run.events_at(finding.span.path, finding.span.line, finding.span.end_line) if e.kind == STEP]
        if not steps:
            return "not-covered"
        return "confirmed" if any(e.detail.get("unreduced") for e in steps) else "not-observed"


def _never(step: Node) -> bool:
    """Whether the conditions around a step exclude each other, as where a caller's arm says no and the callee asks again."""
    names = _atoms_of([g.test for g in step.guards])
    answers = {passes(step.guards, World(0, 2, 2, supposed)) for supposed in suppositions(names or set(), {})} if names else set()
    return answers == {False}


def _passes_before(program: Program, step: Node) -> list[_Pass]:
    """The backward passes of wrapped forwards that run before a step in the same iteration of its loops."""
    found: list[_Pass] = []
    own = {(g.span, g.polarity) for g in step.guards}
    for backward in program.of("backward"):
        if backward.number > step.number or backward.loops[: len(step.loops)] != step.loops or backward.calls[:1] != step.calls[:1]:
            continue
        forwards = forwards_behind(program, backward)
        if not forwards or any((g.span, not g.polarity) in own for g in backward.guards):
            continue
        guards = tuple(g for g in backward.guards if (g.span, g.polarity) not in own)
        found.append(_Pass(backward, tuple((f, switches(program, f)) for f in forwards), guards))
    return found


def _contradiction(program: Program, step: Node, before: list[_Pass]) -> dict[str, Any] | None:
    """Values of loop indices, lengths and options under which the step is taken and no pass before it was reduced."""
    shared = {(g.span, g.polarity) for p in before for g in p.backward.guards}
    # A batch that is left out for what is in it (`if not isfinite(loss): continue`) says nothing about the others.
    left_out = {(g.span, g.polarity) for g in step.guards if g.via == "early-exit" and DATA in g.taint}
    guards = tuple(g for g in step.guards if (g.span, g.polarity) not in shared | left_out)
    of_switches = _atoms_of([s.test for p in before for _, found in p.forwards for s in found if s.test is not None])
    of_guards = _atoms_of([g.test for g in guards] + [g.test for p in before for g in p.guards])
    if of_switches is None or of_guards is None:
        return None
    if any(not (name in of_switches or is_length(name) or name.startswith(("option ", "loop:"))) for name in of_guards):
        return None
    names = of_switches | of_guards
    if any(_set_in_loop(program, step, p, name) for p in before for name in of_switches):
        return None
    for p in before:
        for loop in p.backward.loops:
            if loop.count is not None and loop_atom(loop, names):
                names |= atoms(opened(loop.count)) or set()
    defaults = {f"option {name}": value.value for name, value in program.config.items()}
    for supposed in suppositions(names, defaults):
        if _contradicts(step, before, guards, supposed, names):
            return dict(supposed)
    return None


def _set_in_loop(program: Program, step: Node, one: _Pass, name: str) -> bool:
    """Whether a name gets its value in a loop that ends before the step: what it is at the last backward is not known then."""
    if not name.isidentifier():
        return False
    assigned = re.compile(rf"\bfor\b.*\b{name}\b.*\bin\b|\b{name}\s*:?=(?!=)")
    return any(
        assigned.search(program.line(loop.span.path, line))
        for loop in one.backward.loops[len(step.loops) :]
        for line in range(loop.span.line, loop.span.end_line + 1)
    )


def _contradicts(step: Node, before: list[_Pass], guards: tuple[Guard, ...], supposed: dict[str, Any], names: set[str]) -> bool:
    world = World(0, 2, 2, supposed)
    for loop in step.loops:
        index, count = loop_atom(loop, names), iterations(loop, world, names)
        if index is not None and count is not None and supposed[index] >= count:
            return False
    if passes(guards, world) is not True:
        return False
    ran = False
    for p in before:
        last = dict(supposed)
        for loop in p.backward.loops[len(step.loops) :]:
            index = loop_atom(loop, names)
            if index is not None:
                count = iterations(loop, world, names)
                if count is None or count < 1:
                    return False
                last[index] = supposed[index] = count - 1
        there = World(0, 2, 2, last)
        reached = passes(p.guards, there)
        if reached is None:
            return False
        if reached:
            if p.unsynced(there) is not True:
                return False
            ran = True
    return ran


def _atoms_of(values: list[Any]) -> set[str] | None:
    names: set[str] = set()
    for value in values:
        found = atoms(opened(value))
        if found is None:
            return None
        names |= found
    return names
