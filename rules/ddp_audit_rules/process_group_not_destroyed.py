"""DDP604: the process group is never destroyed, or only where nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import EXITED, RAISED, RecordedRun
from ddp_audit.events import GROUP
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.program.loading import lines_with
from ddp_audit.program.model import Node, Program
from ddp_audit.program.source import headers_around, with_its_condition
from ddp_audit.rule import Context, Rule
from ddp_audit_rules._always import always_runs

_TEAR_DOWN = frozenset({"accelerate", "lightning", "deepspeed", "composer", "colossalai", "horovod"})


class ProcessGroupNotDestroyed(Rule):
    code = "DDP604"
    name = "process-group-not-destroyed"
    level = "info"
    what = (
        "A script that calls init_process_group and never destroy_process_group, or calls it on the normal path only, so "
        "that an exception leaves the group open."
    )
    why = (
        "With NCCL, communicators that are not destroyed are torn down in whatever order the interpreter ends: a warning at best, "
        "sometimes a hang or an abort that hides the error before it. After an exception on one rank, an open group also keeps the "
        "others waiting until that process is gone. torchrun ends the other workers when one fails, which makes this a note."
    )
    quiet = (
        "destroy_process_group in a finally block, in a context manager or with atexit; frameworks that tear down themselves; "
        "scripts in which init_process_group is not seen; a destroy that stands in the files read but was not reached (possible)."
    )
    confirmed = "A rank made a process group, and ended in order or by an exception without destroying it."
    source = (
        "torch 2.13, distributed/distributed_c10d.py: destroy_process_group shuts the communicators down; "
        "ProcessGroupNCCL warns at exit where it was not called. With gloo nothing is seen from outside."
    )
    remedy = "put the work after init_process_group into `try:` and call destroy_process_group in `finally:`"
    outcome = "clean"
    bad = '''"""Trains a line. An argument makes one rank fail, and then the process group stays open."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train():
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(8, 4)
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if "--fail" in sys.argv:
        raise RuntimeError("something went wrong")


def main():
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()


