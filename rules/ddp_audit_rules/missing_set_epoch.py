"""DDP302: the sampler is not told the epoch, so every epoch has the same order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAMPLER
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.program.loading import DISTRIBUTED, Pass, lines_with, loads_for_user, samplers_of, shuffles, training_passes
from ddp_audit.program.model import Loop, Node, Program
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import Const, Expr, Obj, constant
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._always import runs_with


class MissingSetEpoch(Rule):
    code = "DDP302"
    name = "missing-set-epoch"
    level = "warning"
    what = (
        "A DistributedSampler that shuffles, under a loop over epochs, whose set_epoch is never called, is called outside that "
        "loop or with a constant, or is called with the epoch after its batches were taken, or after workers began to fetch them."
    )
    why = (
        "The sampler shuffles with seed + epoch and knows the epoch from set_epoch alone. Without it every epoch repeats "
        "the order of the first, on all ranks: the same batches in the same sequence, and each rank never sees the "
        "others' part. Nothing fails; the model learns from less variety than it should."
    )
    quiet = (
        "set_epoch on the sampler, on the loader's sampler, through a method or another file; a call on an object that could not "
        "be followed; shuffle=False; loops without a backward (validation, one pass); a sampler that is made anew inside the loop; "
        "batches taken by next(); Accelerate, Lightning and the Trainer of transformers, which call it themselves."
    )
    confirmed = "A sampler that shuffles begins two passes with the same epoch on one rank."
    source = (
        "torch 2.13, utils/data/distributed.py: the generator is seeded with seed + epoch in __iter__. Seen in runs: without "
        "set_epoch the order of all epochs is equal; changed after iter() it acts one epoch late."
    )
    remedy = "call `sampler.set_epoch(epoch)` at the start of each epoch, before the loop over the loader"
    outcome = "same-order"
    bad = '''"""Fits a line for three epochs, each in the same order."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
