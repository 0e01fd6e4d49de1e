"""DDP604: the process group is never destroyed, or only where nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RAISED, RecordedRun
from ddp_audit.compare.termination import exited_in_order
from ddp_audit.events import GROUP
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Destroy, Init, Node, Program
from ddp_audit.tree.questions import arms_around, with_its_condition
from ddp_audit_rules.devices._cuda import surely_gloo
from ddp_audit_rules.devices._group_places import (
    added_end,
    end_beside_init,
    init_beside_end,
    init_in_entry,
    init_line_in,
    written_destroys,
)

_NORMAL_PATH = "on the normal path only"


class ProcessGroupNotDestroyed(Rule):
    code = "DDP604"
    name = "process-group-not-destroyed"
    level = "info"
    summary = (
        "A script that calls init_process_group and never destroy_process_group, or calls it on the normal path only, so "
        "that an exception leaves the group open."
    )
    rationale = (
        "With NCCL, communicators that are not destroyed are torn down in whatever order the interpreter ends: a warning at best, "
        "sometimes a hang or an abort that hides the error before it. After an exception on one rank, an open group also keeps the "
        "others waiting until that process is gone. torchrun ends the other workers when one fails, which makes this a note."
    )
    exceptions = (
        "destroy_process_group in a finally block, in a context manager or with atexit; frameworks that tear down themselves; "
        "scripts in which init_process_group is not seen. It is only possible on gloo, in a script that does not train and "
        "destroys the group on its normal path, and where a destroy stands in the files read and was not reached."
    )
    trace_evidence = (
        "A rank made a process group, and left it open: in order, or by an exception where that is what the finding says."
    )
    source = (
        "torch 2.13, distributed/distributed_c10d.py: destroy_process_group shuts the communicators down; "
        "ProcessGroupNCCL warns at exit where it was not called. With gloo nothing is seen from outside."
    )
    fix_hint = "put the work after init_process_group into `try:` and call destroy_process_group in `finally:`"
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
    dist.init_process_group()
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
        if program.frameworks.tears_down_group:
            return
        inits = [n for n in program.of(Init) if n.is_called]
        if not inits:
            return
        destroys = list(program.of(Destroy))
        reached = [n for n in destroys if n.is_called]
        if any(n.in_finally for n in destroys):
            return
        finding = self._left_open(program, inits, destroys, reached)
        if finding is None:
            return
        if surely_gloo(program) or (reached and not program.has(Backward)):
            finding.confidence = "possible"  # of gloo nothing is seen from outside, and short work seldom fails on one rank alone
        yield finding

    def _left_open(self, program: Program, inits: list[Init], destroys: list[Destroy], reached: list[Destroy]) -> Finding | None:
        written = [span for span in written_destroys(program) if span.path == program.entry]
        if reached:
            return self._normal_path(program, inits[0], end_beside_init(inits[0], reached[0]), init_beside_end(inits, reached))
        if written and not destroys:  # beyond what was followed
            if any(arm.part == "finalbody" for arm in arms_around(program, written[0].path, written[0].line)):
                return None
            return self._normal_path(program, inits[0], written[0])
        return self._missing(program, inits[0], destroys)

    def _normal_path(self, program: Program, init: Node, place: Span, start: Span | None = None) -> Finding:
        message = (
            f"The process group is destroyed {_NORMAL_PATH}: an exception between line "
            f"{init_line_in(init, place.path)} and here ends the process with the group open."
        )
        explanation = (
            "A rank that fails leaves its communicators to the end of the interpreter; with NCCL that can warn, hang or abort and "
            "hide the exception. With gloo, and under torchrun, which ends the other workers, it mostly goes unnoticed."
        )
        related = [Related(init.span.path, init.span.line, "init", "the process group is made here")]
        fix = Fix("unsafe", self.fix_hint, f"moved {start.line}") if start is not None and start.path == place.path else None
        return self.finding(with_its_condition(program, place), message, explanation, related=related, fix=fix)

    def _missing(self, program: Program, init: Init, unreached: list[Destroy]) -> Finding:
        elsewhere = [span.place for span in written_destroys(program)]
        message = "The process group that is made here is never destroyed in this script or the files that it imports."
        confidence = "likely"
        if unreached or elsewhere:
            place = unreached[0].place if unreached else elsewhere[0]
            message = f"The process group that is made here is not destroyed on any path that was seen; {place} is not called."
            confidence = "possible"
        explanation = (
            "Its communicators are left to the end of the interpreter. NCCL warns of that at exit; gloo does not, and a "
            "run that ends in order loses nothing."
        )
        related = [Related(c.path, c.line, "call", "called here") for c in init.calls]
        span = init_in_entry(program, init)
        if span is not init.span:
            related = [Related(init.span.path, init.span.line, "init", "the process group is made here")]
        detail = added_end(program, init, span.path) if confidence == "likely" else ""
        fix = Fix("unsafe", self.fix_hint, detail) if detail else None
        return self.finding(span, message, explanation, related=related, confidence=confidence, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank with a group left as the finding says, in order or by an exception, and destroyed none."""
        verdict = "not-exercised"
        for one in run.ranks.values():
            actions = {event.detail.get("action") for event in one.events if event.kind == GROUP}
            # A rank that an exception ended may not have come to the line that destroys the group.
            left = one.state == RAISED if _NORMAL_PATH in finding.message else exited_in_order(one)
            if not actions & {"init", "seen", "new"} or not left:
                continue
            if "destroy" not in actions:
                return "confirmed"
            verdict = "not-observed"
        return verdict
