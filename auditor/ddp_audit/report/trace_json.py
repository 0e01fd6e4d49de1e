"""The documented JSON of a comparison (`ddp-audit diff --format json`, `ddp-audit trace --format json`)."""

from __future__ import annotations

import json
from typing import Any

from ddp_audit.compare.explain import frames
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison, RankState
from ddp_audit.events import POINT_TO_POINT, Event
from ddp_audit.report import waiting_text

VERSION = 2  # of a comparison alone
WITH_FINDINGS = 3  # of one with findings, whose objects are those of `check`


def as_object(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain objects. `crossed` notices stand among the divergences, after the real ones. `earlier` is there where
    the launcher has restarted the ranks: the attempts before the last one, numbered from 0."""
    out = {"version": VERSION, **_attempt(comparison)}
    if comparison.earlier:
        out["earlier"] = [{"attempt": one.attempt, **_attempt(one)} for one in comparison.earlier]
    return out


def _attempt(comparison: Comparison) -> dict[str, Any]:
    damage = {"damage": comparison.damage} if comparison.damage else {}
    return {
        **damage,
        "world_size": comparison.world_size,
        "complete": comparison.complete,
        "verdict": comparison.verdict,
        "divergences": [_divergence(divergence) for divergence in comparison.divergences],
        "silent": [_silent(fault) for fault in comparison.silent],
        "ranks": {str(rank): _rank(state) for rank, state in sorted(comparison.ranks.items())},
        "waiting": waiting_text.as_objects(comparison.waiting),
    }


def render(comparison: Comparison) -> str:
    """The JSON text, one object, with a newline at its end."""
    return json.dumps(as_object(comparison), indent=2, ensure_ascii=False) + "\n"


def _divergence(divergence: Divergence) -> dict[str, Any]:
    out: dict[str, Any] = {
        "group": divergence.group,
        "group_text": divergence.group_text(),
        "index": divergence.index,
        "kind": divergence.kind,
        "ranks": {str(rank): _event(event) for rank, event in sorted(divergence.ranks.items())},
        "odd": divergence.odd,
        "explanation": divergence.explanation,
    }
    if divergence.message is not None:
        out["message"] = {"from": divergence.message[0], "to": divergence.message[1]}
    if divergence.is_notice:
        out["count"] = divergence.count
    return out


def _event(event: Event | None) -> dict[str, Any] | None:
    """One rank's collective; null where the rank has none. Root and reduction only where the operation has them."""
    if event is None:
        return None
    sites = frames(event)
    out: dict[str, Any] = {
        "op": event.op,
        "origin": event.origin,
        "numel": event.numel,
        "dtype": event.dtype,
        "site": str(event.site or sites[0]) if event.site or sites else None,
        "stack": [f"{site} {site.function}".rstrip() for site in sites],
    }
    if event.root is not None:
        out["root"] = event.root
    if event.reduce_op is not None:
        out["reduce_op"] = event.reduce_op
    if event.op in POINT_TO_POINT:
        out.update({key: event.detail[key] for key in ("peer", "tag", "async") if key in event.detail})
    return out


def _silent(fault: SilentFault) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "ranks": list(fault.ranks),
        "site": None if fault.site is None else str(fault.site),
        "explanation": fault.explanation,
    }


def _rank(state: RankState) -> dict[str, Any]:
    out: dict[str, Any] = {"events": state.events, "state": state.state, "last": state.last}
    if state.code is not None:
        out["code"] = state.code
    if state.error:
        out["error"] = state.error
    if state.raised_at is not None:
        out["raised_at"] = str(state.raised_at)
    if state.left_at is not None:
        out["left_at"] = str(state.left_at)
    if state.last_seen is not None:
        out["last_seen"] = str(state.last_seen)
    if state.damage:
        out["damage"] = state.damage
    if state.since:
        out["known_since"] = state.since
    return out
