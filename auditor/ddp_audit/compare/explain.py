"""The sentences of a comparison: what torch was doing on each rank, and what to think of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ddp_audit.compare.run import EMPTY_FILE, EXITED, KILLED, MISSING, RAISED, WAITING, RankRun, backwards, last_of
from ddp_audit.events import (
    COLLECTIVE,
    DDP_BUCKET,
    DDP_BUFFERS,
    DDP_CONSTRUCTOR,
    DDP_REBUILD,
    DDP_UNUSED_MAP,
    EXCEPTION,
    EXIT,
    OBJECT,
    ORIGINS,
    POINT_TO_POINT,
    STACK,
    SYNC_BATCHNORM,
    USER,
    Event,
    Site,
)

_MOST_PARTS = 12
BARRIERS = frozenset({"barrier", "monitored_barrier"})

# What a mismatch leads to. gloo: seen in two-process runs of torch 2.13; NCCL: from its documentation.
THINK = {
    "operation": "The two cannot meet: the ranks wait for each other until the timeout of the process group.",
    "size": "torch needs equal sizes here: with gloo one rank aborts or goes on with part of the data, with NCCL the ranks "
    "hang or mix data.",
    "dtype": "Nothing checks the type: with gloo equal widths give wrong numbers without an error, and unequal widths abort "
    "one rank.",
    "reduce-op": "No backend checks this: the run goes on with wrong numbers.",
    "root": "Each rank waits for another one to send or to receive until the timeout of the process group.",
}


def rank_list(ranks: Iterable[int]) -> str:
    """Ranks in few words: ranges folded, and of very many scattered ones the first.

    >>> rank_list([0]), rank_list([1, 0]), rank_list([0, 2, 3, 4, 9]), rank_list(range(0, 90, 3))
    ('rank 0', 'ranks 0 and 1', 'ranks 0, 2-4 and 9', 'ranks 0, 3, 6, 9, 12, 15, 18, 21 and 22 more')
    """
    ordered = sorted(set(ranks))
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    parts: list[str] = []
    start = previous = ordered[0]
    for rank in [*ordered[1:], -1]:
        if rank == previous + 1:
            previous = rank
            continue
        if previous - start < 2:
            parts.extend(str(r) for r in range(start, previous + 1))
        else:
            parts.append(f"{start}-{previous}")
        start = previous = rank
    if len(parts) > _MOST_PARTS:
        shown = parts[: _MOST_PARTS - 4]
        left = len(ordered) - sum(1 if "-" not in part else 1 - int(part.split("-")[0]) + int(part.split("-")[1]) for part in shown)
        parts = [*shown, f"{left:,} more"]
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"ranks {text}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "collective"), counted(1200, "collective"), counted(0, "pass", "passes")
    ('1 collective', '1,200 collectives', '0 passes')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def is_are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def frames(event: Event) -> tuple[Site, ...]:
    """The user's frames, innermost first; the site alone where no stack was kept, and nothing where neither was."""
    if event.stack:
        return event.stack
    return () if event.site is None else (event.site,)


def place(event: Event) -> str:
    """`train.py:224`, and the caller's line where another function called it."""
    sites = lines(event)
    if not sites:
        return "an unknown place"
    if len(sites) > 1:
        return f"{sites[0]} (called from {sites[1]})"
    return str(sites[0])


def lines(event: Event) -> list[Site]:
    """The user's frames without those that repeat the line of the one before, as a comprehension's does."""
    found: list[Site] = []
    for site in frames(event):
        if not found or (site.path, site.line) != (found[-1].path, found[-1].line):
            found.append(site)
    return found


def payload(event: Event) -> str:
    """` of 1,024 float32`; empty for a barrier and where the size is unknown."""
    if event.op in BARRIERS or event.numel is None:
        return ""
    return f" of {event.numel:,} {event.dtype or 'elements'}"


