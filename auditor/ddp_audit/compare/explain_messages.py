"""The sentences about messages between two ranks. How gloo ends was seen in two-process runs of torch 2.13."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddp_audit.compare.explain import capital, doing, payload, place, standing
from ddp_audit.compare.run import EXITED, KILLED, RAISED, RankRun
from ddp_audit.events import POINT_TO_POINT, Event

_LARGER = (
    "More comes than the receiver has room for: with gloo that aborts the receiver's process, with NCCL the ranks hang or mix data."
)
_SMALLER = (
    "Less comes than the receiver has room for: with gloo the rest of its tensor stays as it was and nobody notices, with NCCL the "
    "ranks hang or mix data."
)
_SIZES = "The bytes do not fit: with gloo more than fits aborts the receiver and less goes unnoticed, with NCCL the ranks hang."
_TYPES = (
    "Nothing checks the type: the bytes are taken as they come, so equal widths give wrong numbers without an error; with gloo "
    "greater ones abort the receiver."
)


def mismatch(kind: str, source: int, target: int, sent: Event | None, received: Event | None) -> str:
    """The explanation of a message whose ends do not fit."""
    if sent is None or received is None:
        raise ValueError("a mismatch has two ends")
    sides = (
        f"Rank {source} sends{payload(sent).removeprefix(' of')} from {place(sent)}; rank {target} receives "
        f"{payload(received).removeprefix(' of ')} at {place(received)}."
    )
    if kind == "dtype":
        return f"{sides} {_TYPES}"
    if sent.dtype != received.dtype or sent.numel is None or received.numel is None:
        return f"{sides} {_SIZES}"
    return f"{sides} {_LARGER if sent.numel > received.numel else _SMALLER}"


def other_tags(source: int, target: int, sent: Event, received: Event) -> str:
    """The explanation of a send and a receive of two tags, in which both ranks wait."""
    return (
        f"Rank {source} is in {doing(sent)}; rank {target} is in {doing(received)}. A receive takes messages of its own tag only "
        f"({sent.detail.get('tag')} is sent, {received.detail.get('tag')} is asked for), so each waits until the timeout."
    )


def circle(events: Mapping[int, Event]) -> str:
    """The explanation of ranks that wait for each other, at least one in a message."""
    sides = "; ".join(f"rank {rank} is in {doing(event)}" for rank, event in events.items())
    held = [rank for rank, event in events.items() if event.op in POINT_TO_POINT]
    if len(held) == len(events):
        advice = "Let one of them send while the other receives, or issue both with batch_isend_irecv and wait afterwards."
    else:
        advice = " ".join(filter(None, (_not_answered(event, events) for event in events.values() if event.op in POINT_TO_POINT)))
    sends = all(event.op == "send" for event in events.values())
    why = " A blocking send returns when it is received, however small it is." if sends else ""
    return (
        f"{capital(sides)}. They wait in a circle: each comes to what another waits for only after its own call has "
        f"returned.{why} {advice}"
    )


def _not_answered(event: Event, events: Mapping[int, Event]) -> str:
    """What to look for where the other rank of a message waits in something else."""
    peer = event.detail.get("peer")
    other = events.get(peer) if peer is not None else None
    answer = "recv" if event.op == "send" else "send"
    if other is None or other.op in POINT_TO_POINT:
        return ""
    either = f"Either it is missing, or it comes after the {other.op} and belongs before it."
    return f"Rank {peer} has not reached a {answer} for it. {either}"


def astray(pairs: Sequence[tuple[int, Event, int, Event]], *, is_sure: bool) -> str:
    """The explanation of messages to and from ranks that have none for them. `pairs`: a send with its rank, a receive with its.

    `is_sure`: nothing can come that would meet them.
    """
    told = []
    for source, sent, target, received in pairs:
        to, expected = sent.detail.get("peer"), received.detail.get("peer")
        if target == to:
            wrong = f"rank {target} receives from rank {expected} at {place(received)}, which sends it nothing more"
            told.append(f"Rank {source} sends to rank {target} from {place(sent)}, but {wrong}.")
        else:
            instead = f"which sends to rank {to} instead, from {place(sent)}"
            told.append(f"Rank {target} receives from rank {source} at {place(received)}, {instead}.")
    which = "one of the two" if len(pairs) == 1 else "one of each pair"
    end = (
        f"Nothing else is left that could meet them: {which} names the wrong peer."
        if is_sure
        else f"Most likely {which} names the wrong peer."
    )
    return f"{' '.join(told)} {end}"


def missing(rank: int, event: Event, lacking: int, run: RankRun) -> str:
    """The explanation of a message whose other rank has ended, or does not come."""
    answer = "receives" if event.op == "send" else "sends"
    gone = run.state in (EXITED, RAISED, KILLED)
    end = f"Rank {lacking} never {answer} it." if gone else f"It waits until rank {lacking} {answer} it."
    return f"Rank {rank} is in {doing(event)}. Rank {lacking} {standing(run)}. {end}"


def extra(rank: int, event: Event, lacking: int, run: RankRun) -> str:
    """The explanation of a message without a partner in a run that has ended in order."""
    answer = "received" if event.op == "send" else "sent"
    return (
        f"Rank {rank} ended with {doing(event)}, which rank {lacking} never {answer}. The run ended all the same, as nobody waited "
        "for it; a wait for it, or another backend, would hang until the timeout."
    )
