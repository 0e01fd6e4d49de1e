"""A comparison as one HTML page that needs nothing else: ranks as lanes, the collectives in order, the divergences next to them."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddp_audit.compare.explain import frames, name, phase, rank_list
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison
from ddp_audit.events import COLLECTIVE, ORIGINS, START, Event, Site
from ddp_audit.findings import CONFIRMED, Finding
from ddp_audit.report import waiting_text
from ddp_audit.report.departed import nothing_lines
from ddp_audit.report.selection import Selection, is_in
from ddp_audit.report.trace_text import earlier_lines, headline, source_line, title

MOST = 12_000  # events of a page
_FOLDED_FROM = 9  # ranks from which those that do the same share a lane
_MOST_LANES = 48
_MOST_DIVERGENCES = 50
_MOST_FRAMES = 8
_MOST_FIXES = 3
_TEMPLATE = Path(__file__).with_name("page.html")

Key = tuple[str, int | str]  # a column: group and index of a collective, else the kind of an event and where it comes


def render(
    selection: Selection,
    comparison: Comparison,
    root: Path | None = None,
    findings: Sequence[Finding] = (),
    log: Sequence[str] = (),
) -> str:
    """The page. `findings` are those with a verdict of this run, `log` the lines on known texts of its logs."""
    data = as_object(selection, comparison, root)
    judged = sorted((finding for finding in findings if finding.verdict is not None), key=lambda finding: finding.sort_key)
    data["findings"] = [
        [f.verdict, f.place, f"{f.code} {f.name}", f.message] for f in judged
    ]  # fmt: skip
    data["log"] = list(log)
    data["happened"] = what_happened(comparison)
    data["todo"] = what_to_do(comparison, judged)
    data["run"] = about_run(selection.run, comparison)
    data["earlier"] = [[line.text for line in earlier_lines(attempt, root)] for attempt in comparison.earlier]
    # No text of a trace can end the element that holds it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = _TEMPLATE.read_text("utf-8")
    return page.replace("@TITLE@", html.escape(data["headline"]), 1).replace("@DATA@", text, 1)


def what_happened(comparison: Comparison) -> str:
    """What follows the headline: where the ranks diverge first and why, or the first silent fault; empty where all is in order."""
    first = next(iter(comparison.parted), None)
    if first is not None:
        return f"{title(first)}. {first.explanation}"
    return comparison.silent[0].explanation if comparison.silent else ""


def what_to_do(comparison: Comparison, judged: Sequence[Finding]) -> list[str]:
    """Sentences about the next step: the fixes of what the run confirms, or else the lines to look at."""
    confirmed = [finding for finding in judged if finding.verdict == CONFIRMED and finding.fix is not None]
    if confirmed:
        return [f"{f.place} {f.code}: {f.fix.description}" for f in confirmed[:_MOST_FIXES] if f.fix is not None]
    first = next(iter(comparison.parted), None)
    if first is not None:
        places = dict.fromkeys(str(frames(event)[0]) for event in first.ranks.values() if event is not None and frames(event))
        if places:
            return [f"Compare how the ranks come to {' and to '.join(list(places)[:2])}: the same collectives must follow on each."]
    sites = dict.fromkeys(str(fault.site) for fault in comparison.silent if fault.site is not None)
    return [f"Look at {', '.join(list(sites)[:_MOST_FIXES])}."] if sites else []


def about_run(run: RecordedRun, comparison: Comparison) -> list[list[str]]:
    """What ran: rows of a name and a value, without those that are not recorded."""
    command = run.meta.get("launch") or run.meta.get("command")
    begun = run.meta.get("start")
    rows = {
        "command": " ".join(map(str, command)) if isinstance(command, list) else str(command or ""),
        "ranks": str(comparison.world_size),
        "torch": str(run.meta.get("torch") or ""),
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begun)) if isinstance(begun, (int, float)) else "",
    }
    return [[name_, value] for name_, value in rows.items() if value]


def as_object(selection: Selection, comparison: Comparison, root: Path | None = None) -> dict[str, Any]:
    """What the page shows.

    `columns` are group, label and 1 for a collective, in order. `things` are what a rank can do: kind, description, origin, and
    the lines it comes from. A lane's `cells` are column, thing, and whether it returned; `outside` are the groups that it is not
    in. A divergence's `sides` are ranks, whether they are odd, what they are in, its lines, and whether it did not return.
    """
    lanes = _lanes(selection)
    order: list[Key] = []
    for lane in lanes:
        _merge(order, [key for key, _ in lane["keyed"]])
    places = {key: place for place, key in enumerate(order)}
    columns: list[list[str | int]] = [["", "", 0]] * len(order)
    things: dict[tuple[Any, ...], int] = {}
    groups = {group: set(ranks) for group, ranks in selection.run.groups.items()}
    kept = []
    for lane in lanes[:_MOST_LANES]:
        cells = []
        for key, event in lane["keyed"]:
            columns[places[key]] = _column(event)
            thing = things.setdefault((event.kind, *_described(event), frames(event)), len(things))
            cells.append([places[key], thing, int(not _is_open(event))])
        state = comparison.ranks.get(lane["ranks"][0])
        kept.append(
            {
                "ranks": lane["ranks"],
                "name": rank_list(lane["ranks"]),
                "state": state.state if state is not None else "",
                "text": state.text if state is not None else "",
                "outside": [group for group, ranks in groups.items() if not set(lane["ranks"]) & ranks],
                "cells": cells,
            }
        )
    further = len(lanes) - len(kept)
    more = f"{further:,} further lanes are left out." if further else ""
    return {
        "headline": headline(comparison).text,
        "verdict": comparison.verdict,
        "leftOut": " ".join(filter(None, (comparison.damage, selection.note(), more))),
        "divergences": [
            {"title": title(d), "text": d.explanation, "notice": int(d.is_notice), "column": places.get(_key(d, lanes), -1),
             "sides": _sides(d, comparison, root, _open_ranks(lanes, d))}
            for d in comparison.divergences[:_MOST_DIVERGENCES]
        ],
        "silent": [[fault.kind, rank_list(fault.ranks), fault.explanation] for fault in comparison.silent],
        "waiting": [text for _, text, _ in waiting_text.texts(comparison)],
        "columns": columns,
        "things": [[*thing[:3], _lines(thing[3], root)] for thing in things],
        "lanes": kept,
    }  # fmt: skip


def _key(divergence: Divergence, lanes: Sequence[dict[str, Any]]) -> Key:
    """The column of a divergence."""
    if divergence.message is None:
        return divergence.group, divergence.index
    return next((key for lane in lanes for key, event in lane["keyed"] if is_in(event, divergence)), ("", -1))


def _lanes(selection: Selection) -> list[dict[str, Any]]:
    """The ranks, odd ones first; of many those that do the same share a lane."""
    odd = set(selection.apart.odd) if selection.apart is not None else set()
    folded: dict[object, dict[str, Any]] = {}
    for rank in sorted(selection.ranges, key=lambda rank: (rank not in odd, rank)):
        keyed = _keyed(selection.events(rank))
        alike: object = rank
        if len(selection.ranges) >= _FOLDED_FROM:
            alike = (selection.run.ranks[rank].state, tuple((key, name(e), e.stack, _is_open(e)) for key, e in keyed))
        lane = folded.setdefault(alike, {"ranks": [], "keyed": keyed})
        lane["ranks"].append(rank)
    return list(folded.values())


def _keyed(events: Sequence[Event]) -> list[tuple[Key, Event]]:
    """Events with the column that they belong to: collectives by index, everything else behind the collective before it."""
    keyed: list[tuple[Key, Event]] = []
    before, count = "start", 0
    for event in events:
        if event.kind == COLLECTIVE and event.index is not None:
            keyed.append(((event.group, event.index), event))
            before, count = f"{event.group} {event.index}", 0
        elif event.kind != START:
            count += 1
            keyed.append(((event.kind, f"{before} +{count}"), event))
    return keyed


def _merge(columns: list[Key], keys: Sequence[Key]) -> None:
    """Puts further columns where they belong among those that are known."""
    known = {key: place for place, key in enumerate(columns)}
    fresh: dict[int, list[Key]] = {}
    place = -1
    for key in keys:
        if key in known:
            place = known[key]
        else:
            fresh.setdefault(place, []).append(key)
    if fresh:
        merged = list(fresh.get(-1, ()))
        for number, key in enumerate(columns):
            merged += [key, *fresh.get(number, ())]
        columns[:] = merged


def _column(event: Event) -> list[str | int]:
    if event.kind != COLLECTIVE:
        return ["", event.kind, 0]
    return [event.group, event.op if event.index is None else str(event.index), 1]  # point to point has no number


def _described(event: Event) -> tuple[str, str]:
    if event.kind != COLLECTIVE:
        return event.kind, ""
    return name(event), ORIGINS.get(event.origin, event.origin)


def _open_ranks(lanes: Sequence[dict[str, Any]], divergence: Divergence) -> set[int]:
    """The ranks whose collective did not return. A divergence's own events may be those of another rank that did the same."""
    if divergence.message is not None:
        return {rank for rank, event in divergence.ranks.items() if event is not None and _is_open(event)}
    column = _key(divergence, lanes)
    return {rank for lane in lanes if any(key == column and _is_open(e) for key, e in lane["keyed"]) for rank in lane["ranks"]}