def name(event: Event) -> str:
    """What torch was doing, without article and place: `DDP buffer broadcast of 64 float32`."""
    size = payload(event)
    if event.origin in (DDP_BUFFERS, DDP_BUCKET):
        return ORIGINS[event.origin] + size
    if event.origin == DDP_CONSTRUCTOR:
        return f"{event.op}{size} of the DDP constructor"
    if event.origin in (DDP_REBUILD, DDP_UNUSED_MAP):
        return f"{event.op}{size} of the {ORIGINS[event.origin]}"
    if event.origin == SYNC_BATCHNORM:
        return f"{event.op}{size} of SyncBatchNorm"
    if event.op in POINT_TO_POINT:
        op = f"i{event.op}" if event.detail.get("async") else event.op
        tag = f" with tag {event.detail['tag']}" if event.detail.get("tag") else ""
        return f"{op}{size}{event.toward}{tag}"
    if event.origin == OBJECT:
        return f"{event.op}{size} of an object collective"
    if event.origin == USER:
        parts = [event.reduce_op or "", f"root {event.root}" if event.root is not None else ""]
        extra = ", ".join(part for part in parts if part)
        made = f" by {event.detail['library']}" if event.detail.get("library") else ""
        return f"{event.op}{size}{made}" + (f" ({extra})" if extra else "")
    return f"{event.op}{size} of {ORIGINS.get(event.origin, event.origin)}"


def phase(event: Event, forward: Event | None) -> str:
    """` (its forward without gradients)`: the part of the step that a collective of torch's own belongs to; else empty."""
    if event.origin in (DDP_BUFFERS, DDP_REBUILD, SYNC_BATCHNORM):
        grad = None if forward is None else forward.detail.get("grad")
        if grad is None:
            return " in its forward"
        return " in a forward with gradients" if grad else " in a forward without gradients"
    if event.origin in (DDP_BUCKET, DDP_UNUSED_MAP):
        return " in its backward"
    return ""


def doing(event: Event, forward: Event | None = None) -> str:
    """`a DDP buffer broadcast of 64 float32 in its forward, from train.py:224`."""
    text = name(event)
    article = "an" if text[0] in "aeiou" else "a"
    return f"{article} {text}{phase(event, forward)}, from {place(event)}"


def code_text(code: int | None) -> str:
    """How a process ended, in words: `with code 1`, `by signal 9`; empty where unknown."""
    if code is None:
        return ""
    return f" by signal {-code}" if code < 0 else f" with code {code}"


def exception_text(run: RankRun) -> str:
    """The type and first line of the exception that left the script, shortened; empty where none was recorded."""
    event = last_of(run.events, EXCEPTION)
    if event is None:
        return ""
    text = str(event.detail.get("text", "")).strip().splitlines()
    kind = str(event.detail.get("type", "an exception"))
    # gloo starts its texts with the file of its own source that noticed the error.
    first = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", text[0]) if text else ""
    return f"{kind}: {textwrap.shorten(first, 120, placeholder=' ..')}" if first else kind


def raised_at(run: RankRun) -> Site | None:
    """The user's innermost line in the traceback of the exception that left the script; None where none was recorded."""
    event = last_of(run.events, EXCEPTION) if run.state == RAISED else None
    return None if event is None else next(iter(frames(event)), None)


def left_at(run: RankRun) -> Site | None:
    """The user's line at which a rank's process ended: by `sys.exit` or `os._exit`, or by a fatal signal."""
    if run.state == KILLED:
        return run.stands if run.fatal else None
    event = last_of(run.events, EXIT) if run.state == EXITED else None
    return None if event is None else next(iter(frames(event)), None)


def last_text(run: RankRun) -> str:
    """The last thing that a rank recorded, with its place: `all_reduce of 1 float32 (user call) at train.py:88`."""
    if run.last:
        return run.last
    for event in backwards(run.events):
        if event.kind == COLLECTIVE or (event.kind != STACK and frames(event)):
            where = frames(event)
            return event.what + (f" at {where[0]}" if where else "")
    return "nothing recorded"


