"""What a recorded run says of single calls: when gradients were clipped, and which wait found its collective still at work."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.compare.run import RecordedRun, same_file
from ddp_audit.events import BACKWARD, CLIP, COLLECTIVE, POINT_TO_POINT, STEP, UNFINISHED, UNSCALED, Event, Site
from ddp_audit.findings import Finding, Related, Span

EARLY = "early"  # clipped, and a backward pass added to the gradients before the step
SCALED = "scaled"  # clipped, and unscaled before the step
RIGHT = "right"
NO_LIMIT = "no limit"  # clipped where the norm was within the limit, so that nothing was cut


def clips_at(run: RecordedRun, span: Span) -> Iterator[str]:
    """What became of the gradients after each clip in a span."""
    for rank in run.ranks.values():
        clip: Event | None = None
        unscaled = False  # since the last backward pass or step: what is clipped then is not added to, even where no step follows
        for event in rank.events:
            if event.kind == CLIP:
                clip = event if not unscaled and _is_at(event, span) else None
                if unscaled and _is_at(event, span):
                    yield RIGHT
            elif event.kind in (BACKWARD, STEP, UNSCALED):
                if clip is not None:
                    wrong = {BACKWARD: EARLY, UNSCALED: SCALED if event.detail.get("scale") != 1 else RIGHT}.get(event.kind, RIGHT)
                    yield NO_LIMIT if wrong != RIGHT and clip.detail.get("cut") is False else wrong
                clip = None
                unscaled = event.kind == UNSCALED


def _is_at(event: Event, span: Span) -> bool:
    last = span.end_line or span.line
    return any(span.line <= site.line <= last and same_file(site.path, span.path) for site in event.stack)


def used_before_wait(finding: Finding, run: RecordedRun) -> str:
    """The verdict on a finding about an asynchronous collective, by the waits that found it still at work.

    The use came before the wait where call, use and wait are in one function, in this order. Which collective a wait is for is not
    recorded: it is known where only one was at work then. Where one of both is not so, nothing is known.
    """
    call = next((one for one in finding.related if one.role == "collective"), None)
    if call is None or not same_file(call.path, finding.span.path):
        return "not-exercised"
    seen = unknown = False
    for rank in run.ranks.values():
        works: list[Event] = []  # asynchronous ones; some may have ended
        for event in rank.events:
            if event.kind == COLLECTIVE and event.detail.get("async"):
                works.append(event)
                seen = seen or _is_of(event, call)
            elif event.kind == UNFINISHED and event.site is not None:
                works = [one for one in works if not one.detail.get("done") or one.detail["done"] > event.time]
                if any(_is_of(one, call) for one in works):
                    # gloo's reduce_scatter and its messages never say that they have ended
                    alone = len(works) == 1 and works[0].op not in ("reduce_scatter", *POINT_TO_POINT)
                    begun = works[0].site
                    if alone and begun is not None and _is_between(finding.span.line, begun, event.site):
                        return "confirmed"
                    unknown = True
    return "not-observed" if seen and not unknown else "not-exercised"


def _is_of(event: Event, call: Related) -> bool:
    return event.site is not None and event.site.line == call.line and same_file(event.site.path, call.path)


def _is_between(line: int, begun: Site, wait: Site) -> bool:
    return same_file(wait.path, begun.path) and wait.function == begun.function and begun.line < line < wait.line