try:
    torch.manual_seed(1)
    x = torch.arange(64.0).reshape(16, 4) / 64
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        first = None
        for inputs, targets in loader:
            first = inputs if first is None else first
            (model(inputs) - targets).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"rank {dist.get_rank()} epoch {epoch} began with {first[:, 0].mul(64).int().tolist()}", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("each in the same order", "each in an order of its own").replace(
        "        first = None\n", "        sampler.set_epoch(epoch)\n        first = None\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if loads_for_user(program):
            return
        passes = [one for one in training_passes(program) if one.made is not None and one.around and not one.taken]
        seen: set[object] = set()
        for sampler in program.of("sampler"):
            made = sampler.object
            if made is None or sampler.span in seen or sampler.loops or shuffles(sampler) is not True or not _is_torchs(sampler):
                continue
            for one in passes:
                assert one.made is not None
                if constant(one.around[-1].count) == 1 or one.around[-1].kind == "comprehension":
                    continue
                if any(isinstance(s, Obj) and s.key == made.key for s in samplers_of(one.made)):
                    finding = self._judge(program, sampler, one)
                    if finding is not None:
                        seen.add(sampler.span)
                        yield finding
                        break

    def _judge(self, program: Program, sampler: Node, one: Pass) -> Finding | None:
        assert sampler.object is not None
        calls = list(program.of("set-epoch"))
        if any(n.object is None or n.object.kind != "sampler" for n in calls):
            return None  # on something that could not be followed: perhaps this sampler
        mine = [n for n in calls if n.object is not None and n.object.key == sampler.object.key]
        epochs = one.around[-1]
        if not mine:
            reached = {(n.span.path, n.span.line) for n in calls}
            unseen = [
                (path, line)
                for path, line, code in lines_with(program, r"\bset_epoch\b")
                if "def set_epoch" not in code and (path, line) not in reached and program.takes(path, line)
            ]
            message = (
                "This sampler shuffles and its set_epoch is never called, so each epoch of the loop in line "
                f"{epochs.span.line} goes through the data in the same order on every rank."
            )
            fix = _insertion(program, sampler, one)
            return self._finding(sampler, one, message, "possible" if unseen else "likely", [], fix)
        inside = [n for n in mine if epochs in n.loops]
        if not inside:
            message = (
                f"set_epoch is called outside the loop over epochs (line {epochs.span.line}), so all its epochs have the "
                "order of the one epoch that it was given."
            )
            return self._finding(sampler, one, message, "likely", mine[:1], _moved(program, one, mine))
        if all(isinstance(n.args.get("epoch"), Const) for n in inside):
            message = (
                f"set_epoch is called with {constant(inside[0].args.get('epoch'))} in every epoch, so all epochs have the "
                "same order."
            )
            return self._finding(sampler, one, message, "likely", inside[:1], _moved(program, one, inside))
        fetched = _fetched_before(program, one)
        if fetched is not None and all(fetched.number < n.number < one.iterate.number for n in inside):
            message = (
                f"set_epoch is called after line {fetched.span.line} made the iterator of the epoch, whose workers began to fetch "
                "at once, so it acts one epoch late: the first two epochs have the same order."
            )
            return self._finding(sampler, one, message, "likely", [*inside[:1], fetched])
        if all(_lags(n, one, epochs) for n in inside):
            message = (
                "set_epoch gets the epoch after the batches of that epoch were taken, so it acts one epoch late: the first two "
                "epochs have the same order."
            )
            return self._finding(sampler, one, message, "likely", inside[:1])
        return None

    def _finding(
        self, sampler: Node, one: Pass, message: str, confidence: str, calls: list[Node], fix: Fix | None = None
    ) -> Finding:
        epochs = one.around[-1]
        explanation = (
            "DistributedSampler shuffles with the generator seed + epoch, and its epoch stays 0 until set_epoch changes "
            "it; torch.manual_seed has no part in it. The ranks stay in step, so nothing hangs. Each rank also keeps the "
            "same share of the data for the whole run."
        )
        related = [
            Related(epochs.span.path, epochs.span.line, "loop", "the loop over epochs"),
            Related(one.iterate.span.path, one.iterate.span.line, "batches", "the loop over the loader of this sampler"),
        ]
        related += [Related(n.span.path, n.span.line, "set-epoch" if n.kind == "set-epoch" else "iterator", n.text) for n in calls]
        related += guard_relations(sampler)
        return self.finding(sampler.span, message, explanation, related=related, confidence=confidence, fix=fix)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a shuffling sampler began two passes of the loop with one epoch; not-observed where each had its own."""
        places = [(r.path, r.line) for r in finding.related if r.role == "batches"]
        passes: dict[int, list[object]] = {}
        for path, line in places:
            for rank, event in run.events_at(path, line):
                if event.kind == SAMPLER and event.detail.get("action") == "iter" and event.detail.get("shuffle"):
                    passes.setdefault(rank, []).append(event.detail.get("epoch"))
        if not any(len(found) > 1 for found in passes.values()):
            return "not-covered"
        repeated = any(len(set(found)) < len(found) for found in passes.values())
        return "confirmed" if repeated else "not-observed"


def _is_torchs(sampler: Node) -> bool:
    """DistributedSampler itself, or a subclass that leaves its order alone."""
    if sampler.detail["cls"] == DISTRIBUTED:
        return True
    info = sampler.object.cls if sampler.object is not None else None
    if not isinstance(info, ClassInfo) or not any(b.endswith(DISTRIBUTED) for b in info.outside_bases()):
        return False
    return info.find("__iter__") is None and info.find("set_epoch") is None


def _insertion(program: Program, sampler: Node, one: Pass) -> Fix | None:
    """The call that is missing, where sampler and epoch have plain names in one file."""
    epochs = one.around[-1]
    made = re.match(r"\s*(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*[\w.]+\(", program.line(sampler.span.path, sampler.span.line))
    epoch = _epoch_of(program, one)
    if epoch is None or sampler.span.path != epochs.span.path:
        return None
    name, detail = "" if made is None else made.group(1), ""
    starts = _from(program, sampler.span)
    if made is None or not starts.startswith(made.group(0).split("=")[-1].strip()):
        name = ""  # what is named there is the loader that the sampler is given to
    if not name or one.iterate.calls[: len(sampler.calls)] != sampler.calls:  # made in a function that has ended before the epochs
        name = _loader_name(program, sampler, one)
        detail = f"by-loader {name}"
        name += ".sampler" if name else ""
    if not name:
        return None
    return Fix("safe", f"call `{name}.set_epoch({epoch})` at the start of each epoch, before the loop over the loader", detail)


def _epoch_of(program: Program, one: Pass) -> str | None:
    """The plain name of the epoch."""
    epochs = one.around[-1]
    named = re.match(r"\s*for\s+(\w+)\s+in\b", program.line(epochs.span.path, epochs.span.line))
    return None if named is None or named.group(1) == "_" else named.group(1)


def _loader_name(program: Program, sampler: Node, one: Pass) -> str:
    """The name by which the loop over epochs has the loader, where that surely holds this sampler; empty where it has none."""
    assert one.made is not None
    epochs, text = one.around[-1], one.iterate.text
    over = re.fullmatch(r"(?:enumerate\()?((?:self\.)?\w+)(?:, *(?:start=)?\d+)?\)?", text)
    held = samplers_of(one.made)
    if over is None or len(held) != 1 or one.made.loops or not runs_with(program, sampler, one.made):
        return ""
    if any(n.number > one.made.number and n.span == one.made.span for n in program.of("loader")):
        return ""
    inside = [c for c in one.iterate.calls if c.path == epochs.span.path and epochs.span.line <= c.line <= epochs.span.end_line]
    if not inside:
        return over.group(1)
    # in a method that the loop calls, on the same object
    methods = all(_from(program, c).startswith("self.") for c in inside)
    return over.group(1) if over.group(1).startswith("self.") and methods and one.iterate.span.path == epochs.span.path else ""


def _from(program: Program, span: Span) -> str:
    """The text of a line from where a place begins."""
    lines = program.sources.get(span.path, [])
    return lines[span.line - 1][span.column - 1 :] if 0 < span.line <= len(lines) else ""


def _moved(program: Program, one: Pass, calls: list[Node]) -> Fix | None:
    """The one set_epoch that there is, given the epoch at the start of each."""
    epoch, places = _epoch_of(program, one), {(n.span.path, n.span.line) for n in calls}
    named = re.fullmatch(r"([\w.]+)\.set_epoch\(.*\)", calls[0].text)
    if epoch is None or len(places) != 1 or named is None or calls[0].span.path != one.around[-1].span.path or calls[0].guards:
        return None
    return Fix("safe", f"call `{named.group(1)}.set_epoch({epoch})` at the start of each epoch, before the loop over the loader")


def _fetched_before(program: Program, one: Pass) -> Node | None:
    """The call that makes the iterator of a pass in the same epoch; None without workers, as nothing is fetched before the loop."""
    assert one.made is not None
    workers = constant(one.made.args.get("num_workers"))
    if type(workers) is not int or workers < 1:
        return None
    for node in program.of("iterator"):
        named = re.match(r"(\w+)\s*=\s*iter\(", program.line(node.span.path, node.span.line).strip())
        same = node.object is not None and node.object.key == one.loader.key and node.loops == one.iterate.loops
        if same and not node.guards and named is not None and one.iterate.text == named.group(1):
            return node
    return None


def _lags(call: Node, one: Pass, epochs: Loop) -> bool:
    """Whether set_epoch gets the number of the running epoch when its batches have been taken, or are being taken."""
    value = call.args.get("epoch")
    counts = isinstance(value, Expr) and value.op.startswith("loop:") and int(value.op.split(":")[1]) == epochs.span.line
    late = one.loop in call.loops or (call.number > one.iterate.number and call.loops[-1:] == (epochs,))
    return counts and late
