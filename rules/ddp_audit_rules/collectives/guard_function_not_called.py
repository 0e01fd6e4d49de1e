"""DDP212: a rank function is tested as an object, so that the condition says the same on every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import START
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import (
    Backward,
    Collective,
    Destroy,
    Forward,
    GuardFunction,
    Init,
    Jump,
    NewGroup,
    PointToPoint,
    Program,
    Step,
    UnfollowedCall,
    Wrap,
)
from ddp_audit.tree.questions import calls_of, first_of_each_place, says
from ddp_audit.tree.values import Func, options

_WAITED_FOR = (Collective, NewGroup, Init, Destroy, Wrap, Forward, Backward, Step, PointToPoint, Jump, UnfollowedCall)
_BLOCK = "guarded"  # role of the first and last line of the block that the condition guards


class GuardFunctionNotCalled(Rule):
    code = "DDP212"
    name = "guard-function-not-called"
    level = "error"
    summary = (
        "A rank predicate that is tested as a function object (`if is_main_process:`), or a rank getter that is compared with a "
        "number without a call (`dist.get_rank == 0`)."
    )
    rationale = (
        "A function object is true and equals no number, so the condition has one answer on all ranks: every rank enters the "
        "block that was meant for one (all write the same file, all log), or no rank does."
    )
    exceptions = (
        "Variables, parameters, attributes and properties of that name that hold the answer, functions that are called, and "
        "names whose definition was not found."
    )
    trace_evidence = "Two ranks or more of a host were seen in the guarded block."
    source = "Python's truth value of functions; seen in runs on two ranks: both wrote the file that rank 0 alone was to write."
    fix_hint = "call the function: `if is_main_process():`"
    outcome = "shows rank 1 writes the checkpoint"
    bad = '''"""Rank 0 alone is to write the checkpoint, but the function that says so is not called."""

import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def is_main_process():
    return dist.get_rank() == 0


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if is_main_process:
    print(f"rank {rank} writes the checkpoint", flush=True)
    with tempfile.TemporaryFile() as file:
        torch.save(model.module.state_dict(), file)
dist.destroy_process_group()
'''
    good = bad.replace("if is_main_process:", "if is_main_process():").replace(
        "Rank 0 alone is to write the checkpoint, but the function that says so is not called", "Rank 0 alone writes"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        for node in first_of_each_place(context.program.of(GuardFunction)):
            yield self._finding(node, context.program)

    def _finding(self, node: GuardFunction, program: Program) -> Finding:
        name, enters, body = node.name, node.enters, node.body
        compared = "get_" in name
        fact = "never equals a number" if compared else "is always true"
        result = "every rank enters the block that was meant for some" if enters else "no rank enters the block behind it"
        if not body:
            result = "the condition says the same on every rank"
        message = f"`{node.text}` is not called here; as a function object it {fact}, so {result}."
        explanation = (
            f"Only the call `{node.text}()` asks for the rank. It does no harm where `{node.text}` holds the answer and not the "
            "function when this line runs."
        )
        lines = dict.fromkeys([(body[0].path, body[0].line), (body[-1].path, body[-1].end_line)] if body else [])
        related = [Related(path, line, _BLOCK, program.line(path, line)) for path, line in lines]
        for option in options(node.target) if node.target is not None else ():
            if isinstance(option, Func):
                place = option.definition.frame.source.span(option.definition.node)
                related.append(Related(place.path, place.line, "definition", f"{name} is a function"))
        confidence, fix = _confidence(node, program), _call(node, program)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where more than one rank of a host was seen in the block."""
        block = [r for r in finding.related if r.role == _BLOCK]
        inside = run.ranks_at(block[0].path, block[0].line, block[-1].line) if block else set()
        if not inside:
            return "not-exercised"
        if "no rank enters" in finding.message:
            return "not-observed"
        hosts = [event.detail.get("host") for rank, event in run.events_of(START) if rank in inside]
        each_alone = len(hosts) == len(set(hosts)) == len(inside)  # one a node may be what is meant
        return "confirmed" if len(inside) > 1 and not each_alone else "not-observed"


def _call(node: GuardFunction, program: Program) -> Fix | None:
    """The call, where the function takes no arguments; safe where its definition was read and nobody waits for the others."""
    found = list(options(node.target)) if node.target is not None else []
    functions = [option for option in found if isinstance(option, Func)]
    if any(_wants_arguments(option.definition.node, option.receiver is not None) for option in functions):
        return None
    known = len(functions) == len(found) or all(getattr(o, "name", "").startswith("torch.distributed.") for o in found)
    sure = bool(found) and known and not _is_waited_for(node, program)
    return Fix("safe" if sure else "unsafe", f"call the function: `{node.text}()`", title=f"call the function: `{node.text}()`")


def _wants_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, bound: bool) -> bool:
    arguments = function.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults) - bound
    return required > 0 or None in arguments.kw_defaults or isinstance(function, ast.AsyncFunctionDef)


def _is_waited_for(node: GuardFunction, program: Program) -> bool:
    """Whether a collective, or a way out, stands in the guarded block or in what that calls; also where the block is not known."""
    body = node.body
    if not body:
        return True
    return any(
        place.path == body[0].path and body[0].line <= place.line <= body[-1].end_line
        for other in program.of(*_WAITED_FOR)
        for place in (other.span, *other.calls)
        if not isinstance(other, UnfollowedCall) or not says(other.called, "report")
    )


def _confidence(node: GuardFunction, program: Program) -> str:
    """Certain of a function whose definition was read; of a library's only where it is torch's, or called elsewhere."""
    found = list(options(node.target)) if node.target is not None else []
    if found and all(isinstance(option, Func) for option in found):
        return "certain"
    known = any(getattr(option, "name", "").startswith("torch.distributed.") for option in found)
    return "likely" if known or calls_of(program, node.name) else "possible"