def last_collective(run: RankRun) -> Event | None:
    return next((event for event in backwards(run.events) if event.kind == COLLECTIVE), None)


# What the Flight Recorder says of a collective on a device, where it says so at all.
_ON_DEVICE = {"started": ", which its device has begun", "scheduled": ", which its device has not begun"}


def standing(run: RankRun, now: float | None = None) -> str:
    """Where a rank is, as the rest of a sentence about it: `has been waiting in broadcast .. at train.py:224 for 3.1 s`."""
    if run.damage and run.state == MISSING:
        return f"left a trace file that is not readable: {run.damage}"
    if run.damage:
        return f"has a trace that is read as far as it is whole ({run.damage}); last recorded: {last_text(run)}"
    if run.state == MISSING:
        return "left an empty trace file, as a full disk leaves it" if run.last == EMPTY_FILE else "left no trace"
    if run.untraced:
        stood = f", and it stood at {run.stands} last" if run.stands is not None else ""
        return f"was traced no further, because its tracer ended{stood}; last recorded: {last_text(run)}"
    if run.silent and run.locked:
        return f"has not answered for {run.silent:.1f} s: a call in C locks its interpreter, {last_text(run)}"
    if run.silent:
        seen = f", and was last seen at {run.seen}" if run.seen is not None else ""
        return (
            f"has not answered for {run.silent:.1f} s, as a process that is stopped or whose interpreter is locked by a call "
            f"in C{seen}; last recorded: {last_text(run)}"
        )
    if run.state == WAITING:
        event = run.waiting or last_collective(run)
        if event is not None:
            time = f" for {now - event.time:.1f} s" if now is not None and 0 < event.time <= now else ""
            where = frames(event)
            at = f" at {where[0]}" if where else ""
            verb = "has been waiting" if time else "waits"
            return f"{verb} in {event.what}{at}{time}{_ON_DEVICE.get(str(event.detail.get('state')), '')}"
        return f"waits; last recorded: {last_text(run)}"
    if run.state == EXITED:
        site = left_at(run)
        lingers = ", and its process did not end with it" if run.lingers else ""
        return f"exited{code_text(run.code)}{f' at {site},' if site else ''} after {_last_done(run)}{lingers}"
    if run.state == RAISED:
        lingers = ", and its process did not end with it" if run.lingers else ""
        error, site = exception_text(run) or "an exception", raised_at(run)
        return f"ended with {error}{f' at {site}' if site else ''}, after {_last_done(run)}{lingers}"
    if run.state == KILLED:
        how = f"crashed ({run.fatal})" if run.fatal else f"was killed{code_text(run.code)}"
        how = "was ended by ddp-audit, because the run had stalled:" if run.stopped else how
        if run.last.startswith(("in ", "at ")):
            return f"{how} {run.last}"
        how = how.rstrip(":")
        return f"{how}{f', and was last seen at {run.seen}' if run.seen else ''}; last recorded: {last_text(run)}"
    if run.blocked and run.seen is not None:
        time = f" for {now - run.blocked:.1f} s" if now is not None and run.blocked <= now else ""
        return f"has been waiting in torch.distributed, in no collective, at {run.seen}{time}; last recorded: {last_text(run)}"
    if run.stands is not None:
        return f"is {last_text(run)}"
    return f"is running; last recorded: {last_text(run)}"


def _last_done(run: RankRun) -> str:
    """The last collective before an end: the last record is the end itself, which the sentence has named already."""
    event = last_collective(run)
    if event is None:
        return "no collective"
    where = frames(event)
    return event.what + (f" at {where[0]}" if where else "")


