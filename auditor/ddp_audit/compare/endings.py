"""How a rank is predicted to end, how it ended, and whether the two are the same.

A prediction that ends otherwise than the run is wrong, however many collectives before that agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ddp_audit.compare.explain import capital, code_text, exception_text, raised_at, rank_list, standing
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RankRun, RecordedRun, last_of
from ddp_audit.compare.termination import exited_in_order, failed_by_itself, failed_by_peer
from ddp_audit.events import EXCEPTION

# Of a prediction and of a run.
RETURNS = "returns"  # it comes to its end
EXITS = "exits"  # with a code other than 0
FAILS = "fails"  # by an exception of its own
WAITS = "waits"  # forever, in its last collective
ABORTS = "aborts"  # a rank's process is ended in its last collective, and the others lose their partner
# Of a prediction alone.
UNKNOWN = "unknown"  # it was followed no further
# Of a run alone.
KILLS = "killed"  # by a signal that no launcher sends
STOPPED = "stopped"  # ended from outside, because of another rank or of the user
OPEN = "open"  # it goes on, or nothing is known of its end


@dataclass(frozen=True, slots=True)
class End:
    """How one rank ends. `text` goes on after the rank's name; of `UNKNOWN` it is the reason."""

    kind: str
    text: str = ""
    error: str = ""  # the type of the exception
    code: int | None = None


def end_of(rank: int, run: RecordedRun) -> End:
    """How a rank of a recorded run ended."""
    one = run.ranks.get(rank)
    if one is None or one.state == MISSING or one.untraced:
        return End(OPEN, "left no trace of its end")
    if exited_in_order(one):
        return End(RETURNS, "completed")
    if one.state == EXITED:
        return End(EXITS, f"exited{code_text(one.code)}", code=one.code)
    alone = not any(failed_by_itself(other) for other in run.ranks.values())
    if one.state == RAISED and failed_by_itself(one):
        at = raised_at(one)
        text = f"failed: {exception_text(one) or 'an exception'}{f' ({at})' if at is not None else ''}"
        raised = last_of(one.events, EXCEPTION)
        return End(FAILS, text, "" if raised is None else str(raised.detail.get("type", "")).rsplit(".", 1)[-1])
    if one.state == KILLED and failed_by_itself(one):
        return End(ABORTS if one.waiting is not None else KILLS, f"was killed{code_text(one.code)}")
    if alone and _stood_for_good(one, run):
        return End(WAITS, _waited(one))
    if one.state in (RAISED, KILLED):
        return End(STOPPED, "was ended from outside")
    return End(OPEN, standing(one))


def _stood_for_good(one: RankRun, run: RecordedRun) -> bool:
    """Whether a rank waited until the launcher ended it for that, the collective gave up, or all that it waited for had left."""
    if failed_by_peer(one):
        return True
    gone = run.meta.get("killed") or any(failed_by_peer(r) or exited_in_order(r) for r in run.ranks.values())
    return one.waiting is not None and bool(gone)


def _waited(one: RankRun) -> str:
    return f"waited in {one.waiting.what}{f' at {one.waiting.site}' if one.waiting.site else ''}" if one.waiting else "waited"


def ended_otherwise(predicted: Mapping[int, End], recorded: Mapping[int, End]) -> str:
    """In what prediction and run end differently, in a sentence; empty where they do not, or where one of them is not known."""
    wrong = {rank: (end, recorded[rank]) for rank, end in sorted(predicted.items()) if _is_wrong(end, recorded[rank])}
    if not wrong:
        return ""
    # The failure of one rank explains how the others ended: it comes first.
    order = (FAILS, KILLS, ABORTS, EXITS, WAITS, RETURNS)
    first = min(wrong, key=lambda rank: (order.index(wrong[rank][1].kind), rank))
    expected, real = wrong[first]
    same = [rank for rank, ends in wrong.items() if ends == (expected, real)]
    was = "was" if len(same) == 1 else "were"
    return f"{capital(rank_list(same))} {real.text}, and {was} predicted to {_TO[expected.kind]}{_with(expected)}."


_TO = {RETURNS: "complete", EXITS: "exit", FAILS: "fail", WAITS: "wait forever", ABORTS: "be aborted"}


def _with(end: End) -> str:
    if end.kind == EXITS and end.code is not None:
        return code_text(end.code)
    if end.kind in (FAILS, WAITS) and end.text:
        return f" {'with' if end.kind == FAILS else 'in'} {end.text}"
    return ""


def _is_wrong(predicted: End, recorded: End) -> bool:
    if predicted.kind == UNKNOWN or recorded.kind in (STOPPED, OPEN):
        return False
    if predicted.kind == recorded.kind:
        if predicted.kind == FAILS:
            return bool(predicted.error and recorded.error and predicted.error != recorded.error)
        return predicted.kind == EXITS and predicted.code is not None and predicted.code != recorded.code
    # What gloo does to a rank whose partner is in another collective depends on the sizes: it ends by a signal, an error, or waits.
    return not (predicted.kind == ABORTS and recorded.kind in (FAILS, WAITS, KILLS))


def reasons(predicted: Mapping[int, End], recorded: Mapping[int, End], reached: Collection[int]) -> Iterator[str]:
    """Why nothing is known of how some ranks end: of the prediction first, then of the run.

    A rank that was ended from outside where it was predicted to wait, in a collective that it reached, did wait.
    """
    yield from dict.fromkeys(end.text for end in predicted.values() if end.kind == UNKNOWN)
    for rank, end in sorted(predicted.items()):
        real = recorded[rank]
        waited = end.kind in (WAITS, ABORTS) and real.kind == STOPPED and rank in reached
        if real.kind in (STOPPED, OPEN) and not waited:
            yield f"rank {rank} {real.text}"
