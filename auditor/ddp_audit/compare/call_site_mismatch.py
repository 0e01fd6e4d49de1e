"""Crossed places: ranks that met in one collective with equal arguments, but from different lines of the program.

Nothing fails, yet values of different meaning are exchanged: rank 0's evaluation feeds another rank's training forward, or two
sums of equal shape swap. A program may also do so on purpose: both arms of `if rank == 0:` issue the collective, or a joined
rank shadows the others. The source tells the two apart (see `branches`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ddp_audit.compare import explain
from ddp_audit.compare.branches import exclusive
from ddp_audit.compare.sequence import Crossing, Divergence, Entry, Group, Key, events_of, forwards_of, function_of, minority
from ddp_audit.events import DDP_JOIN, OBJECT, USER, Event, Site

Exclusive = Callable[[str, int, int], "bool | None"]  # whether two lines of a file exclude each other, None where unknown

_MOST = 50  # sets of places kept a group; once shifted, every collective of a run is crossed
_USER = (USER, OBJECT)


Places = dict[object, list[int]]


def places_of(holders: Iterable[tuple[int, Entry]]) -> Places:
    """The places that ranks come from, each with its ranks; empty where they are one, or may differ."""
    holders = list(holders)
    grads_known = all(entry.grad is not None for _, entry in holders)
    places: Places = {}
    for rank, entry in holders:
        origin = USER if entry.event.origin == OBJECT else entry.event.origin
        stack = explain.frames(entry.event)
        if origin == DDP_JOIN:  # a joined rank shadows the others' collectives on purpose
            return {}
        if stack:
            places.setdefault((origin, stack, entry.grad if grads_known else None), []).append(rank)
    return places if len(places) > 1 else {}


def note_places(group: Group, index: int) -> None:
    """Remembers a row whose ranks agree but come from different places."""
    holders = group.holders(index)
    places = places_of(holders.items())
    if not places:
        return
    key = frozenset(places)
    known = group.crossings.get(key)
    if known is not None:
        known.count += 1
        if index >= known.index:
            return
    elif is_full(group):
        return
    parts = [(ranks, holders[ranks[0]]) for ranks in places.values()]
    group.crossings[key] = Crossing(index, parts, 1 if known is None else known.count)


def is_full(group: Group) -> bool:
    """Whether so many sets of places are kept that no further one is."""
    return len(group.crossings) >= _MOST


class Crossed:
    """Judges crossings. `root` is the folder that sites are relative to; `exclusive_lines` answers in place of its files."""

    def __init__(self, root: Path | None = None, exclusive_lines: Exclusive | None = None) -> None:
        self.root = root or Path()
        self._exclusive = exclusive_lines or self._on_disk

    def notices(self, groups: Mapping[Key, Group]) -> list[Divergence]:
        """Those crossings that no branch explains and that stand before the first divergence of their group."""
        found = []
        for group in groups.values():
            for crossing in sorted(group.crossings.values(), key=lambda c: c.index):
                if group.mismatch is None or crossing.index < group.mismatch:
                    reason = self._reason(group, crossing)
                    if reason is not None:
                        found.append(_notice(group, crossing, reason))
        return found

    def _reason(self, group: Group, crossing: Crossing) -> str | None:
        """Why a crossing is worth a notice; None for a legal one."""
        first_ranks, first = crossing.parts[0]
        for ranks, other in crossing.parts[1:]:
            if len({first.grad, other.grad} - {None}) == 2:
                return explain.CROSSED_FORWARD
            nexts = [group.entries[r].get(crossing.index + 1) for r in (first_ranks[0], ranks[0])]
            sites = [None if entry is None else _site(entry.event) for entry in (first, other, *nexts)]
            if not self._is_legal(first.event, other.event, sites):
                if first.event.op == "barrier":
                    return explain.CROSSED_BARRIER
                return explain.CROSSED_SWAPPED if _swapped(sites) or self._swapped_texts(sites) else explain.CROSSED_OTHER
        return None

    def _is_legal(self, a: Event, b: Event, sites: Sequence[Site | None]) -> bool:
        if a.origin != b.origin and not (a.origin in _USER and b.origin in _USER):
            return False
        parting = _parting(explain.frames(a), explain.frames(b))
        if parting is None:
            return False
        answer = self._exclusive(parting[0].path, parting[0].line, parting[1].line)
        if answer is None:
            # Without the source: one function's own two calls are taken for the arms of a branch, unless they come back
            # swapped.
            one_function = sites[0] is not None and sites[1] is not None and function_of(sites[0]) == function_of(sites[1])
            return a.origin in _USER and one_function and not _swapped(sites)
        return answer and not self._swapped_texts(sites)

    def _swapped_texts(self, sites: Sequence[Site | None]) -> bool:
        """Whether the source text of the calls is swapped: `if ..: f(a); f(b)` against `else: f(b); f(a)`."""
        a, b, next_a, next_b = (None if site is None else self.text(site) for site in sites)
        return a is not None and b is not None and a != b and a == next_b and b == next_a

    def _on_disk(self, path: str, a: int, b: int) -> bool | None:
        return exclusive(self.root / path, a, b)

    def text(self, site: Site) -> str | None:
        """The line of source at a site without indentation; None where it cannot be read."""
        try:
            lines = (self.root / site.path).read_text("utf-8", "replace").splitlines()
        except (OSError, ValueError):
            return None
        return lines[site.line - 1].strip() if 0 < site.line <= len(lines) else None


def _notice(group: Group, crossing: Crossing, reason: str) -> Divergence:
    holders = group.holders(crossing.index).items()
    parts = [(ranks, entry.event, entry.own_forward) for ranks, entry in crossing.parts]
    times = f" It happened {crossing.count:,} times." if crossing.count > 1 else ""
    return Divergence(
        group.name,
        crossing.index,
        "crossed",
        events_of(holders),
        minority([ranks for ranks, _ in crossing.parts], len(group.ranks())),
        explain.crossed(parts, reason + times),
        crossing.count,
        forwards_of(holders),
    )


def _site(event: Event) -> Site | None:
    return next(iter(explain.frames(event)), None)


def _swapped(sites: Sequence[Site | None]) -> bool:
    """Whether two ranks visit two places in opposite order; `sites`: a's, b's, a's next, b's next."""
    a, b, next_a, next_b = sites
    return a is not None and b is not None and a != b and a == next_b and b == next_a


def _parting(a: Sequence[Site], b: Sequence[Site]) -> tuple[Site, Site] | None:
    """The first frames, from the outermost, in which two stacks differ, where both are in one function; else None."""
    outer_a, outer_b = list(reversed(a)), list(reversed(b))
    # A tracer keeps a bounded number of frames: the deeper stack may lack the outer ones of the other.
    if function_of(outer_a[0]) != function_of(outer_b[0]):
        for frames, start in ((outer_a, outer_b[0]), (outer_b, outer_a[0])):
            at = next((n for n, site in enumerate(frames) if function_of(site) == function_of(start)), None)
            if at is not None:
                del frames[:at]
                break
    for x, y in zip(outer_a, outer_b, strict=False):
        if x != y:
            return (x, y) if function_of(x) == function_of(y) else None
    return None
