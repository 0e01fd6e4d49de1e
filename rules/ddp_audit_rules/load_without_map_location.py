"""DDP603: every rank loads a checkpoint onto the device that it was saved from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.model import Guard, Node, Program, first_of_each_place
from ddp_audit.program.values import Const, Unknown, defaults_in
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._cuda import may_use_nccl
from ddp_audit_rules._writers import SEVERAL, is_called, is_distributed, who


class LoadWithoutMapLocation(Rule):
    code = "DDP603"
    name = "load-without-map-location"
    level = "warning"
    what = (
        "torch.load without map_location, on several ranks of a job that uses CUDA, of a checkpoint that this script saves from "
        "the device of one rank."
    )
    why = (
        "A file remembers the device of each tensor, and torch.load puts it there again. What rank 0 saved is tagged cuda:0, so "
        "every rank of a node holds a copy of the checkpoint on the device of rank 0, which has room for its own and not for "
        "eight; and every other rank opens a context there. On a machine with fewer devices the load fails."
    )
    quiet = (
        "A map_location of any kind; loads by one rank; checkpoints that are saved from the CPU; data that is no state of a model "
        "or optimizer; jobs on gloo alone. Where the script does not save the checkpoint itself, where it comes from is not known, "
        "so it is only possible."
    )
    is_recorded = False  # a trace holds no memory of devices
    confirmed = "Memory of device 0 that grows with the number of ranks at the load, which a trace does not hold."
    source = (
        "torch 2.13, torch/serialization.py: storages are restored on the location in the file unless map_location says otherwise. "
        "Without an accelerator the fault cannot show itself; the example falls back to the CPU."
    )
    outcome = "clean"
    remedy = "load to the CPU (`map_location='cpu'`) or to the rank's own device, and let load_state_dict copy from there"
    bad = '''"""Goes on from a checkpoint. Each process loads it to the device that rank 0 saved it from, if any."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "last.pt")
model = torch.nn.Linear(4, 1)
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
    model = model.cuda()
model = DDP(model)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), path)
dist.barrier()
model.module.load_state_dict(torch.load(path))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4, device=next(model.parameters()).device)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
'''
    good = bad.replace("torch.load(path)", 'torch.load(path, map_location="cpu")').replace(
        "loads it to the device that rank 0 saved it from, if any", "loads it to the CPU"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_distributed(program) or not may_use_nccl(program):
            return
        saves = [node for node in program.of("save") if _has_state(node)]
        if any(_is_from_cpu(node) for node in saves):
            return
        states = _loaded_states(program)
        for node in first_of_each_place(n for n in program.of("load") if n.number in states and who(program, n) == SEVERAL):
            where = node.args.get("map_location")
            if "**" in node.args or (where is not None and not (isinstance(where, Const) and where.value is None)):
                continue
            yield self._finding(program, node, saves, states[node.number])

    def _finding(self, program: Program, node: Node, saves: list[Node], used: Node) -> Finding:
        message = (
            "Every rank restores this checkpoint on the device that it was saved from, which is that of the rank that saved it, so "
            "the copies of all ranks of a node pile up on one device."
        )
        explanation = (
            "The current device does not count: torch.load goes by what is written in the file. load_state_dict then copies to the "
            "right device, but the memory on the first was needed, and each process keeps a context there. It does no harm where "
            "the file was saved from the CPU."
        )
        related = [Related(used.span.path, used.span.line, "use", used.text), *guard_relations(node)]
        related += [Related(n.span.path, n.span.line, "save", "tags the tensors with their device") for n in saves[:1]]
        confidence = "likely" if saves and is_called(node) else "possible"
        guards, option = _unless_resumed(node, used, saves)
        if option:
            message = f"Where `{option}` names a checkpoint of this script, e{message[1:]}"
        fix = _to_cpu(program, node)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=guards, fix=fix)


def _has_state(save: Node) -> bool:
    """Whether the state of a model or optimizer is saved."""
    content = save.args.get("obj")
    return content is not None and any(operation_of(value) == "state_dict" for value in behind(content))


def _to_cpu(program: Program, node: Node) -> Fix | None:
    """The load to the CPU; none where parameters would stay there."""
    if any("assign" in use.args for use in program.of("load-state")):
        return None
    only = _load_state_dict_alone(program, node.span)
    return Fix("safe" if only else "unsafe", "load to the CPU (`map_location='cpu'`); load_state_dict copies from there")


def _load_state_dict_alone(program: Program, load: Span) -> bool:
    """Whether load_state_dict alone uses what a call at a place returns: as its argument, or by a name that nothing else uses."""
    try:
        tree = ast.parse(program.documents.get(load.path, ""))
    except SyntaxError:
        return False
    scopes = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))]
    around = [n for n in scopes if isinstance(n, ast.Module) or n.lineno <= load.line <= (n.end_lineno or n.lineno)]
    scope = max(around, key=lambda n: getattr(n, "lineno", 0))
    given = [
        a for n in ast.walk(scope) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "load_state_dict" for a in n.args
    ]
    inside = {id(part) for argument in given for part in ast.walk(argument)}
    for statement in ast.walk(scope):
        places = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.Call) and n.lineno == load.line]
        for call in places:
            if call.col_offset + 1 != load.column:
                continue
            if id(call) in inside:
                return True
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                uses = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
                is_global = isinstance(scope, ast.Module) and len(scopes) > 1
                return bool(uses) and not is_global and all(id(use) in inside for use in uses)
    return False


def _unless_resumed(node: Node, used: Node, saves: list[Node]) -> tuple[list[Guard], str]:
    """The guards of a load but for those that ask for its own path, and the option that is the path.

    The default is no path at all, and goes on from nothing. What is given instead is taken to be what the script saves where
    the part that is used of it is one that the script puts there.
    """
    part = re.search(r"""\[["'](\w+)["']\]$""", used.args["state"].text)
    options = {default.name for default in defaults_in(node.args["path"])} if "path" in node.args else set()
    if part is None or len(options) != 1 or not any(part.group(1) in (save.detail.get("content") or ()) for save in saves):
        return list(node.guards), ""
    asks = [g for g in node.guards if g.against_default and {default.name for default in defaults_in(g.test)} == options]
    return [guard for guard in node.guards if guard not in asks], options.pop() if asks else ""


def _is_from_cpu(save: Node) -> bool:
    """Whether what is saved was brought to the CPU before."""
    return ".cpu()" in save.text or any(operation_of(value) == "cpu" for value in behind(save.args["obj"]))


def _loaded_states(program: Program) -> dict[int, Node]:
    """The place where each load becomes the state of something, by the number of the load."""
    found: dict[int, Node] = {}
    for node in program.of("load-state"):
        for value in behind(node.args["state"]) if "state" in node.args else ():
            if isinstance(value, Unknown) and value.by is not None and value.by.name == "torch.load":
                number = value.by.argument("number")
                if isinstance(number, Const) and isinstance(number.value, int):
                    found.setdefault(number.value, node)
    return found