def _sides(divergence: Divergence, comparison: Comparison, root: Path | None, waiting: set[int]) -> list[list[Any]]:
    """What the ranks were in, those in the same thing together, the odd ones first."""
    sides: dict[tuple[Any, ...], list[int]] = {}
    for rank, event in sorted(divergence.ranks.items()):
        what: tuple[Any, ...]
        if event is None:
            head, *more = nothing_lines(comparison.ranks.get(rank))
            what = (head, tuple(line.removeprefix("@") for line in more), False)
        else:
            what = (name(event) + phase(event, divergence.forwards.get(rank)), frames(event), rank in waiting)
        sides.setdefault(what, []).append(rank)
    odd = set(divergence.odd)
    ordered = sorted(sides.items(), key=lambda side: (not odd.issuperset(side[1]), side[1]))
    return [
        [rank_list(ranks), int(odd.issuperset(ranks)), what, _lines(at, root), int(is_open)]
        for (what, at, is_open), ranks in ordered
    ]


def _lines(sites: Sequence[Site | str], root: Path | None) -> list[list[str]]:
    """Place, function and source of each frame; other text stands for itself."""
    shown = sites[:_MOST_FRAMES]
    return [
        [site, "", ""] if isinstance(site, str) else [str(site), site.function, source_line(root, site) or ""] for site in shown
    ]


def _is_open(event: Event) -> bool:
    return event.kind == COLLECTIVE and event.detail.get("done") is None
