"""A comparison as one HTML page that needs nothing else: ranks as lanes, the collectives of a group below each other."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddp_audit.compare.explain import frames, name, rank_list
from ddp_audit.compare.verdict import Comparison
from ddp_audit.events import COLLECTIVE, ORIGINS, START, Event
from ddp_audit.report.selection import Selection
from ddp_audit.report.trace_text import headline, source_line, title

MOST = 12_000  # events of a page
_FOLDED_FROM = 9  # ranks from which those that do the same share a lane
_MOST_LANES = 48
_TEMPLATE = Path(__file__).with_name("page.html")


def render(selection: Selection, comparison: Comparison, root: Path | None = None) -> str:
    """The page."""
    data = as_object(selection, comparison, root)
    # No text of a trace can end the element that holds it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = _TEMPLATE.read_text("utf-8")
    return page.replace("@TITLE@", html.escape(data["headline"])).replace("@DATA@", text)


def as_object(selection: Selection, comparison: Comparison, root: Path | None = None) -> dict[str, Any]:
    """What the page shows. `columns` are collectives in order, a lane's `cells` what its ranks do in them."""
    lanes = _lanes(selection)
    columns: list[tuple[str, int | str]] = []
    for lane in lanes:
        _merge(columns, [key for key, _ in lane["keyed"]])
    places = {key: place for place, key in enumerate(columns)}
    kept = lanes[:_MOST_LANES]
    return {
        "headline": headline(comparison).text,
        "verdict": comparison.verdict,
        "leftOut": selection.told() + _further(len(lanes) - len(kept)),
        "divergences": [
            {"title": title(d), "group": d.group, "index": d.index, "kind": d.kind, "odd": rank_list(d.odd) if d.odd else "",
             "text": d.explanation, "column": places.get((d.group, d.index), -1)}
            for d in comparison.divergences[:50]
        ],
        "silent": [{"kind": fault.kind, "text": fault.explanation} for fault in comparison.silent],
        "columns": [[group, index] for group, index in columns],
        "lanes": [
            {
                "name": rank_list(lane["ranks"]),
                "state": comparison.ranks[lane["ranks"][0]].text if lane["ranks"][0] in comparison.ranks else "",
                "cells": [[places[key], *_cell(event, selection, root)] for key, event in lane["keyed"]],
            }
            for lane in kept
        ],
    }  # fmt: skip


def _further(lanes: int) -> str:
    return f" {lanes:,} further lanes are left out." if lanes > 0 else ""


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


def _keyed(events: Sequence[Event]) -> list[tuple[tuple[str, int | str], Event]]:
    """Events with the column that they belong to: collectives by index, everything else behind the collective before it."""
    keyed: list[tuple[tuple[str, int | str], Event]] = []
    before, count = "start", 0
    for event in events:
        if event.kind == COLLECTIVE and event.index is not None:
            keyed.append(((event.group, event.index), event))
            before, count = f"{event.group} {event.index}", 0
        elif event.kind != START:
            count += 1
            keyed.append(((event.kind, f"{before} +{count}"), event))
    return keyed


def _merge(columns: list[tuple[str, int | str]], keys: Sequence[tuple[str, int | str]]) -> None:
    """Puts further columns where they belong among those that are known."""
    known = {key: place for place, key in enumerate(columns)}
    fresh: dict[int, list[tuple[str, int | str]]] = {}
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


def _cell(event: Event, selection: Selection, root: Path | None) -> list[Any]:
    """Kind, what it is, origin, whether it returned, whether the ranks part in it, and the lines it comes from."""
    lines = [[str(site), site.function, source_line(root, site) or ""] for site in frames(event)[:4]]
    what = name(event) if event.kind == COLLECTIVE else event.kind
    origin = ORIGINS.get(event.origin, event.origin) if event.kind == COLLECTIVE else ""
    return [event.kind, what, origin, int(not _is_open(event)), int(selection.is_apart(event)), lines]


def _is_open(event: Event) -> bool:
    return event.kind == COLLECTIVE and event.detail.get("done") is None
