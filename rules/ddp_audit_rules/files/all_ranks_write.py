"""DDP701: several ranks write, make or remove one path."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAVE, START, STEP
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import FileAccess, FileTouch, Init, Prepare, Program, Save, Wrap
from ddp_audit.tree.values import CLOCK, DATA, RANDOM
from ddp_audit_rules.facts.evidence import is_at
from ddp_audit_rules.facts.writers import (
    ONE_A_NODE,
    SEVERAL,
    defaults_that_decide,
    in_turn,
    is_checked,
    is_job,
    is_of_each_rank,
    path_of,
    plain,
    refuses_several,
    who,
)
from ddp_audit_rules.files._write_faults import fault_of, fix_of, made_before

_WRITES = ("save", "output", "write", "append", "mkdir", "remove", "move")


class AllRanksWrite(Rule):
    code = "DDP701"
    name = "all-ranks-write"
    level = "error"
    summary = (
        "A save, an open for writing, a mkdir without exist_ok, a remove or a rename of one path that more than one rank "
        "of the job gets to."
    )
    rationale = (
        "The ranks do it at the same time. A file that two of them write holds what the last one wrote, or pieces of both, and a "
        "reader that comes in between finds half of it; a folder can be made once and a file removed once, so all ranks but one "
        "end with an exception and leave the others in their next collective."
    )
    exceptions = (
        "Places that one rank reaches (guards here, in the caller, in the callee, by decorator); paths with the rank, the process "
        "or a random name in them; mkdir with exist_ok=True, or of a folder that each process made so before; "
        "removal with ignore_errors or missing_ok, and calls inside of try; "
        "files, of text or bytes, that all ranks open and fill with the same constant. Where what they put into an opened file is "
        "computed, and nothing in it is seen to come of the rank, its data, the clock or chance, it is only possible. "
        "A guard on the local rank leaves one writer a node, which is right "
        "where each node has a disk of its own, so it is only possible. The process that spawns the others is one. "
        "Scripts that refuse at their start to run as several: `assert not args.distributed`."
    )
    trace_evidence = "Two ranks of one host save to the same path at this place, at the same step."
    source = "torch 2.13, torch/serialization.py: save opens the path for writing and truncates it; it takes no lock."
    outcome = "shows finds the state of rank"
    fix_hint = (
        "let rank 0 write (`if dist.get_rank() == 0:`), make folders with exist_ok=True, and put a barrier before others read"
    )
    bad = '''"""Every rank saves its own state to one path; what the slower rank wrote is what both find again."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "last.pt")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    x = torch.randn(8, 4)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
time.sleep(0.2 * rank)  # no two ranks are equally fast
torch.save({"model": model.module.state_dict(), "random": torch.get_rng_state(), "of": rank}, path)
dist.barrier()
found = torch.load(path, weights_only=True)["of"]
if found != rank:
    print(f"rank {rank} finds the state of rank {found}", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("to one path; what the slower rank wrote is what both find again", "to a path of its own").replace(
        '"last.pt")', 'f"last-{rank}.pt")'
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_job(program):
            return
        ways: dict[Span, list[FileTouch]] = {}
        for node in program.of(Save, FileAccess):
            path = path_of(node)
            if path is None or node.touch not in _WRITES or (isinstance(node, FileAccess) and node.safe):
                continue
            if not is_of_each_rank(path) and not path.taint & {CLOCK, RANDOM, DATA}:
                ways.setdefault(node.span, []).append(node)
        for nodes in ways.values():
            found = self._judged(program, nodes)
            if found is not None:
                yield found

    def _judged(self, program: Program, nodes: list[FileTouch]) -> Finding | None:
        """What the way to a place that lets most ranks through comes to."""
        answers = {who(program, node): node for node in reversed(nodes)}
        many = next((answer for answer in (SEVERAL, ONE_A_NODE) if answer in answers), "")
        node = answers.get(many)
        fault = None if node is None else fault_of(program, node)
        if (
            node is None
            or fault is None
            or refuses_several(program, node)
            or (is_checked(node) and (in_turn(program, node) or made_before(program, node)))
        ):
            return None
        path = path_of(node)
        assert path is not None
        whose = "Every rank" if many == SEVERAL else "One rank of each node"
        assumed = defaults_that_decide(node)
        condition = f"With {' and '.join(assumed)}, " if assumed else ""
        whose = whose.lower() if condition else whose
        message = f"{condition}{whose} {fault.does} {plain(path)} here at the same time, so {fault.then}."
        explanation = "Nothing on the way to this place asks for the rank."
        if many == ONE_A_NODE:
            explanation = "The guard asks for the local rank. It is right where every node has a disk of its own."
        elif node.rank_guards or assumed:
            explanation = "The conditions on the way to this place let more than one rank through."
        explanation += " It does no harm where only one process runs this script, or where the path is another one on each rank."
        maker = next(program.of(Init, Wrap, Prepare))
        related = [Related(maker.span.path, maker.span.line, maker.kind, "makes it a job of several ranks")]
        confidence = "likely" if many == SEVERAL and fault.sure and node.is_called else "possible"
        return self.finding(
            node.span, message, explanation, related=guard_relations(node) + related, confidence=confidence,
            severity="warning" if assumed else fault.severity, guards=node.guards, fix=fix_of(program, node, many),
        )  # fmt: skip

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by two ranks of one host that save to one path at the same step; other ways to write are not recorded."""
        span = finding.span
        hosts = {rank: event.detail.get("host") for rank, event in run.events_of(START)}
        writers: dict[tuple[object, ...], set[int]] = {}
        for rank, one in run.ranks.items():
            steps = 0
            for event in one.events:
                steps += event.kind == STEP
                if event.kind == SAVE and is_at(event, span):
                    writers.setdefault((hosts.get(rank), event.detail.get("path"), steps), set()).add(rank)
        if any(len(ranks) > 1 for ranks in writers.values()):
            return "confirmed"
        return "not-observed" if len({rank for ranks in writers.values() for rank in ranks}) > 1 else "not-exercised"
