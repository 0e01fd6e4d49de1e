"""A run as PyTorch's Flight Recorder saw it: its dumps become the events of a RecordedRun, and the usual comparison judges them.

What differs from a trace of this tool: `index` is the recorder's sequence number, which begins at 1 and may begin later, since
the recorder keeps the last entries only; roots and reductions are not recorded; nothing says that a rank has ended. A dump is
taken when a rank waits too long, so a rank that has not entered what others wait in is missing there.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_audit import events
from ddp_audit.compare.align import Aligner
from ddp_audit.compare.explain import BARRIERS, rank_list
from ddp_audit.compare.messages import Messages
from ddp_audit.compare.run import MISSING, RUNNING, WAITING, RankRun, RecordedRun
from ddp_audit.compare.verdict import AGREED, INCOMPLETE, Comparison, compare_run, new_aligner
from ddp_audit.events import Event, Site
from ddp_audit.trace.dumps import Dump, find_dumps
from ddp_audit.trace.store import NoTrace
from ddp_audit.trace.worker.markers import BACKWARD_ENGINE, BLOCKING, CONSTRUCTOR, MARKERS

SOURCE = "flight-recorder"  # `meta["source"]` of such a run
_EVERYWHERE = 1 << 60  # an end that no collective reaches: nothing is known of this rank in this group

_OPERATIONS = {
    "all_reduce_barrier": "barrier",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "_all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "allgather": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}
_OF_OUTPUT = frozenset({"scatter", "recv"})
_FREE_SIZE = frozenset({"all_gather_v", "reduce_scatter_v"})
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
# Frames that are not code of the user's. A dump may come from another machine, so only the path can tell.
_FOREIGN = re.compile(
    r"^<|/(site|dist)-packages/|/lib(64)?/python\d[\d.]*/|"
    r"(^|/)torch/(_|distributed/|nn/|autograd/|utils/|optim/|cuda/|fx/|functional\.py)"
)
_ENDS = re.compile(r"\d+(?:->|<-)(\d+)$")
_IN_TORCH = re.compile(r"(?:^|/)torch/([^<>]+)$")


def is_dump_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds no trace of this tool, so that dumps are looked for in it."""
    return Path(folder).is_dir() and not any(Path(folder).glob("rank-*.ddptrace"))


def load_dumps(folder: str | os.PathLike[str]) -> dict[int, Dump]:
    """The dumps in a folder, by rank. Raises TraceError without one, or if one is damaged."""
    dumps = find_dumps(Path(folder))
    if not dumps:
        raise NoTrace(f"{folder}: no trace in it (no rank-*.ddptrace, no dump of the Flight Recorder)")
    return dumps


def run_of(dumps: Mapping[int, Dump]) -> RecordedRun:
    """The run that dumps, by rank, tell of."""
    labels = _Labels(dumps.values())
    world = max([*dumps, *(rank for ranks in labels.members.values() for rank in ranks)]) + 1
    run = RecordedRun(world, groups=dict(labels.members))
    run.messages = Messages()
    run.meta = {"source": SOURCE, "cwd": str(Path.cwd()), "first_index": 1}
    if any(str(entry["profiling_name"]).startswith("nccl:") for dump in dumps.values() for entry in dump.entries):
        run.meta["backend"] = "nccl"
    for rank in range(world):
        run.ranks[rank] = _rank_run(dumps[rank], labels) if rank in dumps else RankRun(rank, state=MISSING, last="no dump")
        run.messages.feed(rank, run.ranks[rank].events)
        if rank not in dumps or _has_wrapped(dumps[rank]):  # which of its messages is the first is not known
            run.messages.partial.add(rank)
    return run


class _Labels:
    """What groups are called. Groups of one name and other ranks, as the groups of a mesh have, get names of their own."""

    def __init__(self, dumps: Iterable[Dump]) -> None:
        self.members: dict[str, tuple[int, ...]] = {}
        self._ranks: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
        dumps = list(dumps)
        for dump in dumps:
            for key, ranks in dump.groups.items():
                self._ranks[key].add(ranks)
        for dump in dumps:
            for (name, desc), ranks in sorted(dump.groups.items()):
                self.members[self.of(dump, name, desc)] = ranks

    def of(self, dump: Dump, name: str, desc: str) -> str:
        if desc == "default_pg" or (not desc and name in ("0", "")):
            return events.DEFAULT_GROUP
        label = name if desc in ("", "undefined") else f"{name} ({desc})"
        own = dump.groups.get((name, desc))
        return f"{label} of {rank_list(own)}" if own and len(self._ranks[name, desc]) > 1 else label


