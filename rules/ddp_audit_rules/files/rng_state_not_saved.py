"""DDP704: a checkpoint to resume from holds neither random state nor the position in the data."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, Draw, Init, Load, Node, Program, Save, SetEpoch, Wrap
from ddp_audit.tree.questions import calls_of, calls_of_kind, first_of_each_place, names_in, says, seeds_of


class RngStateNotSaved(Rule):
    code = "DDP704"
    name = "rng-state-not-saved"
    level = "info"
    summary = (
        "A checkpoint with model and optimizer, in a script that also loads one to go on, whose keys hold no random state, no "
        "state of a sampler or loader, and no epoch from which a sampler could find its place."
    )
    rationale = (
        "A resumed run starts its random streams again from the seed: it draws the data of the first steps once more (or "
        "an order that it never had), repeats its dropout masks, and never gets to what the unbroken run would have seen. "
        "Results differ from those of an unbroken run, more so the more often a job is stopped."
    )
    exceptions = (
        "Checkpoints with a key for random, sampler or loader state; an epoch in the checkpoint together with set_epoch; "
        "scripts that save random state to another file; weights without optimizer; scripts that never load a checkpoint; "
        "checkpoints whose keys are not known."
    )
    trace_evidence = "Nothing that one trace holds: it takes the traces of an unbroken and of a resumed run."
    source = (
        "torch 2.13, torch.get_rng_state; utils/data/distributed.py: DistributedSampler's order is a function of seed and epoch."
    )
    fix_hint = (
        "save `torch.get_rng_state()` of each rank (and numpy's, Python's and CUDA's where they are used) and the "
        "position in the data, and restore them after the model"
    )
    outcome = "shows the same batches again: True"
    bad = '''"""Fits a line to random batches, stops half way, and goes on from the checkpoint: the same batches come again."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def run(path):
    """Two steps from where the checkpoint is; what was drawn for them."""
    torch.manual_seed(1 + dist.get_rank())
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    start = 0
    if path.exists():
        checkpoint = torch.load(path, weights_only=True)
        net.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["step"]
    model = DDP(net)
    drawn = []
    for step in range(start, start + 2):
        x = torch.randn(8, 4)
        drawn.append(x.tolist())
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": start + 2}
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(checkpoint, path)
    dist.barrier()
    return drawn


dist.init_process_group("gloo")
try:
    path = Path(os.environ.get("CASE_FOLDER", ".")) / "line.pt"
    print("the same batches again:", run(path) == run(path), flush=True)
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace("the same batches come again", "the batches go on, too")
        .replace(
            "    model = DDP(net)\n",
            '    model = DDP(net)\n    if start:\n        torch.set_rng_state(checkpoint["rng"][dist.get_rank()])\n',
        )
        .replace(
            "    checkpoint = {",
            "    states = [None] * dist.get_world_size()\n"
            "    dist.all_gather_object(states, torch.get_rng_state())\n"
            "    checkpoint = {",
        )
        .replace('"step": start + 2}', '"step": start + 2, "rng": states}')
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.has(Backward) or not program.has(Init, Wrap):
            return
        loads = _resumes(program)
        if not loads or calls_of_kind(program, "reads-random-state"):
            return
        for node in first_of_each_place(program.of(Save)):
            if _lacks_state(program, node):
                yield self._finding(program, node, loads)

    def _finding(self, program: Program, node: Save, loads: list[Node]) -> Finding:
        keys = ", ".join(node.content or ())
        message = (
            "The checkpoint holds no random or sampler state: a run that resumes from it draws the same data again from the start."
        )
        seeds = [n for n in seeds_of(program, "torch") if n.number < node.number]
        draws = [n for n in program.of(Draw) if not n.rank_guards]
        related = [Related(n.span.path, n.span.line, "load", "resumes from it") for n in first_of_each_place(loads)[:1]]
        related += [Related(n.span.path, n.span.line, "seed", "starts the stream of each process again") for n in seeds[:1]]
        related += [Related(n.span.path, n.span.line, "draw", "draws the training data") for n in draws[:1]]
        explanation = f"The checkpoint holds {keys}. " + (
            "Weights and optimizer go on where they were; the order of the data and everything else that is drawn does not. It "
            "matters where runs must be repeatable, and where a job is stopped so often that the first part of the stream is "
            "seen far more than the rest."
        )
        return self.finding(node.span, message, explanation, related=related + guard_relations(node))


def _resumes(program: Program) -> list[Node]:
    """Loads of a checkpoint in a script that restores an optimizer."""
    restores = any(_of_optimizer(call.node) for call in calls_of(program, "load_state_dict"))
    return list(program.of(Load)) if restores else []


def _of_optimizer(call: ast.Call) -> bool:
    """Whether a method is called on something that is named as an optimizer."""
    return isinstance(call.func, ast.Attribute) and any(says(name, "optimizer-state") for name in names_in(call.func.value))


def _lacks_state(program: Program, save: Save) -> bool:
    """Whether a save is a checkpoint to resume from without random state or position."""
    keys = save.content

    def holds(meaning: str) -> bool:
        return any(says(key, meaning) for key in keys or ())

    whole = holds("optimizer-state") and holds("model-state")
    return whole and not holds("random-state") and not (program.has(SetEpoch) and holds("epoch"))
