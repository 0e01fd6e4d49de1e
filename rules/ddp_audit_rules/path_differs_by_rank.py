"""DDP702: ranks see a path, or what stands there, differently: names of the clock, reads before the write, downloads at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAVE
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.program.made import behind, operation_of, path_key
from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import CLOCK, FILES, RANDOM, RANK, Value, World
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._writers import (
    ONE,
    ONE_A_NODE,
    SEVERAL,
    in_turn,
    is_called,
    is_distributed,
    is_of_each_rank,
    passes,
    path_of,
    plain,
    who,
)

_MAKES = ("write", "append", "mkdir", "download")
_LOOKS = ("read", "exists")
_CLOCK_WORDS = re.compile(r"now|today|time|strftime|uuid|rand|date", re.IGNORECASE)


class PathDiffersByRank(Rule):
    code = "DDP702"
    name = "path-differs-by-rank"
    level = "warning"
    what = (
        "A path that every process makes of its own clock or random numbers; a file that some ranks read while rank 0 may "
        "still be "
        "writing it; a data set that all ranks download into one folder."
    )
    why = (
        "Each process has its own clock: names that are made of it agree until a second ends between two of them, and "
        "then the ranks "
        "write into two folders, or look for a file that another one has written. A read that waits for nobody finds no "
        "file, half "
        "of one, or that of the run before. Downloads at once write over each other."
    )
    quiet = (
        "Names that come from the launcher or were broadcast; paths that only one rank uses; temporary files; paths with "
        "the rank in "
        "them; a barrier, or whatever else makes the ranks meet, between the write and the read; files that existed "
        "before; hubs "
        "that lock their cache."
    )
    confirmed = "Ranks save to different paths at one place."
    source = (
        "Seen in runs with two processes: names made of time.time_ns() differ, a read without a barrier finds no file. "
        "torchvision, datasets: download=True looks for the files and fetches them without a lock."
    )
    outcome = "shows looks into another folder"
    remedy = (
        "let rank 0 make the name and broadcast it (`dist.broadcast_object_list`), and put a barrier between what one "
        "rank writes and "
        "what the others read"
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
        if not is_distributed(program):
            return
        yield from self._own_names(program)
        yield from self._read_early(program)
        yield from self._downloads(program)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by ranks that save to different paths here; files that are touched without torch.save are not recorded."""
        span = finding.span
        paths: dict[int, set[str]] = {}
        for rank, event in run.events_at(span.path, span.line, span.end_line):
            if event.kind == SAVE:
                paths.setdefault(rank, set()).add(str(event.detail.get("path")))
        if len(paths) > 1 and len({frozenset(found) for found in paths.values()}) > 1:
            return "confirmed"
        return "not-observed" if len(paths) > 1 else "not-covered"

    # ---- names made of the clock

    def _own_names(self, program: Program) -> Iterator[Finding]:
        """The first use of each name that every rank makes for itself and more than one uses."""
        told: set[tuple[object, ...]] = set()
        for node in program.of("save", "load", "file"):
            path = path_of(node)
            if path is None or not _is_own_name(path) or who(program, node) != SEVERAL:
                continue
            stem = (node.span.path, node.function, _clock_text(path))
            if stem in told:
                continue
            told.add(stem)
            yield self._own_name(program, node, path)

    def _own_name(self, program: Program, node: Node, path: Value) -> Finding:
        what = "the clock" if CLOCK in path.taint else "random numbers"
        message = f"Each rank makes {plain(path)} of {what} of its own process, so ranks may use different paths here."
        explanation = (
            "The names agree where the processes read the clock within one step of it, so it goes well most of the time. "
            "What one rank "
            "writes is then looked for somewhere else, or one run leaves several folders."
            if CLOCK in path.taint
            else "Processes draw different numbers unless they were seeded alike before."
        )
        drawn = "uuid" in _clock_text(path) or not any(True for _ in program.of("seed"))
        confidence = "likely" if (CLOCK in path.taint or drawn) and is_called(node) else "possible"
        related = guard_relations(node)
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    # ---- reads before the write

    def _read_early(self, program: Program) -> Iterator[Finding]:
        """Reads by ranks that did not wait for the one that writes the same path."""
        told: set[Span] = set()
        written: list[tuple[Node, tuple[object, ...]]] = []
        there: set[tuple[object, ...]] = set()  # folders that all ranks have made, or the process that starts them
        for node in program.nodes:
            if _meets(node):
                written.clear()
                continue
            if node.kind not in ("save", "load", "file"):
                continue
            path = path_of(node)
            key = None if path is None else path_key(path)
            if path is None or key is None or path.taint & {CLOCK, RANDOM}:
                continue
            own = is_of_each_rank(path)  # then it is the folder alone that all need
            what = node.detail.get("what", node.kind)
            if what == "mkdir" and who(program, node) == SEVERAL:  # with the folders above it
                written = [(w, at) for w, at in written if not (w.detail.get("what") == "mkdir" and _is_under(key, at, w))]
            if what == "mkdir" and not node.rank_guards:
                there.add(key)
            if what == "mkdir" and key in there:
                continue
            if what in (*_MAKES, "save") and not own and who(program, node) in (ONE, ONE_A_NODE) and node.rank_guards:
                written.append((node, key))
            elif what in (*_LOOKS, "load", "save", "write", "append") and node.span not in told:
                ahead = [w for w, at in written if _needs(node, key, at, w) and (w.detail.get("what") == "mkdir" or not own)]
                writer = next((w for w in ahead if _other_rank_reads(w, node)), None)
                if writer is not None and not _asks_for_files(node):
                    told.add(node.span)
                    yield self._early(writer, node, path)

    def _early(self, writer: Node, reader: Node, path: Value) -> Finding:
        made = writer.detail.get("what", "save")
        does = {"mkdir": "made", "download": "fetched"}.get(made, "written")
        message = (
            f"Ranks other than the one that has it {does} may come to {plain(path)} first: line {writer.span.line} runs on "
            "one rank and nothing makes the others wait for it."
        )
        explanation = (
            "They find no file, half of one, or that of an earlier run. It goes well where the file is there already, or "
            "where the "
            "others are slower by chance."
        )
        related = [Related(writer.span.path, writer.span.line, "write", writer.text), *guard_relations(writer)]
        confidence = "likely" if is_called(reader) and writer.function == reader.function else "possible"
        return self.finding(
            reader.span, message, explanation, related=related, confidence=confidence, guards=(*writer.guards, *reader.guards)
        )

    # ---- downloads

    def _downloads(self, program: Program) -> Iterator[Finding]:
        """The first download of each kind that several ranks do at once."""
        fetched: set[str] = set()
        met: set[str] = set()
        for node in program.nodes:
            if _meets(node):
                met |= fetched
            if node.kind != "file" or node.detail["what"] != "download":
                continue
            name = str(node.detail["name"])
            if name in met or in_turn(program, node):
                continue
            fetched.add(name)
            path = path_of(node)
            if path is None or is_of_each_rank(path) or who(program, node) != SEVERAL:
                continue
            met.add(name)
            message = (
                f"Every rank downloads {name.rsplit('.', 1)[-1]} into {plain(path)} at the same time, so some may read "
                "files that others "
                "are still writing."
            )
            explanation = (
                "The first run on a machine fails with a damaged archive, or downloads once for each rank. It goes well "
                "where the data is "
                "there already."
            )
            confidence = "likely" if is_called(node) else "possible"
            related = guard_relations(node)
            yield self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)


