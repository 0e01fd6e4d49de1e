"""DDP203: a decision on what only this rank knows skips or leaves what the ranks do together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, COLLECTIVE, FORWARD, STEP
from ddp_audit.findings import Finding, Related
from ddp_audit.program.model import Guard, Node, Program, first_of_each_place
from ddp_audit.program.reach import local_taint
from ddp_audit.program.sync import forwards_behind
from ddp_audit.program.values import CLOCK, DATA, ERROR, RANK, Const, Taint
from ddp_audit.rule import Context, Rule
from ddp_audit_rules._parted import counts_at, parted


@dataclass(frozen=True, slots=True, eq=False)
class _Skip:
    """A place where ranks part: `node` is a jump, or the first thing of the region that stands under the condition itself."""

    node: Node
    guard: Guard
    taint: Taint
    region: Node  # the first thing that the ranks do together and that this one skips or leaves


class RankLocalExit(Rule):
    code = "DDP203"
    name = "rank-local-exit"
    level = "error"
    what = (
        "A break, continue, return or exit (or an `if` around backward or step) that is decided by this rank's own loss, "
        "metric, files, clock, random numbers or rank, and that skips or leaves a collective, a wrapped forward or backward, "
        "or the step."
    )
    why = (
        "The rank that decides otherwise issues fewer collectives than the others. They wait for it, or pair with its next "
        "ones: without buffers the ranks go on one batch apart in silence until the longer one hangs; a step that one rank "
        "skips makes the parameters differ for good."
    )
    quiet = (
        "Decisions on reduced or broadcast values, on step counters and options, in code that issues nothing collective, on "
        "the norm of reduced gradients, exits with an error code (the launcher ends the others at once), and handlers of "
        "exceptions (DDP204)."
    )
    confirmed = "The ranks' counts of collectives part after this place, or one rank left while others wait."
    source = (
        "Seen in runs with gloo on torch 2.13: skipping a batch on one rank shifts the pairing by one batch in silence and "
        "hangs at the end; skipping backward in a model with buffers hangs; torch/distributed/elastic ends the other workers "
        "when one exits non-zero."
    )
    remedy = "let the ranks agree first: all_reduce the flag with MAX and branch on the result"
    outcome = "hang all"
    bad = '''"""Each rank leaves the loop when its own loss is small."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("GROUP_TIMEOUT", "1800"))))
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4) * (1 + 9 * rank)
target = x.sum(1, keepdim=True)
for step in range(8):
    loss = (model(x) - target).pow(2).mean() / (1 + 99 * rank)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done = (loss < 1.0).float()
    if done.item():
        break
dist.barrier()
print("steps", step + 1, flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Each rank leaves the loop when its own loss is small", "The ranks agree before one of them leaves the loop"
    ).replace("    if done.item():\n", "    dist.all_reduce(done, op=dist.ReduceOp.MAX)\n    if done.item():\n")

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        skips = [*_jumps(program), *_enclosed(program)]
        first = {id(n) for n in first_of_each_place(skip.node for skip in skips)}
        reported: set[object] = set()
        for skip in skips:
            if id(skip.node) in first and skip.guard.span not in reported:
                reported.add(skip.guard.span)
                yield self._finding(skip)

    def _finding(self, skip: _Skip) -> Finding:
        node, guard, region = skip.node, skip.guard, skip.region
        reason = "its rank" if skip.taint == {RANK} else " and ".join(sorted(skip.taint - {RANK} or skip.taint))
        what = _what(region)
        jump = node.detail.get("what") if node.kind == "jump" else ""
        condition = guard.text if guard.polarity else f"not ({guard.text})"
        if jump == "exit":
            message = f"A rank ends its process here by its own decision ({condition}: {reason}) while the others go on to {what}."
        elif jump:
            verb = "skips" if region.number > node.number else "leaves the loop of"
            message = f"Each rank decides this {jump} for itself ({condition}: {reason}), and the rank that takes it {verb} {what}."
        else:
            message = (
                f"Each rank decides for itself whether it does {what} ({condition}: {reason}), and one that does not leaves "
                "the others alone."
            )
        if region.kind == "step":
            explanation = (
                "The others step and this rank does not: nothing hangs, and the parameters differ from then on. The gradients "
                "are reduced, so a value computed from them would be the same on all ranks; the one that decides here is not."
            )
        else:
            explanation = (
                "The ranks' sequences of collectives part: the others wait in theirs, or pair it with what this rank issues "
                "next, one batch late and in silence, until the rank with more iterations hangs at the end. It does no harm "
                "only where the value happens to be the same on all ranks."
            )
        related = [
            Related(guard.span.path, guard.span.line, "guard", guard.describe()),
            Related(region.span.path, region.span.line, region.kind, f"what the other ranks do: {region.text}"),
        ]
        related += [Related(c.path, c.line, "call", "the call that leads here") for c in node.calls]
        severity = "warning" if jump == "exit" else None
        return self.finding(
            node.span,
            message,
            explanation,
            related=related,
            confidence=_confidence(skip),
            severity=severity,
            guards=node.guards,
        )

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the ranks' counts of what they do together differ in a run that reached the region."""
        places = [(r.path, r.line, r.line) for r in finding.related if r.text.startswith("what the other ranks do")]
        counts = counts_at(run, places, (FORWARD, COLLECTIVE, BACKWARD, STEP))
        if not any(counts.values()):
            return "not-covered"
        return "confirmed" if parted(run, counts) else "not-observed"


# ---- where ranks part


