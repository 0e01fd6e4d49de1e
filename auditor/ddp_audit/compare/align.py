"""The one comparison of event sequences, for predicted and recorded ones: per group, position by position.

Torch matches the k-th collective of a group on one rank with the k-th on every other. `Aligner` puts the events of all ranks
into the rows (group, k), each once as it arrives, so a growing trace costs what is new. A row whose ranks disagree is a
divergence, and only the first of a group counts: what follows is its consequence. A row whose ranks agree in every argument but
come from different places is `crossed`, a notice. A field that is None agrees with everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import cast

from ddp_audit.compare import explain, splits
from ddp_audit.compare.call_site_mismatch import Crossed, Exclusive, note_places
from ddp_audit.compare.group_names import GroupFacts
from ddp_audit.compare.missing_ranks import Position, inversion, missing
from ddp_audit.compare.run import EXITED, RankRun
from ddp_audit.compare.sequence import (
    Divergence,
    Entry,
    Group,
    Key,
    Signature,
    agree,
    events_of,
    first_difference,
    forwards_of,
    merge,
    minority,
    signature,
)
from ddp_audit.compare.splits import LISTS, UNEVEN, Apart, splits_apart
from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, FORWARD, POINT_TO_POINT, Event

Row = list[tuple[Signature, list[int]]]  # what is known of a collective, and the ranks that agree on it

_WITH_SHARES = UNEVEN | LISTS
_HINT = 6  # collectives looked at to tell an extra collective from a different one
_KEPT = 64  # rows before the first that is not settled, where settled ones are forgotten
NOT_KNOWN = 1 << 62  # where a rank of which nothing is known has ended in a group
_MOST_BEHIND = 4096  # rows that a rank may be behind another, beyond which it is not waited for


class Aligner:
    """Aligns the sequences of ranks, as far as they are known. Feed it events in order; ask for divergences at any time.

    `expected` are the ranks of the run. `groups` maps names of groups to global ranks; a group that is not named there has the
    ranks that were seen in it; `called` has what people know of groups.
    `uneven_gather` allows all_gather of unequal sizes, which NCCL supports and gloo does not.
    """

    def __init__(
        self,
        expected: Iterable[int],
        groups: Mapping[str, Sequence[int]] | None = None,
        *,
        uneven_gather: bool = False,
        called: Mapping[str, GroupFacts] | None = None,
    ) -> None:
        self.expected = frozenset(expected)
        self.names = {name: frozenset(ranks) for name, ranks in (groups or {}).items() if ranks}
        self.orders = {name: tuple(ranks) for name, ranks in (groups or {}).items()}  # by rank in the group
        self.uneven_gather = uneven_gather
        self.called = called or {}
        self.groups: dict[Key, Group] = {}
        self.last: dict[int, Position] = {}  # each rank's last collective
        self._lives: dict[tuple[int, str], int] = {}
        self._forwards: dict[int, Event] = {}
        self._ordinals: dict[int, int] = {}

    def feed(self, rank: int, events: Iterable[Event]) -> None:
        """Takes further events of a rank, in the order of recording; other kinds than collectives may be among them."""
        for event in events:
            if event.kind == FORWARD:
                self._forwards[rank] = event
            elif event.kind == COLLECTIVE and event.op not in POINT_TO_POINT:
                self._add(rank, event)

    def _add(self, rank: int, event: Event) -> None:
        life = self._lives.get((rank, event.group), 0)
        group = self.group_of((event.group, life))
        index = group.ends.get(rank, 0) if event.index is None else event.index
        if index < group.ends.get(rank, 0):  # the group was destroyed and made again under its old name
            life += 1
            self._lives[rank, event.group] = life
            group = self.group_of((event.group, life))
        ordinal = self._ordinals.get(rank, 0)
        self._ordinals[rank] = ordinal + 1
        entries = cast("dict[int, Entry]", group.entries.setdefault(rank, {}))
        entries[index] = Entry(event, self._forwards.get(rank), ordinal)
        group.ends[rank] = index + 1
        self.last[rank] = ((event.group, life), index)
        if index >= group.forgotten and (group.mismatch is None or index <= group.mismatch):
            self._join_row(group, rank, index, self.signature(event))

    def group_of(self, key: Key) -> Group:
        """The group of a name and life, made where it was not there."""
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key[0], self._members(key[0]), called=self.called)
        return group

    def _join_row(self, group: Group, rank: int, index: int, new: Signature) -> None:
        row = group.rows.setdefault(index, [])
        classify(row, rank, new)
        if len(row) > 1:
            group.mismatch = index
        elif group.members is not None and len(row[0][1]) >= len(group.members):
            self._settle(group, index)

    def _settle(self, group: Group, index: int) -> None:
        """Is done with a row on which all ranks agree."""
        if group.rows[index][0][0][0] in _WITH_SHARES and self.splits(group, index):
            group.mismatch = index
            return
        note_places(group, index)
        del group.rows[index]

    def splits(self, group: Group, index: int) -> list[Apart]:
        """The split sizes that disagree in a row."""
        order = self.orders.get(group.name) or tuple(sorted(group.ranks()))
        return splits_apart({rank: entry.event for rank, entry in group.holders(index).items()}, order)

    def know(self, expected: Iterable[int], groups: Mapping[str, Sequence[int]]) -> None:
        """Takes what has become known of the run: its ranks, and the ranks of its groups."""
        self.expected = frozenset(expected) | self.expected
        self.names.update({name: frozenset(ranks) for name, ranks in groups.items() if ranks})
        self.orders.update({name: tuple(ranks) for name, ranks in groups.items()})
        for (name, _), group in self.groups.items():
            members = self._members(name)
            if members != group.members:
                group.members = members
                self._close_rows(group, len(members or ()))

    def _members(self, name: str) -> frozenset[int] | None:
        return self.names.get(name, self.expected if name == DEFAULT_GROUP else None) or None

    def _close_rows(self, group: Group, enough: int) -> None:
        """Looks for crossed places in rows on which at least `enough` ranks agree, and is done with them."""
        for index, row in sorted(group.rows.items()):
            if group.mismatch is not None and index >= group.mismatch:
                break  # what follows a mismatch is its consequence
            if len(row) == 1 and len(row[0][1]) >= enough > 1:
                self._settle(group, index)

    def settle(self) -> None:
        """Says that nothing more will be fed: rows in which some ranks are missing are looked at for crossed places."""
        for group in self.groups.values():
            self._close_rows(group, 2)

    def forget(self) -> None:
        """Forgets what all ranks of a group agree on, but for the last rows, so that a run of any length takes the same memory.

        Ranks that are very far behind are not waited for: of them only the newest collectives are known.
        """
        for group in self.groups.values():
            ends = [group.ends.get(rank, 0) for rank in group.ranks()] or [0]
            floor = max(min(ends) - _KEPT, max(ends) - _MOST_BEHIND)
            mismatch = group.mismatch
            if mismatch is not None:
                floor = min(floor, mismatch - _KEPT)
            elif floor < group.forgotten + _KEPT:
                continue  # a little at a time is not worth the looking
            group.forgotten = max(floor, group.forgotten)
            for rank, found in group.entries.items():
                entries, last = cast("dict[int, Entry]", found), group.ends[rank] - 1
                old = list(takewhile(group.forgotten.__gt__, entries))
                if mismatch is not None:  # what follows it is its consequence
                    old += [index for index in entries if mismatch + _KEPT < index < last - _KEPT]
                for index in old:
                    if index != last:
                        del entries[index]
            for index in [index for index in group.rows if index < group.forgotten]:
                del group.rows[index]

    def know_lost(self, ranks: Iterable[int]) -> None:
        """Takes ranks whose older collectives were overwritten: where nothing is known of one in a group, it is taken to have been
        in all of it."""
        for rank in ranks:
            for group in self.groups.values():
                if rank in group.ranks():
                    group.ends.setdefault(rank, NOT_KNOWN)

    def before(self, name: str, index: int, count: int = 3) -> list[tuple[int, dict[int, Event]]]:
        """The last rows of a group before an index, each with the events of the ranks that are in it."""
        group = next((g for (n, _), g in reversed(self.groups.items()) if n == name and g.holders(index)), None)
        if group is None:
            return []
        rows = [(k, {r: e.event for r, e in group.holders(k).items()}) for k in range(max(0, index - count), index)]
        return [row for row in rows if row[1]]

    def signature(self, event: Event) -> Signature:
        return signature(event, uneven_gather=self.uneven_gather)

    def mismatches(self) -> list[Divergence]:
        """The first row of each group whose ranks disagree, earliest first."""
        parted = [(group, group.mismatch) for group in self.groups.values() if group.mismatch is not None]
        if len(parted) > 1:  # times are looked up only where they matter
            parted.sort(key=lambda item: (item[0].when(item[1]), item[0].name))
        return [self._mismatch(group, index) for group, index in parted]

    def when(self, divergence: Divergence) -> float:
        """When the collective of a divergence was entered first."""
        group = next(g for (name, _), g in self.groups.items() if name == divergence.group and g.holders(divergence.index))
        return group.when(divergence.index)[0]

    def _mismatch(self, group: Group, index: int) -> Divergence:
        holders = group.holders(index)
        row: Row = []  # by rank, not by arrival
        for rank, entry in holders.items():
            classify(row, rank, self.signature(entry.event))
        if len(row) == 1:
            events = {rank: entry.event for rank, entry in holders.items()}
            text = splits.explanation(self.splits(group, index), events)
            return Divergence(group.name, index, "size", events_of(holders.items()), explanation=text)
        parts = [(ranks, holders[ranks[0]].event, holders[ranks[0]].own_forward) for _, ranks in row]
        kind = self._kind(group, index, row)
        return Divergence(
            group.name,
            index,
            kind,
            events_of(holders.items()),
            minority([ranks for _, ranks in row], len(group.ranks())),
            explain.mismatch(kind, parts, "" if kind == "order" else self._hint(group, index, row)),
            forwards=forwards_of(holders.items()),
        )

    def _kind(self, group: Group, index: int, row: Row) -> str:
        (first, first_ranks), (second, second_ranks) = row[:2]
        a, b = group.entries[first_ranks[0]], group.entries[second_ranks[0]]
        if index + 1 in a and index + 1 in b:
            next_a, next_b = self.signature(a[index + 1].event), self.signature(b[index + 1].event)
            if agree(first, next_b) and agree(second, next_a):
                return "order"
        return first_difference(first, second) or "operation"

    def _hint(self, group: Group, index: int, row: Row) -> str:
        """A sentence where one rank's sequence, less one collective, agrees again with the other's: an extra collective."""
        (_, first), (_, second) = row[:2]
        for more, less in ((first, second), (second, first)):
            longer, shorter = group.entries[more[0]], group.entries[less[0]]
            same = 0
            while same < _HINT and index + same + 1 in longer and index + same in shorter:
                if not agree(self.signature(longer[index + same + 1].event), self.signature(shorter[index + same].event)):
                    break
                same += 1
            if same and same >= min(_HINT, max(longer) - index) and not self._goes_on(index, longer, shorter):
                who = explain.capital(explain.rank_list(more))
                verb = "issues" if len(more) == 1 else "issue"
                return f"{who} {verb} one collective more here: without it the sequences agree again."
        return ""

    def _goes_on(self, index: int, a: Mapping[int, Entry], b: Mapping[int, Entry]) -> bool:
        """Whether the sequences agree again right after a row, so that one call stands in place of another."""
        return index + 1 in a and index + 1 in b and agree(self.signature(a[index + 1].event), self.signature(b[index + 1].event))


def classify(row: Row, rank: int, new: Signature) -> None:
    """Puts a rank with those whose signature agrees with its own."""
    for number, (known, ranks) in enumerate(row):
        if agree(new, known):
            ranks.append(rank)
            row[number] = (merge(known, new), ranks)
            return
    row.append((new, [rank]))


def align(
    sequences: Mapping[int, Sequence[Event]],
    groups: Mapping[str, Sequence[int]] | None = None,
    *,
    complete: bool = True,
    root: Path | None = None,
    exclusive_lines: Exclusive | None = None,
) -> list[Divergence]:
    """The divergences of predicted sequences: the first of each group, then the `crossed` notices.

    `sequences` maps ranks to their events in order (other kinds than collectives may be among them; forwards make the texts
    better). With `complete` False a shorter sequence is never a divergence. `root` is the folder that sites are relative to;
    `exclusive_lines(path, a, b)` answers instead of the files there whether two lines exclude each other.
    """
    aligner = Aligner(sequences, groups)
    for rank, events in sequences.items():
        aligner.feed(rank, events)
    aligner.settle()
    found = aligner.mismatches()
    if complete and not found:
        runs = {rank: RankRun(rank, list(events), EXITED, 0) for rank, events in sequences.items()}
        swapped = inversion(aligner.groups)
        lone = missing(aligner.groups, runs, runs, stalled=False, predicted=True)
        found = [d for d in (swapped, lone) if d is not None]
    return found + Crossed(root, exclusive_lines).notices(aligner.groups)
