"""DDP310: one saved random state is restored on every rank."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.faults import SEED_SHARED
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import DRAWS, FORWARD
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node, Program, RandomStateRestored
from ddp_audit.tree.questions import first_of_each_place, is_kind, one_stream, seeds_of
from ddp_audit.tree.values import RANK, Value, behind
from ddp_audit_rules.facts.evidence import has_fault, have_shared, sequences_of
from ddp_audit_rules.facts.writers import SEVERAL, is_distributed, is_of_each_rank, who


class SharedRandomState(Rule):
    code = "DDP310"
    name = "shared-random-state"
    level = "warning"
    summary = (
        "A random state that was loaded from one file and is restored on every rank (`torch.set_rng_state`, "
        "`torch.cuda.set_rng_state`, `numpy.random.set_state`, `random.setstate`), in a script whose ranks draw from streams of "
        "their own."
    )
    rationale = (
        "The file holds the state of the rank that saved it. After the resume all ranks draw the same numbers: the same noise, "
        "dropout masks, crops and augmentations. The run before did not, so the batch is less diverse from then on, and nothing "
        "fails."
    )
    exceptions = (
        "A file for each rank, or a list of the states of all ranks, from which each takes its own; ranks that are all seeded "
        "alike before, as their streams are one anyway; a seed made of the rank afterwards; a restore on one rank alone."
    )
    trace_evidence = (
        "Replicas drew the same numbers between a batch and its forward, or took equal batches, step by step. A trace has draws of "
        "torch's generator of the CPU only, and not where a state comes from."
    )
    source = "torch 2.13: set_rng_state replaces the whole state. Seen in a run with gloo: both ranks draw equal inputs after it."
    fix_hint = (
        "save and restore one state for each rank (`rng-{rank}.pt`, or a gathered list), or seed with the rank after the load"
    )
    outcome = "shows drew the numbers of rank 0"
    bad = '''"""Each rank has a stream of its own until the checkpoint of rank 0 is restored."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "last.pt")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if rank == 0:
    torch.save({"model": model.module.state_dict(), "random": torch.get_rng_state()}, path)
dist.barrier()
state = torch.load(path, map_location="cpu")
model.module.load_state_dict(state["model"])
torch.set_rng_state(state["random"])
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
drawn = torch.rand(1)
first = drawn.clone()
dist.broadcast(first, src=0)
if rank != 0 and drawn == first:
    print(f"rank {rank} drew the numbers of rank 0", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace(
            "Each rank has a stream of its own until the checkpoint of rank 0 is restored",
            "Each rank restores the state of its own",
        )
        .replace(
            """if rank == 0:
    torch.save({"model": model.module.state_dict(), "random": torch.get_rng_state()}, path)
""",
            """states = [None] * dist.get_world_size()
dist.all_gather_object(states, torch.get_rng_state())
if rank == 0:
    torch.save({"model": model.module.state_dict(), "random": states}, path)
""",
        )
        .replace('state["random"])\n', 'state["random"][rank])\n')
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_distributed(program):
            return
        for node in first_of_each_place(program.of(RandomStateRestored)):
            loaded = _loaded(node.state)
            if loaded is None or who(program, node) != SEVERAL or _is_one_stream(program, node):
                continue
            yield self._finding(node, loaded)

    def _finding(self, node: Node, loaded: Value) -> Finding:
        message = "Every rank restores the random state that one rank saved, so from here on all ranks draw the same numbers."
        explanation = (
            f"The state comes from `{loaded.text}`, which is one file for all ranks. It does no harm where nothing is drawn "
            "afterwards, or where all ranks are to draw alike."
        )
        related = [Related(node.span.path, node.span.line, "restore", node.text), *guard_relations(node)]
        confidence = "likely" if node.is_called else "possible"
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by equal draws or equal inputs of replicas; not observed where each drew numbers of its own."""
        if has_fault(run, SEED_SHARED) or have_shared(run, sequences_of(run, run.all_events(), FORWARD)):
            return "confirmed"
        drawn: dict[int, list[str]] = {}
        for rank, event in run.events_of(DRAWS):
            drawn.setdefault(rank, []).append(str(event.detail.get("stream")))
        return "not-observed" if have_shared(run, drawn) is False else "not-exercised"


def _loaded(state: Value) -> Value | None:
    """The load of one file that a state comes from; None where each rank takes a state of its own, or where that is not seen."""
    if RANK in state.taint:
        return None
    for value in behind(state):
        if is_kind(value, "reads-file"):
            by = getattr(value, "by", None)
            path = by.args[0] if by is not None and by.args else None
            return None if path is None or is_of_each_rank(path) else value
    return None


def _is_one_stream(program: Program, node: RandomStateRestored) -> bool:
    """Whether the ranks draw from one stream before, or are seeded apart afterwards."""
    later = [seed for seed in seeds_of(program, node.stream) if seed.number > node.number]
    return one_stream(program, node.stream, node.number) or any(RANK in seed.seed.taint for seed in later)
