"""The predicted run of a script for people: the collectives of the ranks side by side, and what comes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ddp_audit.compare.explain import rank_list
from ddp_audit.compare.sequence import Divergence, agree, signature
from ddp_audit.events import BACKWARD, COLLECTIVE, DEFAULT_GROUP, FORWARD, ORIGINS, POINT_TO_POINT, STEP, Event, Site
from ddp_audit.explore.exact import FAILS, NOTHING, OPEN
from ddp_audit.machine.matching import ABORTS, COMPLETES, HANGS
from ddp_audit.report.columns import cut, pad, width_of, wrap
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Run
    from ddp_audit.explore.main_line import Flip
    from ddp_audit.explore.proof import Predicted

WIDTH = 80
_GUTTER = 8
_MOST_ROWS = 60
_LAST_ROWS = 20  # of these, where the run ends
_MOST_LINES = 12  # of each list after the table

_ENDS = {
    COMPLETES: "The run completes.",
    HANGS: "The run hangs.",
    ABORTS: "The run is aborted.",
    FAILS: "The run fails.",
    OPEN: "The run goes on, as far as it was followed.",
    NOTHING: "Nothing is predicted.",
}
_REASONS = {NOTHING: "The reason:", OPEN: "It rests on something that is not followed:"}


def render(predicted: Predicted, path: str, width: int = WIDTH, beyond: Sequence[str] = ()) -> str:
    """The whole report as plain text, no line wider than `width` but for long paths.

    `beyond` are sentences about findings that the run does not show.
    """
    return "".join(f"{line.rstrip()}\n" for line in lines(predicted, path, width, beyond))


def lines(predicted: Predicted, path: str, width: int = WIDTH, beyond: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the report."""
    run = predicted.run
    ranks = sorted(run.sequences)
    shown = "" if len(ranks) == run.world_size else f", shown by {rank_list(ranks)}"
    yield from _wrapped(f"Predicted run of {path} on {run.world_size} rank{'s' * (run.world_size > 1)}{shown}", width)
    yield ""
    yield from _table(run, width)
    yield ""
    yield from _outcome(predicted, width, bool(beyond))
    if beyond:
        yield ""
        yield "Findings that this run does not show"
        yield from _listed(beyond, str, width)
    yield from _local(run, width)
    yield from _variants(run, width)
    yield from _assumed(run, width, predicted.flips, ends=predicted.parting is not None)


# ---- the table


def reached(run: Run, rank: int) -> list[Event]:
    """The events of a rank up to where it stops forever, if it does."""
    events = run.sequences[rank]
    return events[: run.stops.get(rank, len(events)) + 1]


def _table(run: Run, width: int) -> Iterator[str]:
    """One row a collective, as torch matches them: the n-th of a rank with the n-th of the others."""
    columns: list[tuple[list[int], list[Event]]] = []
    for rank in sorted(run.sequences):
        events = [e for e in reached(run, rank) if e.kind in (COLLECTIVE, STEP, FORWARD, BACKWARD)]
        same = next((c for c in columns if _equal(c[1], events)), None)
        if same is None:
            columns.append(([rank], events))
        else:
            same[0].append(rank)
    everybody = "every rank" if run.world_size > 1 else "the rank"
    heads = [rank_list(c[0]) for c in columns]
    yield " " * _GUTTER + (everybody if len(columns) == 1 else _side_by_side(heads, width))
    rows = list(_aligned([list(_rows(events)) for _, events in columns]))
    left_out = range(_MOST_ROWS - _LAST_ROWS, max(len(rows) - _LAST_ROWS, 0)) if len(rows) > _MOST_ROWS else range(0)
    for number, (row, apart) in enumerate(rows):
        if number in left_out:
            if number == left_out.start:
                yield f"{'..':>5}   {len(left_out):,} more"
            continue
        yield from _row(number, row, apart, width)


def _equal(a: Sequence[Event], b: Sequence[Event]) -> bool:
    return len(a) == len(b) and all(
        x.kind == y.kind and x.site == y.site and signature(x) == signature(y) and x.origin == y.origin and x.group == y.group
        for x, y in zip(a, b, strict=True)
    )