main()
'''
    good = (
        bad.replace("and then the process group stays open", "and the process group is destroyed all the same")
        .replace("    train()\n    dist", "    try:\n        train()\n    finally:\n        dist")
    )  # fmt: skip

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks & _TEAR_DOWN:
            return
        inits = [n for n in program.of("init") if n.calls or n.function == "<module>"]
        if not inits:
            return
        destroys = list(program.of("destroy"))
        reached = [n for n in destroys if n.calls or n.function == "<module>"]
        if any(n.detail.get("finally") for n in destroys):
            return
        written = [span for span in _written(program) if span.path == program.entry]
        if reached:
            yield self._normal_path(program, inits[0], _from_the_init(inits[0], reached[0]), _together(inits, reached))
        elif written and not destroys:  # beyond what was followed
            if not any(text.startswith("finally") for text in headers_around(program, written[0].path, written[0].line)):
                yield self._normal_path(program, inits[0], written[0])
        else:
            yield self._missing(program, inits[0], destroys)

    def _normal_path(self, program: Program, init: Node, place: Span, start: Span | None = None) -> Finding:
        message = (
            "The process group is destroyed on the normal path only: an exception between line "
            f"{_line_in(init, place.path)} and here ends the process with the group open."
        )
        explanation = (
            "A rank that fails leaves its communicators to the end of the interpreter; with NCCL that can warn, hang or abort and "
            "hide the exception. With gloo, and under torchrun, which ends the other workers, it mostly goes unnoticed."
        )
        related = [Related(init.span.path, init.span.line, "init", "the process group is made here")]
        fix = Fix("unsafe", self.remedy, f"moved {start.line}") if start is not None and start.path == place.path else None
        return self.finding(with_its_condition(program, place), message, explanation, related=related, fix=fix)

    def _missing(self, program: Program, init: Node, unreached: list[Node]) -> Finding:
        elsewhere = [(span.path, span.line) for span in _written(program)]
        message = "The process group that is made here is never destroyed in this script or the files that it imports."
        confidence = "likely"
        if unreached or elsewhere:
            place = f"{unreached[0].span.path}:{unreached[0].span.line}" if unreached else "{}:{}".format(*elsewhere[0])
            message = f"The process group that is made here is not destroyed on any path that was seen; {place} is not called."
            confidence = "possible"
        explanation = (
            "Its communicators are left to the end of the interpreter. NCCL warns of that at exit; gloo does not, and a "
            "run that ends in order loses nothing."
        )
        related = [Related(c.path, c.line, "call", "the call that leads here") for c in init.calls]
        span = _place_in_entry(program, init)
        if span is not init.span:
            related = [Related(init.span.path, init.span.line, "init", "the process group is made here")]
        start = _where_the_work_begins(program, init)
        sure = confidence == "likely" and start is not None and start.path == span.path
        fix = None
        if sure and start is not None:
            how = "added" if always_runs(program, init) else "added-if-made"
            above = _caller(program, init, start)
            fix = Fix("unsafe", self.remedy, f"{how} {start.line} {above.line if above is not None else 0}")
        return self.finding(span, message, explanation, related=related, confidence=confidence, fix=fix)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank with a group ended, in order or by an exception, and destroyed none."""
        verdict = "not-covered"
        for rank in run.ranks.values():
            actions = {event.detail.get("action") for event in rank.events if event.kind == GROUP}
            if not actions & {"init", "seen", "new"} or rank.state not in (EXITED, RAISED):
                continue
            if "destroy" not in actions:
                return "confirmed"
            verdict = "not-observed"
        return verdict


def _together(inits: list[Node], destroys: list[Node]) -> Span | None:
    """Where the group is made, in the function in which it is destroyed: the call itself or one that leads to it."""
    init, destroy = inits[0], destroys[0]
    if len({n.span for n in inits}) != 1 or len({n.span for n in destroys}) != 1:
        return None
    shared = _shared(init.calls, destroy.calls)
    return init.calls[shared] if shared < len(init.calls) else init.span


def _where_the_work_begins(program: Program, init: Node) -> Span | None:
    """The call that makes the group or leads to it, in the innermost function that goes on to train; None without training."""
    work = [n for n in program.of("wrap", "forward", "backward", "step") if n.number > init.number]
    if not work or sum(1 for n in program.of("init")) != 1:
        return None
    shared = min(_shared(init.calls, node.calls) for node in work)
    return init.calls[shared] if shared < len(init.calls) else init.span


def _caller(program: Program, init: Node, start: Span) -> Span | None:
    """The call of the function in which the work begins, where this process makes it itself and it stands in the same file."""
    spawns = {node.span for node in program.of("spawn")}
    level = init.calls.index(start) if start in init.calls else len(init.calls)
    above = init.calls[level - 1] if level else None
    return above if above is not None and above.path == start.path and above not in spawns else None


def _shared(one: tuple[Span, ...], other: tuple[Span, ...]) -> int:
    """The number of calls with which both ways begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _written(program: Program) -> list[Span]:
    """Each line of the files read that calls destroy_process_group, whether it was reached or not."""
    return [
        Span(path, line, len(code) - len(code.lstrip()) + 1, line, len(code.rstrip()) + 1)
        for path, line, code in lines_with(program, r"destroy_process_group\s*\(")
    ]


def _from_the_init(init: Node, destroy: Node) -> Span:
    """The destroy call, or the call of the helper that holds it, in the function that the process group was made in or above it."""
    return next((call for call in destroy.calls if call not in init.calls), destroy.span)


def _place_in_entry(program: Program, init: Node) -> Span:
    """The call itself, or the call in the entry script that leads to it: that script is what lacks the other end."""
    if init.span.path == program.entry:
        return init.span
    return next((call for call in reversed(init.calls) if call.path == program.entry), init.span)


def _line_in(init: Node, path: str) -> int:
    """The line in a file where the process group is made, or where the call that makes it stands."""
    if init.span.path == path:
        return init.span.line
    return next((call.line for call in reversed(init.calls) if call.path == path), init.span.line)
