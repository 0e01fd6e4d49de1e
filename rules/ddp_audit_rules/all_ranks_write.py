"""DDP701: several ranks write, make or remove one path."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAVE
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import CLOCK, DATA, ERROR, FILES, RANDOM, RANK, Const
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._always import always_runs
from ddp_audit_rules._writers import (
    ONE_A_NODE,
    SEVERAL,
    contents,
    defaults_that_decide,
    in_turn,
    is_called,
    is_checked,
    is_distributed,
    is_of_each_rank,
    path_of,
    plain,
    who,
)

_WRITES = ("write", "append", "mkdir", "remove", "move")
_DIFFERS = {RANK, DATA, RANDOM, CLOCK}


class AllRanksWrite(Rule):
    code = "DDP701"
    name = "all-ranks-write"
    level = "error"
    what = (
        "A save, an open for writing, a mkdir without exist_ok, a remove or a rename of one path that more than one rank "
        "of the job gets to."
    )
    why = (
        "The ranks do it at the same time. A file that two of them write holds what the last one wrote, or pieces of both, and a "
        "reader that comes in between finds half of it; a folder can be made once and a file removed once, so all ranks but one "
        "end with an exception and leave the others in their next collective."
    )
    quiet = (
        "Places that one rank reaches (guards here, in the caller, in the callee, by decorator); paths with the rank, the process "
        "or a random name in them; mkdir with exist_ok=True, removal with ignore_errors or missing_ok, and calls inside of try; "
        "text files whose content is the same on all ranks. A guard on the local rank leaves one writer a node, which is right "
        "where each node has a disk of its own, so it is only possible. The process that spawns the others is one."
    )
    confirmed = "Two ranks save to the same path at this place."
    source = "torch 2.13, torch/serialization.py: save opens the path for writing and truncates it; it takes no lock."
    outcome = "shows finds the state of rank"
    remedy = "let rank 0 write (`if dist.get_rank() == 0:`), make folders with exist_ok=True, and put a barrier before others read"
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
        if not is_distributed(program):
            return
        ways: dict[Span, list[Node]] = {}
        for node in program.of("save", "file"):
            path = path_of(node)
            if path is None or node.detail.get("what", "write") not in _WRITES or node.detail.get("safe"):
                continue
            if not is_of_each_rank(path) and not path.taint & {CLOCK, RANDOM, DATA}:
                ways.setdefault(node.span, []).append(node)
        for nodes in ways.values():
            found = self._judged(program, nodes)
            if found is not None:
                yield found

    def _judged(self, program: Program, nodes: list[Node]) -> Finding | None:
        """What the way to a place that lets most ranks through comes to."""
        answers = {who(program, node): node for node in reversed(nodes)}
        many = next((answer for answer in (SEVERAL, ONE_A_NODE) if answer in answers), "")
        node = answers.get(many)
        fault = None if node is None else _fault(program, node)
        if node is None or fault is None or (is_checked(node) and in_turn(program, node)):
            return None
        severity, sure, does, then = fault
        path = path_of(node)
        assert path is not None
        whose = "Every rank" if many == SEVERAL else "One rank of each node"
        assumed = defaults_that_decide(node)
        condition = f"With {' and '.join(assumed)}, " if assumed else ""
        whose = whose.lower() if condition else whose
        message = f"{condition}{whose} {does} {plain(path)} here at the same time, so {then}."
        explanation = "Nothing on the way to this place asks for the rank."
        if many == ONE_A_NODE:
            explanation = "The guard asks for the local rank. It is right where every node has a disk of its own."
        elif node.rank_guards or assumed:
            explanation = "The conditions on the way to this place let more than one rank through."
        explanation += " It does no harm where only one process runs this script, or where the path is another one on each rank."
        maker = next(program.of("init", "wrap"))
        related = [Related(maker.span.path, maker.span.line, maker.kind, "makes it a job of several ranks")]
        confidence = "likely" if many == SEVERAL and sure and is_called(node) else "possible"
        return self.finding(
            node.span, message, explanation, related=guard_relations(node) + related, confidence=confidence,
            severity="warning" if assumed else severity, guards=node.guards, fix=_fix(program, node, many),
        )  # fmt: skip

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by two ranks that save to one path here; what is written without torch.save is not recorded."""
        span = finding.span
        saves = [(rank, e) for rank, e in run.events_at(span.path, span.line, span.end_line) if e.kind == SAVE]
        by_path: dict[str, set[int]] = {}
        for rank, event in saves:
            by_path.setdefault(str(event.detail.get("path")), set()).add(rank)
        if any(len(ranks) > 1 for ranks in by_path.values()):
            return "confirmed"
        return "not-observed" if saves else "not-covered"


def _fix(program: Program, node: Node, many: str) -> Fix | None:
    """A folder that may exist, or a save by one rank, where the process group surely exists by then."""
    if node.kind == "file" and node.detail.get("what") == "mkdir":
        return Fix("safe" if is_checked(node) else "unsafe", "pass exist_ok=True", "exist-ok")
    first = next(program.of("init"), None)
    made = first is not None and first.number < node.number and always_runs(program, first)
    if node.kind != "save" or many != SEVERAL or not made or program.frameworks:
        return None
    return Fix("unsafe", "let rank 0 write (`if dist.get_rank() == 0:`), and put a barrier before others read", "one-rank")


def _fault(program: Program, node: Node) -> tuple[str, bool, str, str] | None:
    """Severity, whether it is sure, what each rank does and what comes of it; None where it does no harm."""
    what = node.detail.get("what", "save") if node.kind == "file" else "save"
    checked = is_checked(node)
    match what:
        case "save":
            severity = "warning" if checked else "error"
            return severity, True, "saves to", "the file holds what the last of them wrote, or pieces of several"
        case "mkdir" if not node.tries:
            if checked:
                return "warning", True, "looks for and makes", "those that look too early end with FileExistsError"
            return "error", True, "makes the folder", "all but one end with FileExistsError"
        case "remove" | "move" if not node.tries and not _after_trouble(node):
            verb = "removes" if what == "remove" else "moves"
            if checked:
                return "warning", True, f"looks for and {verb}", "those that look before it is gone end with FileNotFoundError"
            return "error", True, verb, "all but one end with FileNotFoundError"
        case "write" | "append":
            written = contents(program, node)
            differs = any(content.taint & _DIFFERS for content in written)
            if what == "append":
                if not written or any(RANK in content.taint for content in written):
                    return None  # nothing, or lines that say who wrote them
                return "warning", differs, "appends to", "the file holds every line once for each rank, in any order"
            if not written:
                return "warning", False, "empties", "what another rank has written there is lost"
            known = all(isinstance(content, Const) for content in written)
            return None if known else ("error", differs, "writes", "the file holds what one of them wrote, or pieces of several")
    return None


def _after_trouble(node: Node) -> bool:
    """Whether a file is removed because an exception was caught or because it is not whole, which need not happen on two ranks."""
    return any(ERROR in guard.taint for guard in node.guards) or sum(FILES in guard.taint for guard in node.guards) > 1
