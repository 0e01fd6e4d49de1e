"""DDP702: ranks see a path, or what stands there, differently: names of the clock, reads before the write, downloads at once."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAVE
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import FileAccess, FileTouch, Node, Program, Seed
from ddp_audit.tree.values import CLOCK, Value
from ddp_audit_rules.facts.writers import is_job, plain
from ddp_audit_rules.files._shared_paths import clock_text, downloads, early_reads, is_read_after, own_names


class PathDiffersByRank(Rule):
    code = "DDP702"
    name = "path-differs-by-rank"
    level = "warning"
    summary = (
        "A path that every process makes of its own clock or random numbers; a file that some ranks read while rank 0 may still be "
        "writing it; a data set that all ranks download into one folder."
    )
    rationale = (
        "Each process has its own clock: names that are made of it agree until a second ends between two of them, and then the "
        "ranks write into two folders, or look for a file that another one has written. A read that waits for nobody finds no "
        "file, half of one, or that of the run before. Downloads at once write over each other."
    )
    exceptions = (
        "Names that come from the launcher or were broadcast; paths that only one rank uses; temporary files; paths with the "
        "rank in them; a barrier, or whatever else makes the ranks meet, between the write and the read; files that existed "
        "before; hubs that lock their cache."
    )
    trace_evidence = "Ranks save to different paths at one place, at the same turn."
    source = (
        "Seen in runs with two processes: names made of time.time_ns() differ, a read without a barrier finds no file. "
        "torchvision, datasets: download=True looks for the files and fetches them without a lock."
    )
    outcome = "shows looks into another folder"
    fix_hint = (
        "let rank 0 make the name and broadcast it (`dist.broadcast_object_list`), and put a barrier between what one rank writes "
        "and what the others read"
    )
    bad = '''"""Each process names the folder of the run by its own clock; rank 1 looks for the checkpoint in another one."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(0.01 * rank)
folder = os.path.join(os.environ.get("CASE_FOLDER", "."), f"run-{time.time_ns() // 1_000_000}")
os.makedirs(folder, exist_ok=True)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if rank == 0:
    torch.save(model.module.state_dict(), os.path.join(folder, "best.pt"))
dist.barrier()
if not os.path.exists(os.path.join(folder, "best.pt")):
    print(f"rank {rank} looks into another folder", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace("Each process names", "Rank 0 names")
        .replace("by its own clock; rank 1 looks for the checkpoint in another one", "by its clock, and all ranks use that name")
        .replace(
            'folder = os.path.join(os.environ.get("CASE_FOLDER", "."), f"run-{time.time_ns() // 1_000_000}")\n',
            'name = [f"run-{time.time_ns() // 1_000_000}"]\n'
            "dist.broadcast_object_list(name, src=0)\n"
            'folder = os.path.join(os.environ.get("CASE_FOLDER", "."), name[0])\n',
        )
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_job(program):
            return
        for use in own_names(program):
            yield self._own_name(program, use.node, use.path)
        for use in early_reads(program):
            if use.writer is not None:
                yield self._early(program, use.writer, use.node, use.path)
        for use in downloads(program):
            yield self._download(use.node, use.path)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by ranks whose n-th save here goes to different paths; only what torch.save writes is recorded."""
        span = finding.span
        paths: dict[int, list[str]] = {}
        for rank, event in run.events_at(span.path, span.line, span.end_line):
            if event.kind == SAVE:
                paths.setdefault(rank, []).append(str(event.detail.get("path")))
        if len(paths) < 2:
            return "not-exercised"
        return "confirmed" if any(len(set(row)) > 1 for row in zip(*paths.values(), strict=False)) else "not-observed"

    def _own_name(self, program: Program, node: Node, path: Value) -> Finding:
        what = "the clock" if CLOCK in path.taint else "random numbers"
        message = f"Each rank makes {plain(path)} of {what} of its own process, so ranks may use different paths here."
        explanation = (
            "The names agree where the processes read the clock within one step of it, so it works most of the time. What one "
            "rank writes is then looked for somewhere else, or one run leaves several folders."
            if CLOCK in path.taint
            else "Processes draw different numbers unless they were seeded alike before."
        )
        drawn = "uuid" in clock_text(path) or not program.has(Seed)
        confidence = "likely" if (CLOCK in path.taint or drawn) and node.is_called else "possible"
        related = guard_relations(node)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def _early(self, program: Program, writer: FileTouch, reader: FileTouch, path: Value) -> Finding:
        made = writer.touch
        does = {"mkdir": "made", "download": "fetched"}.get(made, "written")
        message = (
            f"Other ranks may read {plain(path)} before it is {does}: line {writer.span.line} runs on one rank and nothing makes "
            "the others wait."
        )
        explanation = (
            "They find no file, half of one, or that of an earlier run. It works where the file exists already, or where the "
            "others are slower by chance."
        )
        related = [Related(writer.span.path, writer.span.line, "write", writer.text), *guard_relations(writer)]
        near = writer.function == reader.function or is_read_after(program, writer, reader)
        confidence = "likely" if reader.is_called and near else "possible"
        return self.finding(
            reader.span, message, explanation, related=related, confidence=confidence, guards=(*writer.guards, *reader.guards)
        )

    def _download(self, node: FileTouch, path: Value) -> Finding:
        name = node.name if isinstance(node, FileAccess) else ""
        does = "unpacks an archive" if node.touch == "unpack" else f"downloads {name.rsplit('.', 1)[-1]}"
        message = f"Every rank {does} into {plain(path)} at the same time, so some may read files that others are still writing."
        explanation = (
            "A rank that is done reads what a slower one has opened again and not yet filled."
            if node.touch == "unpack"
            else "The first run on a machine fails with a damaged archive, or downloads once for each rank. It works where the "
            "data exists already."
        )
        confidence = "likely" if node.is_called else "possible"
        related = guard_relations(node)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)
