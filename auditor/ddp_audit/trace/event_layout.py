"""The events of a rank without their times: what ranks that do the same share."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ddp_audit import events
from ddp_audit.compare.bulk import GRADED, Track, Tracks, add_to
from ddp_audit.compare.messages import Posts, Side, post_of
from ddp_audit.events import Event
from ddp_audit.trace.worker import layout

if TYPE_CHECKING:
    from ddp_audit.trace.definition_table import Definition, DefinitionTable

Chosen = Callable[["array[int]"], Sequence[object]]


class EventLayout:
    """`codes` has the code of each event's definition, negative for rare kinds; `indices` its index."""

    def __init__(
        self, codes: array[int], indices: array[int], table: DefinitionTable, rare: Mapping[int, str], lost: bool = False
    ) -> None:
        self._lost = lost  # earlier records were overwritten
        self._codes = codes
        self._indices = indices
        self._table = table
        self._counts = Counter(codes)
        self._often: dict[int, Definition] = {code: table.codes[code] for code in self._counts if code > 0}  # type: ignore[misc]
        self._often_kinds = {definition.kind for definition in self._often.values()}
        self.rare_positions = self._where({code for code in self._counts if code < 0})
        self._rare: dict[str, list[int]] = {}
        for position in self.rare_positions:
            self._rare.setdefault(rare[codes[position]], []).append(position)
        self._tallies: dict[str, list[tuple[Event, int]]] = {}
        self._alike: dict[int, Event] = {}
        self._forwards = self.positions_of((events.FORWARD,))
        self._take_forwards = _chooser(self._forwards)
        self._graded: dict[tuple[int, int], list[int]] = {}
        self._tracks: Tracks | None = None
        self._posts: Posts | None = None
        self._trained: dict[str, tuple[Event, Chosen]] | None = None

    def __len__(self) -> int:
        return len(self._codes)

    def _where(self, codes: set[int]) -> Sequence[int]:
        return [position for position, code in enumerate(self._codes) if code in codes] if codes else []

    def has_often(self, kinds: tuple[str, ...]) -> bool:
        return not self._often_kinds.isdisjoint(kinds)

    def positions_of(self, kinds: tuple[str, ...]) -> Sequence[int]:
        """The positions of events of frequent kinds."""
        return self._where({code for code, definition in self._often.items() if definition.kind in kinds})

    def rare_of(self, kind: str) -> Sequence[int]:
        """The positions of events of a rare kind."""
        return self._rare.get(kind, ())

    def tally(self, kind: str) -> list[tuple[Event, int]]:
        found = self._tallies.get(kind)
        if found is None:
            known = [(code, definition) for code, definition in self._often.items() if definition.kind == kind]
            found = self._tallies[kind] = [(definition.template, self._counts[code]) for code, definition in known]
        return found

    def alike(self, position: int) -> Event | None:
        """The event at a position but for time, number and value; None for a rare kind."""
        found = self._alike.get(position)
        if found is None:
            code = self._codes[position]
            if code < 0:
                return None
            found = self._often[code].template
            if found.kind == events.COLLECTIVE and self._indices[position] != layout.NO_INDEX:
                found = replace(found, index=self._indices[position])
            self._alike[position] = found
        return found

    # -- forwards

    def values_of_forwards(self, data: bytes, runs: Sequence[tuple[int, int]]) -> array[int]:
        """The values of the FORWARD records of a file that has this shape."""
        if not self._forwards:
            return array("Q")
        column = array("Q", data)[3::4]
        values = array("Q")
        for first, last in runs:
            values.extend(column[first:last])
        return array("Q", self._take_forwards(values))  # type: ignore[arg-type]

    def forward_before(self, position: int) -> int | None:
        number = bisect_left(self._forwards, position)
        return self._forwards[number - 1] if number else None

    def graded_forwards(self, first: int, last: int) -> list[int]:
        """Of all forwards the numbers of those with gradients between two positions."""
        found = self._graded.get((first, last))
        if found is None:
            numbers = range(bisect_left(self._forwards, first), bisect_left(self._forwards, last))
            found = [number for number in numbers if self._detail(self._forwards[number]).get("grad")]
            self._graded[first, last] = found
        return found

    def trained(self) -> dict[str, tuple[Event, Chosen]]:
        """By wrapper its first forward with gradients, without time and value, and what chooses its values from those of all."""
        if self._trained is None:
            models: dict[str, list[int]] = {}
            for number, position in enumerate(self._forwards):
                detail = self._detail(position)
                if detail.get("grad"):
                    models.setdefault(str(detail.get("model", "")), []).append(number)
            everything = len(self._forwards)
            self._trained = {
                model: (
                    self._often[self._codes[self._forwards[numbers[0]]]].template,
                    _chooser(numbers) if len(numbers) < everything else _all,
                )
                for model, numbers in models.items()
            }
        return self._trained

    def _detail(self, position: int) -> Mapping[str, Any]:
        detail: Mapping[str, Any] = self._often[self._codes[position]].text["detail"]
        return detail

    # -- collectives

    def tracks(self) -> Tracks:
        if self._tracks is None:
            self._tracks = self._one_track() or self._all_tracks()
        return self._tracks

    def _collectives(self) -> dict[int, Definition]:
        """Codes of collectives that have a place in a sequence."""
        return {
            code: definition
            for code, definition in self._often.items()
            if definition.kind == events.COLLECTIVE and definition.op not in events.POINT_TO_POINT
        }

    def posts(self) -> Posts:
        """What was sent and received."""
        if self._posts is None:
            self._posts = {}
            known: dict[int, tuple[Side, int]] = {}
            for code, definition in self._often.items():
                if definition.op in events.POINT_TO_POINT:
                    side = self._posts.setdefault(post_of(definition.template), Side())
                    known[code] = (side, self._table.places.payloads.number(definition.template))
            for position in self._where(set(known)):
                side, payload = known[self._codes[position]]
                side.add(payload, position)
        return self._posts

    def _one_track(self) -> Tracks | None:
        """The tracks where there is one group, counted without gaps, and forwards say nothing or one thing."""
        known = self._collectives()
        groups = {definition.text["group"] for definition in known.values()}
        if len(groups) != 1:
            return None
        grads = {self._detail(position).get("grad") for position in self._forwards}
        positions = array("I", self._where(set(known)))
        graded = {code for code, definition in known.items() if definition.text["origin"] in GRADED}
        if graded:
            first = next(position for position in positions if self._codes[position] in graded)
            if len(grads) != 1 or self._forwards[0] > first:
                return None
        indices = array("I", map(self._indices.__getitem__, positions))
        start = indices[0] if self._lost and indices else 0
        numbers = array("I", range(len(positions)))
        if indices != (numbers if not start else array("I", range(start, start + len(positions)))):
            return None
        grad = next(iter(grads), None)
        places = {code: self._table.places.number(definition.template, grad) for code, definition in known.items()}
        track = Track(array("I", [places[self._codes[position]] for position in positions]), positions, numbers, start)
        return {(next(iter(groups)), 0): track}

    def _all_tracks(self) -> Tracks:
        tracks: Tracks = {}
        lives: dict[str, int] = {}
        places: dict[tuple[int, bool | None], int] = {}
        known = self._collectives()
        grad: bool | None = None
        forwards = {code: d.text["detail"].get("grad") for code, d in self._often.items() if d.kind == events.FORWARD}
        ordinal = 0
        for position, code in enumerate(self._codes):
            if code in forwards:
                grad = forwards[code]
            elif code in known:
                place = places.get((code, grad))
                if place is None:
                    place = places[code, grad] = self._table.places.number(known[code].template, grad)
                index = self._indices[position]
                group = known[code].text["group"]
                known_index = None if index == layout.NO_INDEX else index
                add_to(tracks, lives, group, known_index, place, position, ordinal, self._lost)
                ordinal += 1
        return tracks


def _all(values: array[int]) -> Sequence[object]:
    return values


def _chooser(numbers: Sequence[int]) -> Chosen:
    """What takes the values at some places of an array."""
    if len(numbers) < 2:
        return lambda values: [values[number] for number in numbers]
    chosen: Chosen = itemgetter(*numbers)
    return chosen