def _jumps(program: Program) -> Iterator[_Skip]:
    """Jumps by a rank's own decision that skip or leave something that the ranks do together."""
    for jump in program.of("jump"):
        what = jump.detail["what"]
        if what == "raise" or (what == "exit" and not _ends_quietly(jump)):
            continue
        guard = _deciding(jump)
        if guard is None:
            continue
        region = next(iter(_left_out(program, jump)), None)
        if region is None:
            continue
        taint = local_taint(guard.test)
        if taint == {RANK} and region.kind == "collective":
            continue  # DDP201 reports the collective
        yield _Skip(jump, guard, taint, region)


def _enclosed(program: Program) -> Iterator[_Skip]:
    """A backward or step under such a condition itself, where its forward is not."""
    for node in program.of("backward", "step"):
        if node.kind == "backward" and not _is_together(program, node):
            continue
        if node.kind == "step" and not any(n.kind == "wrap" and n.detail.get("style") == "ddp" for n in program.nodes):
            continue
        outer = {g.span for f in forwards_behind(program, node, None) for g in f.guards} if node.kind == "backward" else set()
        for guard in node.guards:
            if guard.via in ("if", "ifexp") and guard.span not in outer:
                taint = _own_taint(guard)
                if taint and (node.kind == "backward" or taint != {RANK}):
                    yield _Skip(node, guard, taint, node)
                    break


def _own_taint(guard: Guard) -> Taint:
    taint = local_taint(guard.test)
    if ERROR in taint or (taint == {RANK} and guard.ranks() in ("all ranks", "some ranks")):
        return frozenset()
    return taint


def _deciding(jump: Node) -> Guard | None:
    """The condition, inside what the jump leaves, that ranks answer differently."""
    what = jump.detail["what"]
    for guard in reversed(jump.guards):
        if guard.via not in ("if", "ifexp", "decorator"):
            continue
        inside = guard.loops == len(jump.loops) if what in ("break", "continue") else guard.depth == len(jump.calls)
        if (inside or what == "exit") and _own_taint(guard):
            return guard
    return None


def _left_out(program: Program, jump: Node) -> Iterator[Node]:
    """What the ranks do together after the jump, and for a jump out of a loop in the loop's other iterations; what is "
    "skipped first."""
    what = jump.detail["what"]
    depth = len(jump.calls)
    if what in ("break", "continue"):
        around = jump.loops[-1:]
    elif what == "return":
        around = tuple(loop for loop in jump.loops if loop.span.path == jump.span.path and _contains(program, jump, loop.span.line))
    else:
        around = jump.loops
    before: list[Node] = []
    for node in program.nodes:
        in_loop = any(loop in node.loops for loop in around)
        in_call = node.calls[:depth] == jump.calls and (len(node.calls) > depth or node.function == jump.function)
        if not _is_together(program, node) or _excluded(node, jump):
            continue
        if node.number > jump.number and (what == "exit" or in_loop or (what == "return" and in_call)):
            yield node
        elif node.number < jump.number and in_loop and what != "continue":
            before.append(node)
    # Of the other iterations, what the fewest conditions stand before: it comes in each of them.
    yield from sorted(before, key=lambda node: len(node.guards))


def _contains(program: Program, jump: Node, line: int) -> bool:
    """Whether a loop of the jump's file stands in the jump's own function, by the nearest def above both."""
    lines = program.sources.get(jump.span.path, [])
    own = next(
        (i for i in range(jump.span.line, 0, -1) if lines[i - 1 : i] and lines[i - 1].lstrip().startswith(("def ", "async def "))),
        0,
    )
    return own < line <= jump.span.line


def _excluded(node: Node, jump: Node) -> bool:
    """Whether a node is not reached by the ranks that do not jump: it stands in the jump's own arm."""
    arms = {(g.span, g.polarity) for g in jump.guards if g.via != "early-exit"}
    return node.number < jump.number and any((g.span, g.polarity) in arms and _own_taint(g) for g in node.guards)


def _is_together(program: Program, node: Node) -> bool:
    """Whether a node is something that all ranks do together: a collective, a wrapped forward or backward with gradients, "
    "a step of it."""
    if node.kind == "collective":
        group = node.args.get("group")
        return group is None or (isinstance(group, Const) and group.value is None)
    if node.kind == "forward":  # one without a backward, as in an evaluation, is the matter of DDP401
        trained = any(node.number in n.target.deps for n in program.of("backward") if n.target is not None)
        return trained and node.detail.get("through") == "wrapper" and node.grad is not False
    if node.kind == "backward":
        return bool(forwards_behind(program, node))
    return node.kind == "step" and any(n.number < node.number and forwards_behind(program, n) for n in program.of("backward"))


def _ends_quietly(jump: Node) -> bool:
    """Whether an exit reports success, so that the launcher lets the other ranks wait."""
    code = jump.detail.get("code")
    return code is None or (isinstance(code, Const) and code.value in (0, None))


def _what(node: Node) -> str:
    place = f"line {node.span.line}"
    if node.kind == "collective":
        return f"the {node.detail.get('op', 'collective')} of {place}"
    return {"forward": "the wrapped forward", "backward": "the backward", "step": "the optimizer step"}[node.kind] + f" of {place}"


def _confidence(skip: _Skip) -> str:
    shape = any(word in skip.guard.text for word in (".size(", ".shape", "len(", "numel("))
    if shape or not skip.taint & {RANK, DATA, CLOCK}:
        return "possible"
    return "likely"
