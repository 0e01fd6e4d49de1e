"""A prediction held against the record of a real run: rank by rank, collective by collective.

A difference is news about the prediction, not about the run: it never changes what a comparison of the ranks comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from ddp_audit.compare.explain import BARRIERS
from ddp_audit.compare.run import EXITED, RAISED, RecordedRun, same_file
from ddp_audit.events import COLLECTIVE, ROOTED, Event

FIELDS = ("op", "origin", "numel", "dtype", "root", "reduce_op", "site")
LENGTH = "length"  # what differs where only one of the two has a further collective
OPEN = "open"  # a collective that only one of the two has, where that says nothing: the other was followed no further
_ALIGNED = 200  # collectives after the first difference that are looked at
_SKIPPED = 8  # collectives that are left out at most to bring the two together again


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


@dataclass(frozen=True, slots=True)
class Row:
    """A predicted and a recorded collective of a rank that belong together, or one without a partner.

    `index` counts the rank's recorded collectives from 0, or the predicted ones where none was recorded. `what` is None where
    the two agree, else the field that differs, `length` for one alone, or `open` for one alone that need have no partner.
    """

    index: int
    predicted: Event | None
    recorded: Event | None
    what: str | None = None


@dataclass(slots=True)
class Agreement:
    """How far prediction and record agree. `compared` counts collectives by rank, `whole` says that the prediction went as far.

    `rows` are both sequences of each rank, side by side. Collectives that were recorded after the end of a prediction which was
    followed no further, or long after a difference, are counted in `beyond` and are not among the rows.
    """

    compared: dict[int, int] = field(default_factory=dict)
    difference: Difference | None = None
    whole: bool = True
    rows: dict[int, list[Row]] = field(default_factory=dict)
    beyond: dict[int, int] = field(default_factory=dict)


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
        rows = list(_rows(expected, real, complete, run.state in (EXITED, RAISED)))
        result.rows[rank] = rows
        result.compared[rank] = next((n for n, row in enumerate(rows) if row.what is not None), len(rows))
        result.beyond[rank] = len(real) - sum(row.recorded is not None for row in rows)
        result.whole = result.whole and complete
        apart = next((row for row in rows if row.what not in (None, OPEN)), None)
        if apart is not None:
            at = result.compared[rank]
            differences.append(_difference(rank, at, rows[at:]))
    if differences:
        result.difference = min(differences, key=lambda d: (d.index, d.rank))
    return result


def _difference(rank: int, at: int, rows: Sequence[Row]) -> Difference:
    """The first difference of a rank: what either side has next, from the first row on that does not agree."""
    predicted = next((row.predicted for row in rows if row.predicted is not None), None)
    recorded = next((row.recorded for row in rows if row.recorded is not None), None)
    what = None if predicted is None or recorded is None else difference_of(predicted, recorded)
    return Difference(rank, at, what or LENGTH, predicted, recorded)


def _rows(expected: Sequence[Event], real: Sequence[Event], complete: bool, exited: bool) -> Iterator[Row]:
    at = 0
    for number, predicted in enumerate(expected):
        if at >= len(real) or difference_of(predicted, real[at]) is not None:
            yield from _rest(expected[number:], real, at, complete, exited)
            return
        yield Row(at, predicted, real[at])
        at += 1
        while predicted.detail.get("repeats") and at < len(real) and real[at].origin == predicted.origin:
            if difference_of(predicted, real[at]) is not None:
                break
            yield Row(at, predicted, real[at])
            at += 1
    yield from _rest((), real, at, complete, exited)


def _rest(expected: Sequence[Event], real: Sequence[Event], at: int, complete: bool, exited: bool) -> Iterator[Row]:
    """Rows from the first one on that does not agree; partners are looked for, so that one collective more shifts nothing."""
    if at >= len(real):
        # A run that was ended from outside, or stands, may have come less far.
        what = LENGTH if exited and complete else OPEN
        yield from (Row(at + number, predicted, None, what) for number, predicted in enumerate(expected))
        return
    mine, theirs = expected[:_ALIGNED], real[at : at + _ALIGNED]
    if not mine and not complete:
        return
    whole = complete and exited and len(mine) == len(expected) and len(theirs) == len(real) - at
    row, column = 0, 0
    while row < len(mine) or column < len(theirs):
        together = _together_again(mine[row:], theirs[column:])
        skip, over = together or (len(mine) - row, len(theirs) - column)
        alone = LENGTH if together or whole or not mine else OPEN
        for predicted, recorded in zip_longest(mine[row : row + skip], theirs[column : column + over]):
            apart = alone if predicted is None or recorded is None else difference_of(predicted, recorded)
            yield Row(at + (row if recorded is None else column), predicted, recorded, apart)
            row, column = row + (predicted is not None), column + (recorded is not None)
        while row < len(mine) and column < len(theirs) and difference_of(mine[row], theirs[column]) is None:
            yield Row(at + column, mine[row], theirs[column])
            row, column = row + 1, column + 1


def _together_again(mine: Sequence[Event], theirs: Sequence[Event]) -> tuple[int, int] | None:
    """How many of each side to leave out so that the next two of both agree, or the last one; None where too many were."""
    for distance in range(_SKIPPED + 1):
        for skip in range(distance + 1):
            ends = list(zip(mine[skip : skip + 2], theirs[distance - skip : distance - skip + 2], strict=False))
            if ends and all(difference_of(a, b) is None for a, b in ends):
                return skip, distance - skip
    return None


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