def _is_own_name(path: Value) -> bool:
    """Whether a path holds what each process reads from its clock or draws for itself; temporary names are meant to differ."""
    return bool(path.taint & {CLOCK, RANDOM}) and not path.taint & {RANK, FILES} and bool(_CLOCK_WORDS.search(_clock_text(path)))


def _clock_text(path: Value) -> str:
    """The source of the part of a path that the clock or chance makes."""
    own = [value for value in behind(path) if value.taint & {CLOCK, RANDOM} and operation_of(value) not in ("format", "/", "+")]
    return own[-1].text if own else path.text


def _meets(node: Node) -> bool:
    """Whether all ranks wait for each other at a node."""
    if node.kind in ("init", "wrap", "backward"):
        return not node.rank_guards
    return node.kind in (
        "collective",
        "call",
    )  # a call that was not followed may be one; one behind a guard is half of a pair: ranks that wait for their turn


def _other_rank_reads(writer: Node, reader: Node) -> bool:
    """Whether some rank reads that does not write."""
    for world in (World(rank, size, 2) for size in (2, 4) for rank in range(size)):
        if passes(reader, world) and passes(writer, world) is False:
            return True
    return False


def _is_under(key: tuple[object, ...], at: tuple[object, ...], writer: Node) -> bool:
    """Whether a path is the written one, or lies in the folder that is made."""
    if key == at:
        return True
    if writer.detail.get("what") != "mkdir" or not at or len(key) < len(at) or key[: len(at) - 1] != at[:-1]:
        return False
    inner, outer = key[len(at) - 1], at[-1]
    return inner == outer or (isinstance(inner, str) and isinstance(outer, str) and inner.startswith(outer.rstrip("/") + "/"))


def _needs(reader: Node, key: tuple[object, ...], at: tuple[object, ...], writer: Node) -> bool:
    """Whether a reader needs what another rank writes; what is read from a folder was there before the folder was made."""
    looks = reader.detail.get("what", reader.kind) in (*_LOOKS, "load")
    return key == at if looks and writer.detail.get("what") == "mkdir" else _is_under(key, at, writer)


def _asks_for_files(reader: Node) -> bool:
    """Whether a reader looks first, waits for the file in a loop, or catches that it is missing."""
    return (
        bool(reader.tries)
        or any(FILES in guard.test.taint for guard in reader.guards)
        or any(loop.kind == "while" for loop in reader.loops[-1:])
    )
