"""DDP703: the keys of a checkpoint and of the model differ by a prefix, and strict=False hides that nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import LOADED
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import LoadState, Node, Program, Save
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import Const
from ddp_audit_rules.facts.evidence import looks_at
from ddp_audit_rules.files._state_keys import COMPILED, WRAPPER, Mismatch, mismatch


class PrefixHiddenByStrictFalse(Rule):
    code = "DDP703"
    name = "prefix-hidden-by-strict-false"
    level = "warning"
    summary = (
        "`load_state_dict(.., strict=False)` into a plain module, of a state that was saved from the DDP wrapper or from what "
        "torch.compile returned (or the other way round), or whose part alone was, where nobody looks at what it returns."
    )
    rationale = (
        "The wrapper's keys begin with `module.`, and those of a compiled module with `_orig_mod.`. The keys of the plain module "
        "have neither. No key fits, strict=False accepts every missing and every unexpected key, and nothing is loaded: the run "
        "goes on from random weights without an error."
    )
    exceptions = (
        "Keys that are rewritten on the way; results that are looked at (missing_keys, unexpected_keys); states and modules of one "
        "kind; strict loads, which fail aloud; checkpoints whose origin is not known."
    )
    trace_evidence = "The load brought keys, and every one of them was unexpected: nothing was loaded. Of a part: that some were."
    source = (
        "torch 2.13: DistributedDataParallel is a Module whose one child is called module, so its state_dict has that prefix; "
        "torch/_dynamo/eval_frame.py: OptimizedModule holds the module as _orig_mod. `module.compile()` compiles in place and adds "
        "no prefix. Seen in runs: load_state_dict with strict=False returns all keys as missing and changes nothing."
    )
    outcome = "shows goes on from random weights"
    fix_hint = (
        "save the state of the plain module (`model.module`, `model._orig_mod`), or load through the same wrapper; check the keys "
        "that load_state_dict returns"
    )
    bad = '''"""Saves the state of the wrapper and loads it into the bare network: no key fits, and nothing says so."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "last.pt")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
if rank == 0:
    torch.save({"model": model.state_dict()}, path)
dist.barrier()

net = torch.nn.Linear(4, 1)
checkpoint = torch.load(path, map_location="cpu", weights_only=True)
net.load_state_dict(checkpoint["model"], strict=False)
if rank == 0 and not torch.equal(net.weight, model.module.weight):
    print("goes on from random weights", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace('"model": model.state_dict()', '"model": model.module.state_dict()').replace(
        "Saves the state of the wrapper and loads it into the bare network: no key fits, and nothing says so",
        "Saves the state of the network and loads it into another",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(LoadState)):
            strict = node.args.get("strict")
            if not (isinstance(strict, Const) and strict.value is False and node.unused):
                continue
            found = mismatch(program, node)
            if found is not None:
                yield self._finding(program, node, found)

    def _finding(self, program: Program, node: Node, found: Mismatch) -> Finding:
        save = found.save
        message = (
            f"The keys of this state begin with {_quoted(found.saved)} and those of the module with {_quoted(found.wanted)}: "
            "strict=False loads nothing and the weights stay random."
        )
        if found.part:
            message = (
                f"The keys of `{found.part}` begin with `{found.saved}` in this state and with `{found.wanted}` in the module: "
                "strict=False skips them and its weights stay."
            )
        explanation = (
            f"The state was saved in line {save.span.line}. DDP puts `{WRAPPER}` before each key, and torch.compile `{COMPILED}`. "
            "All ranks load alike, so nothing differs between them and nothing fails. It does no harm where the file is another "
            "one, without the difference."
        )
        related = [Related(save.span.path, save.span.line, "save", save.text), *guard_relations(node)]
        confidence = "likely" if found.same_path or len(list(program.of(Save))) == 1 else "possible"
        return self.finding(
            node.span,
            message,
            explanation,
            related=related,
            confidence=confidence,
            guards=node.guards,
            option=found.option,
            cause=f"{save.place} {found.part}" if found.part else "",
        )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the keys that the load was given and that fitted nowhere."""
        loads = [event.detail for events in looks_at(run, LOADED, finding.span).values() for event in events]
        if not loads:
            return "not-exercised"
        enough = [load["unexpected"] if finding.cause else load["given"] == load["unexpected"] for load in loads]  # a part, or all
        return "confirmed" if any(load["given"] and all_of for load, all_of in zip(loads, enough, strict=True)) else "not-observed"


def _quoted(prefix: str) -> str:
    return f"`{prefix}`" if prefix else "no prefix"
