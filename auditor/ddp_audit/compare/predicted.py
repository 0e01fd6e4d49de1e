"""A prediction compared with the record of a real run: rank by rank, collective by collective.

A difference is news about the prediction, not about the run: it never changes what a comparison of the ranks comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import ClassVar, TypeAlias

from ddp_audit.compare import endings
from ddp_audit.compare.endings import ABORTS, KILLS, RETURNS, STOPPED, UNKNOWN, WAITS, End, end_of, ended_otherwise, reasons
from ddp_audit.compare.explain import BARRIERS
from ddp_audit.compare.run import RecordedRun, same_file
from ddp_audit.events import COLLECTIVE, ROOTED, Event

FIELDS = ("op", "origin", "numel", "dtype", "root", "reduce_op", "site")
LENGTH = "length"  # what differs where only one of the two has a further collective
OUTCOME = "outcome"  # what differs where the two end differently
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


@dataclass(frozen=True, slots=True)
class AgreedToEnd:
    """Prediction and record are the same, and end in the same way. `ends` says how, by rank."""

    ends: Mapping[int, End]
    name: ClassVar[str] = "agreed-to-end"


@dataclass(frozen=True, slots=True)
class AgreedUntil:
    """Nothing differs as far as both are known. `why` says why that is not to the end."""

    why: str
    name: ClassVar[str] = "agreed-until"


@dataclass(frozen=True, slots=True)
class Disagrees:
    """Something differs. `kind` is a field of `FIELDS`, `length`, or `outcome`, where the two end differently; `where` says it in a
    sentence. `difference` is the collective, None for an outcome."""

    kind: str
    where: str
    difference: Difference | None = None
    name: ClassVar[str] = "disagrees"


Result: TypeAlias = AgreedToEnd | AgreedUntil | Disagrees


@dataclass(slots=True)
class Agreement:
    """How far prediction and record agree. `compared` counts collectives by rank; `result` says what became of it.

    `rows` are both sequences of each rank, side by side. Collectives that were recorded after the end of a prediction which was
    followed no further, or long after a difference, are counted in `beyond` and are not among the rows.
    """

    world_size: int = 0
    compared: dict[int, int] = field(default_factory=dict)
    result: Result = field(default_factory=lambda: AgreedUntil("no rank was compared"))
    rows: dict[int, list[Row]] = field(default_factory=dict)
    beyond: dict[int, int] = field(default_factory=dict)

    @property
    def difference(self) -> Difference | None:
        """The first collective that differs, where one does."""
        return self.result.difference if isinstance(self.result, Disagrees) else None


def hold_against(
    sequences: Mapping[int, Sequence[Event]],
    recorded: RecordedRun,
    *,
    ends: Mapping[int, End] | None = None,
    certain: Mapping[int, int] | None = None,
    unknown: str = "",
) -> Agreement:
    """Compare predicted sequences with a recorded run.

    `ends` says how each rank is predicted to end (by default it returns), and where it waits forever its last event is what it
    waits in. `certain` says for a rank how many of its events hold; what follows is not compared. `unknown` is what the prediction
    does not know of all ranks. Fields that either side does not know agree. An event that stands for one or more (`repeats`) takes
    all of its origin that follow one another.
    """
    result = Agreement(recorded.world_size)
    differences: list[Difference] = []
    expected_ends: dict[int, End] = {}
    real_ends: dict[int, End] = {}
    for rank, events in sorted(sequences.items()):
        run = recorded.ranks.get(rank)
        limit = (certain or {}).get(rank)
        end = (ends or {}).get(rank, End(RETURNS))
        if limit is not None and end.kind != UNKNOWN:
            end = End(UNKNOWN, unknown or "what follows was not certain")
        expected_ends[rank], real_ends[rank] = end, end_of(rank, recorded)
        if run is None:
            continue
        expected = [e for e in (events if limit is None else events[:limit]) if e.kind == COLLECTIVE]
        # How far a rank comes until another one's process is gone is a matter of moments.
        complete = end.kind not in (UNKNOWN, ABORTS)
        real = [e for e in run.events if e.kind == COLLECTIVE]
        # A rank that was ended from outside, or still waits, may have come less far.
        rows = list(_rows(expected, real, complete, real_ends[rank].kind not in _LESS_FAR))
        result.rows[rank] = rows
        result.compared[rank] = next((n for n, row in enumerate(rows) if row.what is not None), len(rows))
        result.beyond[rank] = len(real) - sum(row.recorded is not None for row in rows)
        apart = next((row for row in rows if row.what not in (None, OPEN)), None)
        if apart is not None:
            at = result.compared[rank]
            differences.append(_difference(rank, at, rows[at:]))
    first = min(differences, key=lambda d: (d.index, d.rank), default=None)
    result.result = _result(first, expected_ends, real_ends, result, unknown)
    return result


_LESS_FAR = (STOPPED, KILLS, endings.OPEN, WAITS, ABORTS)


def _result(
    first: Difference | None, expected: Mapping[int, End], real: Mapping[int, End], found: Agreement, unknown: str
) -> Result:
    otherwise = ended_otherwise(expected, real)
    if first is not None and (first.what != LENGTH or not otherwise):
        return Disagrees(first.what, _where(first), first)
    if otherwise:
        return Disagrees(OUTCOME, otherwise)
    short = next((rank for rank, rows in sorted(found.rows.items()) if any(row.what == OPEN for row in rows)), None)
    if short is not None and real[short].kind in (WAITS, ABORTS):
        waits = next(row.predicted for row in found.rows[short] if row.predicted is not None and row.what == OPEN)
        return Disagrees(OUTCOME, f"Rank {short} {real[short].text}, and was predicted to go on to {waits.what}.")
    if not found.compared:
        return AgreedUntil("no rank left a trace")
    reached = [rank for rank, rows in found.rows.items() if all(row.what is None for row in rows)]
    why = next((reason for reason in (*reasons(expected, real, reached), unknown) if reason), "")
    return AgreedUntil(why) if why else AgreedToEnd(dict(expected))


def _where(first: Difference) -> str:
    def side(event: Event | None) -> str:
        return "no further one" if event is None else f"{event.what}{f' at {event.site}' if event.site else ''}"

    return f"Collective {first.index} of rank {first.rank}: predicted {side(first.predicted)}, recorded {side(first.recorded)}."


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
        what = LENGTH if exited else OPEN
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