def _rank_run(dump: Dump, labels: _Labels) -> RankRun:
    has_frames = any(entry.get("frames") for entry in dump.entries)
    run = RankRun(dump.rank, [_event(entry, dump, labels, has_frames) for entry in _joined(dump.entries)])
    run.waiting = next((event for event in run.events if event.detail["done"] is None), None)
    run.state = RUNNING if run.waiting is None else WAITING
    last = run.waiting or (run.events[-1] if run.events else None)
    if last is not None:
        run.last = ("waits in " if run.waiting is not None else "") + last.what + (f" at {last.site}" if last.site else "")
    return run


def _joined(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries with the parts of a coalesced call, which share one sequence number, made into one. Messages of a batch stay as they
    are: the entry of the batch itself, which comes last, knows whether they are done."""
    found: list[dict[str, Any]] = []
    at: dict[tuple[Any, Any], int] = {}
    for entry in entries:
        if _is_p2p(entry):
            if str(entry["profiling_name"]).endswith(":coalesced"):
                _end_batch(found, entry)
            else:
                found.append(entry)
            continue
        key = (str(entry.get("process_group")), entry.get("collective_seq_id"))
        place = at.get(key)
        if place is None:
            at[key] = len(found)
            found.append(entry)
        elif not str(entry["profiling_name"]).endswith(":coalesced"):
            one = dict(found[place])
            if str(one["profiling_name"]).endswith(":coalesced"):
                one["profiling_name"] = entry["profiling_name"]
            for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
                one[name] = [*(one.get(name) or ()), *(entry.get(name) or ())]
            one["retired"] = bool(one.get("retired")) and bool(entry.get("retired"))
            found[place] = one
    return found


def _end_batch(found: list[dict[str, Any]], batch: Mapping[str, Any]) -> None:
    """Gives the messages of a batch the batch's own state: theirs is never brought up to date (torch 2.13, ProcessGroupNCCL)."""
    of_batch = {key: batch.get(key) for key in ("state", "retired", "time_discovered_completed_ns")}
    for place in range(len(found) - 1, -1, -1):
        one = found[place]
        if str(one.get("process_group")) != str(batch.get("process_group")):
            continue
        if not _is_p2p(one) or one.get("p2p_seq_id") != batch.get("p2p_seq_id"):
            break
        found[place] = {**one, **of_batch}


def _is_p2p(entry: Mapping[str, Any]) -> bool:
    name = str(entry["profiling_name"]).partition(":")[2]
    return bool(entry.get("is_p2p")) or name.startswith(("send", "recv"))


def _event(entry: Mapping[str, Any], dump: Dump, labels: _Labels, has_frames: bool) -> Event:
    call = str(entry["profiling_name"])
    words = call.rpartition(":")[2].split() or [""]
    op = _OPERATIONS.get(words[0], _OPERATIONS.get(words[0].lower(), words[0]))
    is_p2p = _is_p2p(entry)
    name, desc = (*(str(part) for part in entry.get("process_group") or ()), "", "")[:2]
    sizes, dtypes = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
    if op in _OF_OUTPUT or not sizes:
        sizes, dtypes = entry.get("output_sizes") or [], entry.get("output_dtypes") or []
    dtype = _DTYPES.get(str(dtypes[0]), str(dtypes[0]).lower()) if dtypes else None
    numel = sum(math.prod(size) for size in sizes) if sizes and op not in BARRIERS and op not in _FREE_SIZE else None
    stack, origin = _stack(entry.get("frames") or (), op, dtype, has_frames)
    created = int(entry.get("time_created_ns") or 0) / 1e9
    completed = int(entry.get("time_discovered_completed_ns") or 0) / 1e9
    done = completed or created if entry.get("retired") or entry["state"] == "completed" else None
    detail: dict[str, Any] = {"call": call, "shape": sizes, "done": done, "raised": False}
    if call.startswith("nccl:"):  # gloo's are always scheduled
        detail["state"] = entry["state"]
    if is_p2p:
        detail["peer"] = _peer(words, dump.groups.get((name, desc)))
        if has_frames:
            detail["async"] = not _waits_at_once(entry.get("frames") or ())
    return Event(
        events.COLLECTIVE,
        op,
        labels.of(dump, name, desc),
        None if is_p2p else int(entry.get("collective_seq_id", entry.get("seq_id", 0))),
        origin,
        numel,
        None if op in BARRIERS else dtype,
        site=stack[0] if stack else None,
        stack=stack,
        time=created,
        detail=detail,
    )


def _peer(words: Sequence[str], ranks: Sequence[int] | None) -> int | None:
    """The other rank of `send 0->1` or `recv 1<-0`, which are ranks of the group; None where it is not said."""
    ends = _ENDS.match(words[1]) if len(words) > 1 else None
    if ends is None:
        return None
    rank = int(ends[1])
    return rank if not ranks else ranks[rank] if rank < len(ranks) else None


def _waits_at_once(frames: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a message comes from torch's own `send` or `recv`, which wait for it."""
    for frame in frames:
        path = str(frame.get("filename", "")).replace(os.sep, "/")
        inner = _IN_TORCH.search(path) if _FOREIGN.search(path) else None
        if inner is None:
            return False
        if MARKERS.get((inner[1], str(frame.get("name", "")))) == BLOCKING:
            return True
    return False


def _stack(frames: Iterable[Mapping[str, Any]], op: str, dtype: str | None, has_frames: bool) -> tuple[tuple[Site, ...], str]:
    """The user's frames, innermost first, and the origin that torch's own frames tell."""
    frames = list(frames)
    users: list[Site] = []
    markers: list[str] = []
    for frame in frames:
        path, function = str(frame.get("filename", "")).replace(os.sep, "/"), str(frame.get("name", ""))
        if _FOREIGN.search(path):
            inner = _IN_TORCH.search(path)
            marker = MARKERS.get((inner[1], function)) if inner else None
            if marker not in (None, BLOCKING) and (not users or markers):
                markers.append(marker)
        else:
            users.append(Site(_shown(path), int(frame.get("line") or 0), function))
    if not frames and has_frames and op == "all_reduce":
        # On a GPU the backward pass of a bucket runs in a thread of the autograd engine, which has no Python frames.
        markers.append(BACKWARD_ENGINE)
    if not markers:
        return tuple(users), events.USER
    origin = events.DDP_JOIN if events.DDP_JOIN in markers else markers[0]
    if origin == CONSTRUCTOR:
        origin = events.DDP_CONSTRUCTOR
    elif origin == BACKWARD_ENGINE:
        origin = events.DDP_UNUSED_MAP if dtype == "int32" else events.DDP_BUCKET
    return tuple(users), origin


def _shown(path: str) -> str:
    here = Path.cwd().as_posix() + "/"
    return path.removeprefix(here)


# ---- the comparison


def compare_dumps(run: RecordedRun, dumps: Mapping[int, Dump], *, root: Path | None = None) -> Comparison:
    """The comparison of a run that dumps tell of."""
    aligner = new_aligner(run)
    for rank, one in run.ranks.items():
        aligner.feed(rank, one.events)
    _know_starts(aligner)
    _know_ends(aligner, run, dumps)
    for rank, one in run.ranks.items():
        if one.waiting is not None and one.waiting.index is not None:
            aligner.last[rank] = ((one.waiting.group, 0), one.waiting.index)
    waits = any(one.waiting is not None for one in run.ranks.values())
    comparison = compare_run(run, stalled=waits, aligner=aligner, root=root)
    lacks = any(one.state == MISSING for one in run.ranks.values())
    if comparison.verdict == INCOMPLETE and not waits and not lacks:
        comparison.verdict = AGREED
    return comparison


def _know_starts(aligner: Aligner) -> None:
    for group in aligner.groups.values():
        group.start = min((min(entries) for entries in group.entries.values() if entries), default=0)


def _know_ends(aligner: Aligner, run: RecordedRun, dumps: Mapping[int, Dump]) -> None:
    """Says how far ranks went in groups of which their dumps show nothing or too little, so that none is blamed for that."""
    for group in aligner.groups.values():
        stuck = _stuck(group.entries)
        ranks = group.ranks() & set(run.ranks)
        present = [rank for rank in ranks if run.ranks[rank].state != MISSING]
        for rank in present:
            seen = max(group.ends.get(rank, 0), _enqueued(dumps.get(rank), group.entries.get(rank)))
            if not group.entries.get(rank) and _has_wrapped(dumps.get(rank)):
                seen = _EVERYWHERE  # its entries may have left the recorder
            if seen:
                group.ends[rank] = seen
        all_there = stuck is not None and all(group.ends.get(rank, 0) > stuck for rank in present)
        for rank in ranks:
            if run.ranks[rank].state == MISSING:
                # A rank without a dump is suspected where all others wait for somebody and nobody else is missing.
                group.ends[rank] = stuck if stuck is not None and all_there else _EVERYWHERE
            elif stuck is None or all_there:
                group.ends[rank] = _EVERYWHERE  # being behind the others is not a fault where nobody waits for it


def _stuck(entries: Mapping[int, Mapping[int, Any]]) -> int | None:
    """The first collective of a group that has not returned on some rank."""
    waits = [i for found in entries.values() for i, entry in found.items() if entry.event.detail.get("done") is None]
    return min(waits, default=None)


def _enqueued(dump: Dump | None, entries: Mapping[int, Any] | None) -> int:
    """One past the last collective that a rank enqueued in a group, by the dump's own count; 0 where it has none."""
    if dump is None or not entries:
        return 0
    last = max(entries)
    number = next((str(e["pg_id"]) for e in dump.entries if e.get("collective_seq_id") == last and "pg_id" in e), None)
    return dump.enqueued.get(number, -1) + 1 if number is not None and number in dump.enqueued else 0


def _has_wrapped(dump: Dump | None) -> bool:
    return dump is not None and bool(dump.entries) and int(dump.entries[0]["record_id"]) > 0