_Row = tuple[Event | None, list[Event]]  # a collective (None for the end), and the steps before it


def _rows(events: Sequence[Event]) -> Iterator[_Row]:
    steps: list[Event] = []
    for event in events:
        if event.kind == STEP:
            steps.append(event)
        elif event.kind == COLLECTIVE:
            yield event, steps
            steps = []
    if steps:
        yield None, steps


def _aligned(columns: list[list[_Row]]) -> Iterator[tuple[list[_Row | None], bool]]:
    """Rows of what meets: one cell a column, and whether the row stands apart, since the other ranks have no part in it.

    A message, and a collective of a group in which no other column has its like, stand alone; everything else meets in order.
    """
    numbered = [_numbered(column) for column in columns]
    known = [set(keys) for keys in numbered]
    at = [0] * len(columns)
    while any(place < len(column) for place, column in zip(at, columns, strict=True)):
        for index, column in enumerate(columns):
            others = (keys for other, keys in enumerate(known) if other != index)
            key = numbered[index][at[index]] if at[index] < len(column) else None
            if len(columns) > 1 and key is not None and (key[0] == "" or not any(key in keys for keys in others)):
                if key[0] == DEFAULT_GROUP:
                    continue  # all ranks are in it: one that has no partner there is what the reader looks for
                yield [column[at[index]] if i == index else None for i in range(len(columns))], True
                at[index] += 1
                break
        else:
            yield [column[place] if place < len(column) else None for place, column in zip(at, columns, strict=True)], False
            at = [min(place + 1, len(column)) for place, column in zip(at, columns, strict=True)]


def _numbered(column: Sequence[_Row]) -> list[tuple[str, int]]:
    """The group and the number in it of each collective of a column; an empty group for messages and for the end."""
    seen: Counter[str] = Counter()
    keys = []
    for event, _ in column:
        group = "" if event is None or event.op in POINT_TO_POINT else event.group
        keys.append((group, seen[group]) if event is not None else (DEFAULT_GROUP, -1))
        seen[group] += 1
    return keys


def _row(number: int, row: Sequence[_Row | None], apart: bool, width: int) -> Iterator[str]:
    present = [cell for cell in row if cell is not None]
    steps = [cell[1] for cell in row if cell is not None]
    common = 0
    while len(present) == len(row) and all(len(own) > common and _same_step(own[common], steps[0][common]) for own in steps):
        yield cut(" " * _GUTTER + _step_text(steps[0][common]), width)
        common += 1
    rest = [[] if cell is None else cell[1][common:] for cell in row]
    if any(rest):
        yield from _cells(" " * _GUTTER, [[part for step in own for part in _step_lines(step)] for own in rest], width)
    events = [None if cell is None else cell[0] for cell in row]
    known = [event for event in events if event is not None]
    if not known:
        return
    first = known[0]
    alike = len(known) == len(events) and all(agree(signature(e), signature(first)) and e.group == first.group for e in known)
    if alike and all(e.site == first.site and e.origin == first.origin for e in known):
        yield from _common(number, first, width)
        return
    mark = " " if apart else "x" if alike else "!"
    yield from _cells(f"{number:>5} {mark} ", [_cell(e) for e in events], width)


def _common(number: int, event: Event, width: int) -> Iterator[str]:
    """A row that is the same on every rank: on one line where it fits."""
    group = "" if event.group == "default" else f", group {event.group}"
    text, where = f"{number:>5}   {event.what}{_arguments(event)}{group}", _place(event.site)
    if width_of(text) + width_of(where) + 2 <= width:
        yield pad(text, width - width_of(where)) + where
    else:
        yield cut(text, width)
        yield f"{where:>{width}}"


def _cell(event: Event | None) -> list[str]:
    if event is None:
        return ["-"]
    what = event.what.rsplit(" (", 1)[0] + _arguments(event)
    group = "" if event.group == "default" else f", group {event.group}"
    return [what + group, f"{ORIGINS.get(event.origin, event.origin)}", f"at {_place(event.site)}"]