def mismatch(kind: str, parts: Sequence[tuple[list[int], Event, Event | None]], hint: str) -> str:
    """The explanation of ranks that stand in different collectives. `parts`: ranks, their event, the forward it belongs to."""
    sides = "; ".join(f"{rank_list(ranks)} {is_are(ranks)} in {doing(event, forward)}" for ranks, event, forward in parts)
    think = THINK.get(kind, "")
    if kind == "order":
        think = "The ranks issue the same two collectives in opposite order, so each meets the other one."
    elif kind == "root":
        roots = ", ".join(f"{rank_list(ranks)} {'takes' if len(ranks) == 1 else 'take'} root {e.root}" for ranks, e, _ in parts)
        think = f"They disagree about the root ({roots}). {think}"
    elif kind == "reduce-op":
        ops = ", ".join(f"{e.reduce_op} on {rank_list(ranks)}" for ranks, e, _ in parts)
        think = f"They disagree about the reduction ({ops}). {think}"
    return " ".join(part for part in (capital(sides) + ".", hint, think) if part)


def missing(
    holders: Mapping[int, Event], forwards: Mapping[int, Event | None], lacking: Sequence[int], runs: Mapping[int, RankRun]
) -> str:
    """The explanation of a collective that some ranks entered and others never will, or do not."""
    first = min(holders)
    there = f"{capital(rank_list(holders))} {is_are(list(holders))} in {doing(holders[first], forwards.get(first))}."
    absent = [f"Rank {rank} {standing(runs[rank])}." if rank in runs else f"Rank {rank} left no trace." for rank in lacking[:4]]
    rest = lacking[4:]
    more = [f"{capital(rank_list(rest))} {is_are(rest)} also missing."] if rest else []
    gone = all(rank in runs and runs[rank].state in (EXITED, RAISED, KILLED) for rank in lacking)
    who = rank_list(lacking)
    end = f"The collective cannot finish without {who}." if gone else f"The collective waits for {who}."
    return " ".join([there, *absent, *more, end])


def extra(
    holders: Mapping[int, Event], forwards: Mapping[int, Event | None], lacking: Sequence[int], predicted: bool = False
) -> str:
    """The explanation of a last collective that only some ranks enter, in a run that ended in order or in a prediction."""
    first = min(holders)
    end = "ends" if predicted and len(holders) == 1 else "end" if predicted else "ended"
    text = (
        f"{capital(rank_list(holders))} {end} with {doing(holders[first], forwards.get(first))}, which {rank_list(lacking)} "
        f"never {'enter' if len(lacking) > 1 else 'enters'}."
    )
    if predicted:
        return f"{text} It waits until the timeout of the process group, unless it is a small send of a root."
    return (
        f"{text} The run ended all the same, as a root can return before the others have received; on another backend, or with "
        "more data, it waits until the timeout."
    )


def other_groups(waits: Sequence[tuple[int, Event, str]]) -> str:
    """The explanation of ranks that wait for each other in collectives of different groups: rank, collective, group."""
    sides = "; ".join(f"rank {rank} is in {doing(event)} on {group}" for rank, event, group in waits)
    return (
        f"{capital(sides)}. Each waits for the other, because the ranks use the groups in different order: issue collectives "
        "of different groups in one order on all ranks."
    )


def crossed(parts: Sequence[tuple[list[int], Event, Event | None]], reason: str) -> str:
    first = parts[0][1]
    everyone = [rank for ranks, _, _ in parts for rank in ranks]
    sides = "; ".join(f"{rank_list(ranks)} from {doing(event, forward)}" for ranks, event, forward in parts)
    size = payload(first)
    return f"{capital(rank_list(everyone))} met in one {first.op}{size} from different places: {sides}. {reason}"


CROSSED_FORWARD = (
    "One rank's evaluation took the place of another's training forward. The run goes on, because torch skips the buffer "
    "broadcast of the forward after one without gradients; it breaks when another collective comes first or when no training "
    "forward follows."
)
CROSSED_SWAPPED = "The ranks issue two collectives of equal shape in opposite order: nothing fails, and the values are mixed."
CROSSED_BARRIER = "A barrier carries no values, so nothing is mixed, but the ranks wait for each other at different places."
CROSSED_OTHER = "The arguments are equal, so nothing fails here, but the ranks exchange values of different meaning."
