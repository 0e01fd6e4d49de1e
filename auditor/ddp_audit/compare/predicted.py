"""A prediction held against the record of a real run: rank by rank, collective by collective.

A difference is news about the prediction, not about the run: it never changes what a comparison of the ranks comes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddp_audit.compare.explain import BARRIERS
from ddp_audit.compare.run import EXITED, RAISED, RecordedRun, same_file
from ddp_audit.events import COLLECTIVE, ROOTED, Event

FIELDS = ("op", "origin", "numel", "dtype", "root", "reduce_op", "site")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first collective of a rank in which prediction and record differ; one of the events is None where it ended before.

    `index` counts the rank's collectives from 0, `what` is the field that differs, or `length`.
    """

    rank: int
    index: int
    what: str
    predicted: Event | None
    recorded: Event | None


@dataclass(slots=True)
class Agreement:
    """How far prediction and record agree. `compared` counts collectives by rank, `whole` says that the prediction went as far."""

    compared: dict[int, int] = field(default_factory=dict)
    difference: Difference | None = None
    whole: bool = True


def hold_against(
    sequences: Mapping[int, Sequence[Event]],
    recorded: RecordedRun,
    *,
    certain: Mapping[int, int] | None = None,
    stops: Mapping[int, int] | None = None,
    ended: bool = True,
) -> Agreement:
    """Compares predicted sequences with a recorded run.

    `certain` says for a rank how many of its events hold; what follows is not compared. `stops` says for a rank at which event
    it is predicted to stop for ever, `ended` that the prediction of all others went to their end. Fields that either side
    does not know agree. An event that stands for one or more (`repeats`) takes all of its origin that follow one another.
    """
    result = Agreement()
    differences: list[Difference] = []
    for rank, events in sorted(sequences.items()):
        run = recorded.ranks.get(rank)
        if run is None:
            continue
        limit = (certain or {}).get(rank)
        expected = [e for e in (events if limit is None else events[:limit]) if e.kind == COLLECTIVE]
        complete = ended and limit is None and rank not in (stops or {})
        real = [e for e in run.events if e.kind == COLLECTIVE]
        count, difference = _rank(rank, expected, real, complete, run.state in (EXITED, RAISED))
        result.compared[rank] = count
        result.whole = result.whole and complete
        if difference is not None:
            differences.append(difference)
    if differences:
        result.difference = min(differences, key=lambda d: (d.index, d.rank))
    return result


def _rank(
    rank: int, expected: Sequence[Event], real: Sequence[Event], complete: bool, exited: bool
) -> tuple[int, Difference | None]:
    at = 0
    for predicted in expected:
        if at >= len(real):
            # A run that was ended from outside, or stands, may have come less far.
            return at, Difference(rank, at, "length", predicted, None) if exited and complete else None
        what = difference_of(predicted, real[at])
        if what is not None:
            return at, Difference(rank, at, what, predicted, real[at])
        at += 1
        while predicted.detail.get("repeats") and at < len(real) and real[at].origin == predicted.origin:
            if difference_of(predicted, real[at]) is not None:
                break
            at += 1
    if at < len(real) and complete:
        return at, Difference(rank, at, "length", None, real[at])
    return at, None


def difference_of(predicted: Event, recorded: Event) -> str | None:
    """The first field in which a predicted and a recorded collective differ, None where they agree."""
    for name in FIELDS[:-1]:
        if name in ("numel", "dtype") and predicted.op in BARRIERS:
            continue
        if name == "root" and predicted.op not in ROOTED:
            continue
        mine, other = getattr(predicted, name), getattr(recorded, name)
        if mine is not None and other is not None and mine != other:
            return name
    if predicted.site is not None and recorded.site is not None:
        last = predicted.detail.get("end_line", predicted.site.line)
        inside = predicted.site.line <= recorded.site.line <= last
        if not inside or not same_file(predicted.site.path, recorded.site.path):
            return "site"
    return None