def _arguments(event: Event) -> str:
    if event.reduce_op is not None and event.reduce_op != "sum":
        return f", {event.reduce_op}"
    return f", from rank {event.root}" if event.root else ""


def _cells(gutter: str, cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for number, row in enumerate(zip_longest(*cells, fillvalue="")):
        yield (gutter if number == 0 else " " * _GUTTER) + _side_by_side(row, width)


def _side_by_side(parts: Sequence[str], width: int) -> str:
    fits = (width - _GUTTER - 2 * (len(parts) - 1)) // len(parts)
    return "  ".join(pad(cut(part, fits), fits) for part in parts).rstrip()


def _same_step(a: Event, b: Event) -> bool:
    return a.site == b.site and a.detail.get("local") == b.detail.get("local")


def _step_text(event: Event) -> str:
    return ": ".join(_step_lines(event))


def _step_lines(event: Event) -> list[str]:
    local = event.detail.get("local") or ()
    state = f"LOCAL {', '.join(local[:2])}{' ..' if len(local) > 2 else ''}" if local else "averaged"
    return [f"step at {_place(event.site)}", state]


# ---- what follows


def _outcome(predicted: Predicted, width: int, has_more: bool) -> Iterator[str]:
    run = predicted.run
    yield _ENDS[predicted.kind]
    if predicted.why and predicted.kind in _REASONS and predicted.why not in run.bounds:  # these are listed below
        yield from _wrapped(f"{_REASONS[predicted.kind]} {predicted.why}.", width, "  ")
    if predicted.kind == OPEN and run.kind in (HANGS, ABORTS):
        yield from _wrapped("What the ranks do then is not known for sure; as far as it is, they stand as follows.", width, "  ")
    if predicted.parting is not None and predicted.parting.rests_on:
        yield from _wrapped(predicted.parting.resting, width, "  ")
    parted = [d for d in run.divergences() if not d.is_notice]
    crossed = [d for d in run.divergences() if d.is_notice]
    if run.kind in (HANGS, ABORTS) or run.outcome.meetings:
        yield from _wrapped(run.outcome.explanation, width, "  ")
    if parted and run.kind != COMPLETES:
        yield from _wrapped(f"The ranks diverge in collective {parted[0].index}. {parted[0].explanation}", width, "  ")
    for notice in crossed[:3]:
        yield from _wrapped(f"Crossed in collective {notice.index}: {notice.explanation}", width, "  ")
    for divergence in (*parted[:1], *crossed[:3]):
        yield from _guards(run, divergence, width)
    for rank, text in sorted(run.raised.items()):
        yield from _wrapped(f"Rank {rank} ends with {text}", width, "  ")
    sent = any(run.collectives(rank) for rank in run.sequences)
    if run.kind in (COMPLETES, OPEN) and not parted and not crossed and len(run.sequences) > 1 and (sent or run.is_whole):
        yield from _wrapped(_agreement(predicted, has_more), width, "  ")


def _agreement(predicted: Predicted, has_more: bool) -> str:
    """What it means that the ranks issue the same collectives: that nobody waits is said only of a run that was followed whole."""
    run = predicted.run
    if predicted.kind == COMPLETES and run.is_whole and not has_more and not any(a.local for a in run.assumptions):
        return "The ranks issue the same collectives from the same lines, so none waits for another."
    steps = max(sum(e.kind == STEP for e in events) for events in run.sequences.values())
    seen = f" ({steps} optimizer step{'s' * (steps != 1)} of a rank)" if steps else ""
    return f"As far as it was followed{seen}, the ranks issue the same collectives from the same lines."


def _guards(run: Run, divergence: Divergence, width: int) -> Iterator[str]:
    """The conditions that led ranks to different calls, and the chain of calls below each."""
    for rank, event in sorted(divergence.ranks.items()):
        guard = None if event is None else run.guard_of(rank, event)
        if event is not None and guard is not None:
            way = " > ".join(str(site.line) for site in reversed(event.stack))
            said = "true" if guard.answer else "false"
            where = place_of(guard.path, guard.line)
            text = f"Rank {rank} gets there because `{guard.text}` ({where}) is {said} on rank {rank} (lines {way})"
            yield from _wrapped(text, width, "  ", 4)


def _local(run: Run, width: int) -> Iterator[str]:
    """Steps on gradients that were not reduced, once a place."""
    places: dict[str, dict[int, int]] = {}  # steps of each rank
    names: dict[str, list[str]] = {}
    for rank in sorted(run.sequences):
        for event in reached(run, rank):
            if event.kind == STEP and event.detail.get("local"):
                place = _place(event.site)
                counts = places.setdefault(place, {})
                counts[rank] = counts.get(rank, 0) + 1
                names.setdefault(place, list(event.detail["local"]))
    if places:
        yield ""
        yield "Steps on LOCAL gradients, from which the ranks' parameters drift apart"
        for place, counts in places.items():
            own = names[place]
            some = f"{', '.join(own[:4])}{f' and {len(own) - 4} more' if len(own) > 4 else ''}"
            most = max(counts.values())
            steps = f"{most} step{'s' * (most != 1)}" if len(set(counts.values())) == 1 else f"up to {most} steps"
            yield from _wrapped(f"{place}: {steps} on {rank_list(sorted(counts))}: {some}", width, "  ", 4)


def _variants(run: Run, width: int) -> Iterator[str]:
    """What comes of conditions on local data in which one rank differs from the others."""
    if not run.variants:
        return
    yield ""
    yield "Where one rank alone decides otherwise on data of its own"
    for one in run.variants:
        a = one.assumption
        other = "false" if a.taken == "true" else "true"
        what = f"{other} on {rank_list([one.rank])} once: {_ENDS[one.run.seen_kind].lower()}"
        text = f"{place_of(a.path, a.line)} {a.text}: {what}"
        yield from _wrapped(text, width, "  ", 4)
        if one.run.stops:
            yield from _wrapped(one.run.outcome.explanation, width, "    ")


def _assumed(run: Run, width: int, flips: Sequence[Flip], ends: bool) -> Iterator[str]:
    """What was assumed and seen. Where the ranks stand forever (`ends`), how far each was followed alone says nothing."""
    if flips:
        yield ""
        yield "Taken otherwise than the defaults, to come to the training"
        yield from _listed(flips, lambda flip: flip.text, width)
    if run.assumed_torch:
        yield ""
        yield from _wrapped(f"torch {run.assumed_torch} is assumed; the setting target-torch names another.", width)
    if run.assumptions:
        yield ""
        yield "Taken for granted where the source leaves it open, on every rank alike"
        yield from _listed(run.assumptions, lambda a: f"{place_of(a.path, a.line)} {a.text}: {a.taken}{_differs(a.local)}", width)
    if run.notes:
        yield ""
        yield "Seen on the way"
        yield from _listed(run.notes, str, width)
    cut = [] if ends else [f"{rank_list([rank])}: {why}" for rank, why in sorted(run.cut.items())]
    if cut and len(set(run.cut.values())) == 1 and len(run.cut) == len(run.sequences):
        cut = [f"every rank: {next(iter(run.cut.values()))}"]
    if run.bounds or cut:
        yield ""
        yield "Not followed to its end"
        yield from _listed([*run.bounds, *cut], str, width)


def _differs(local: bool) -> str:
    return " (it may differ between ranks)" if local else ""


def _listed(items: Sequence[Any], text: Callable[[Any], str], width: int) -> Iterator[str]:
    for item in items[:_MOST_LINES]:
        yield from _wrapped(text(item), width, "  ", 4)
    if len(items) > _MOST_LINES:
        yield f"  and {len(items) - _MOST_LINES} more"


def _place(site: Site | None) -> str:
    """A place, without the first folders of a long path."""
    text = "an unknown place" if site is None else str(site)
    while width_of(text) > 30 and "/" in text.removeprefix("../"):
        text = "../" + text.removeprefix("../").split("/", 1)[1]
    return text


def _wrapped(text: str, width: int, indent: str = "", hang: int = 0) -> list[str]:
    later = indent + " " * hang
    return wrap(text, width, initial_indent=indent, subsequent_indent=later, break_on_hyphens=False, break_long_words=False)
