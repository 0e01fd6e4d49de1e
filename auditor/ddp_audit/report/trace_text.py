"""The per-rank diff for people: what each rank was in, side by side, and what follows from it.

The report is made as lines with a style each. Plain text joins them; a terminal gets them coloured by rich, which is imported
only then.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import IO, NamedTuple

from ddp_audit.compare.explain import capital, counted, frames, lines, name, phase, rank_list
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.run import RUNNING, WAITING
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import AGREED, DIVERGED, STALLED, Comparison, RankState
from ddp_audit.events import USER, Event, Site
from ddp_audit.findings import Finding
from ddp_audit.report import waiting_text
from ddp_audit.report.columns import cut, pad, width_of, wrap
from ddp_audit.report.console import console_for, is_coloured, width_for
from ddp_audit.report.departed import failed_text, nothing_lines
from ddp_audit.report.summary import lines_of
from ddp_audit.trace.worker.layout import ENV_LIMIT

WIDTH = 80
_GUTTER = 9  # columns left of the ranks' columns: a mark and the number of the collective
_GAP = 2
_LEAST_COLUMN = 30
_MOST_FRAMES = 3
_MOST_CROSSED = 5
_MOST_PARTED = 6
_MOST_COLUMNS = 8
_MOST_STANDINGS = 16

_TITLES = {
    "operation": "different operations",
    "size": "different sizes",
    "dtype": "different types",
    "reduce-op": "different reductions",
    "root": "different roots",
    "order": "opposite order",
    "group": "groups used in opposite order",
    "missing-rank": "a rank is missing",
    "extra": "one collective too many",
}
_TITLES_OF_MESSAGES = {
    "operation": "different tags",
    "size": "different sizes",
    "dtype": "different types",
    "order": "ranks wait in a circle",
    "peer": "a wrong peer",
    "missing-rank": "no partner",
    "extra": "no partner",
}
_VERDICTS = {
    "confirmed": ("CONFIRMED", "the run shows it", "bad"),
    "not-observed": ("NOT OBSERVED", "the run was there and did not show it", "good"),
    "not-exercised": ("NOT EXERCISED", "nothing in this run could show it", "dim"),
    "not-covered": ("NOT COVERED", "the run ended before it came there", "dim"),
}
_STYLES = {"bad": "bold red", "warn": "yellow", "good": "green", "head": "bold", "dim": "dim", "mark": "red", "": ""}


class Line(NamedTuple):
    text: str
    style: str = ""


def render(
    comparison: Comparison,
    *,
    root: Path | None = None,
    findings: Sequence[Finding] = (),
    width: int = WIDTH,
    reported: Container[str] = frozenset(),
) -> str:
    """The report as plain text, no line wider than `width`. `root`: the folder that sites are relative to."""
    return "".join(
        f"{line.text.rstrip()}\n" for line in report(comparison, root=root, findings=findings, width=width, reported=reported)
    )


def show(
    comparison: Comparison,
    stream: IO[str],
    *,
    root: Path | None = None,
    findings: Sequence[Finding] = (),
    width: int | None = None,
    reported: Container[str] = frozenset(),
) -> None:
    """Print the report, coloured where the stream gets colours.

    `reported` are divergences that the reader has seen already, as `divergence_text` writes them: only their titles are repeated.
    """
    width = width or (width_for(stream) if stream.isatty() else WIDTH)
    if not is_coloured(stream):
        stream.write(lines_of(render(comparison, root=root, findings=findings, width=width, reported=reported)))
        return
    from rich.text import Text

    console = console_for(stream, width)
    for line in report(comparison, root=root, findings=findings, width=width, reported=reported):
        console.print(Text(lines_of(line.text.rstrip()), _STYLES.get(line.style, "")), soft_wrap=True)


def report(
    comparison: Comparison,
    *,
    root: Path | None = None,
    findings: Sequence[Finding] = (),
    width: int = WIDTH,
    reported: Container[str] = frozenset(),
) -> Iterator[Line]:
    """The lines of the whole report."""
    for earlier in comparison.earlier:
        yield from earlier_lines(earlier, root, width)
        yield Line("")
    if comparison.earlier:
        yield Line(f"Attempt {comparison.attempt + 1}, the last", "head")
    yield from _attempt_report(comparison, root, width, reported)
    judged = [finding for finding in findings if finding.verdict is not None]
    if judged:
        yield Line("")
        yield from _finding_lines(judged, width)


def earlier_lines(attempt: Comparison, root: Path | None, width: int = WIDTH) -> Iterator[Line]:
    """An attempt before the last one: a title, and what a report says of the ranks."""
    yield Line(f"Attempt {attempt.attempt + 1}, after which the launcher started the ranks again", "head")
    yield from _attempt_report(attempt, root, width)


def _attempt_report(
    comparison: Comparison, root: Path | None, width: int, reported: Container[str] = frozenset()
) -> Iterator[Line]:
    """The lines on the ranks."""
    head = headline(comparison)
    yield from (Line(line.text, head.style) for line in _wrapped(head.text, width))
    if comparison.verdict == AGREED:
        for rank, state in comparison.ranks.items():
            if state.damage:
                yield from _wrapped(f"The trace of rank {rank} is damaged after its end: {state.damage}.", width)
    if comparison.damage:
        yield from _wrapped(comparison.damage, width)
    known = overwritten_text(comparison.ranks)
    if known:
        yield from _wrapped(known, width)
    for divergence in comparison.parted[:_MOST_PARTED]:
        yield Line("")
        if reported and divergence_text(divergence, comparison.ranks, root=root) in reported:
            yield Line(f"{title(divergence)} (shown above)", "head")
        else:
            yield from divergence_lines(divergence, comparison.ranks, root=root, width=width)
    if len(comparison.parted) > _MOST_PARTED:
        yield Line("")
        more = counted(len(comparison.parted) - _MOST_PARTED, "more group", "more groups")
        yield Line(f"The ranks diverge in {more}, later than in these.", "head")
    if comparison.verdict != AGREED:
        yield Line("")
        yield from standing_lines(comparison.ranks, width)
    if comparison.silent:
        yield Line("")
        yield from _silent_lines(comparison, root, width)
    if comparison.crossed:
        yield Line("")
        yield from _crossed_lines(comparison.crossed, width)
    yield from _waiting_lines(comparison, width)


def overwritten_text(states: Mapping[int, RankState]) -> str:
    """From when on the records of ranks are there whose trace files were full; empty where all are."""
    rings = {rank: state.since for rank, state in states.items() if state.since}
    if not rings:
        return ""
    which = rank_list(rings) if len(rings) < len(states) else "each rank" if len(states) > 1 else "the rank"
    from_when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(rings.values())))
    return (
        f"Only the newest records of {which} are there, from {from_when} on: their trace files were full, and what came before "
        f"was overwritten ({ENV_LIMIT})."
    )


def headline(comparison: Comparison) -> Line:
    """The outcome in one sentence."""
    ranks = f"{comparison.world_size} rank{'' if comparison.world_size == 1 else 's'}"
    alone = comparison.world_size == 1
    most = max((state.collectives for state in comparison.ranks.values()), default=0)
    silent = len(comparison.silent)
    if comparison.verdict == DIVERGED:
        return Line(failure_text(comparison) or f"The {ranks} diverged.", "bad")
    untraced = [rank for rank, state in comparison.ranks.items() if state.untraced]
    if comparison.verdict == STALLED and untraced and not comparison.parted:
        what = f"the tracing of {rank_list(untraced)} had ended, so that what they wait for is not known"
        return Line(f"The {ranks} stalled: {what}.", "bad")
    if comparison.verdict == STALLED and not comparison.parted and _all_wait(comparison):
        return Line(f"The {ranks} stalled: all of them wait, their collectives agree, and no rank is missing.", "bad")
    lingering = [rank for rank, state in comparison.ranks.items() if state.lingers]
    if comparison.verdict == STALLED and lingering and not comparison.parted:
        return Line(f"The {ranks} stalled: the program of {rank_list(lingering)} had ended, and the process went on.", "bad")
    if comparison.verdict == STALLED:
        return Line(f"The {ranks} stalled: a rank waits for one that does not come.", "bad")
    faults = f" {counted(silent, 'silent fault')} all the same." if silent else ""
    if comparison.verdict == AGREED:
        sent = sum(state.sent for state in comparison.ranks.values())
        in_all = counted(most, "collective") + (f" and {counted(sent, 'message')}" if sent else "")
        text = f"The only rank ran {in_all}; nothing can be compared with it." if alone else f"The {ranks} agree in {in_all}."
        return Line(f"{text}{faults}", "bad" if silent else "good")
    agreed = "" if alone else f"The {ranks} agree in what is recorded; "
    failed = failed_text(comparison.ranks)
    lives = any(state.state in (RUNNING, WAITING) for state in comparison.ranks.values())
    ended = f"{failed}." if failed else "the run goes on." if lives else "the run did not end in order."
    damaged = [rank for rank, state in comparison.ranks.items() if state.damage]
    if damaged and not failed:
        ended = f"the trace of {rank_list(damaged)} is damaged, so that the rest is not known."
    elif untraced and not failed:
        ended = f"the tracing of {rank_list(untraced)} ended before the run did, so that the rest is not known."
    return Line(f"{agreed}{ended}{faults}" if not alone else f"{capital(ended)}{faults}", "bad" if silent else "warn")


def failure_text(comparison: Comparison) -> str:
    """The first divergence as a sentence where ranks failed by themselves and left the others waiting; else empty."""
    first = next(iter(comparison.parted), None)
    if first is None or first.kind != "missing-rank" or first.message is not None:
        return ""
    gone = [rank for rank, event in first.ranks.items() if event is None]
    there = [rank for rank, event in first.ranks.items() if event is not None]
    failed = failed_text({rank: comparison.ranks[rank] for rank in gone if rank in comparison.ranks})
    if not failed or any(comparison.ranks[rank].failed for rank in there if rank in comparison.ranks):
        return ""
    return f"{capital(failed)}; {rank_list(there)} {'was' if len(there) == 1 else 'were'} left waiting."


def _all_wait(comparison: Comparison) -> bool:
    return all(state.state in (WAITING, RUNNING) for state in comparison.ranks.values())


# The diff


def divergence_lines(
    divergence: Divergence, states: Mapping[int, RankState], *, root: Path | None = None, width: int = WIDTH
) -> Iterator[Line]:
    """One divergence: the last collectives on which the ranks agreed, then the one where they diverge, side by side."""
    yield from (Line(line.text, "head") for line in _wrapped(title(divergence), width))
    for index, events in divergence.before:
        yield from _agreed_row(index, events, width)
    columns = _columns(divergence, states, root)
    fits = (width - _GUTTER - _GAP * (len(columns) - 1)) // len(columns)
    if fits >= _LEAST_COLUMN:
        yield from _side_by_side(divergence, columns, fits)
    else:
        yield from _stacked(divergence, columns, width)
    yield Line("")
    yield from _wrapped(divergence.explanation, width)


def divergence_text(divergence: Divergence, states: Mapping[int, RankState], *, root: Path | None = None) -> str:
    """One divergence as plain text of the usual width."""
    return "".join(f"{line.text.rstrip()}\n" for line in divergence_lines(divergence, states, root=root))


def title(divergence: Divergence) -> str:
    """Where ranks diverge, and in what: `Collective 88 of the default group: different sizes`."""
    titles = _TITLES if divergence.message is None else _TITLES_OF_MESSAGES
    if divergence.kind == "size" and divergence.message is None and is_of_two_calls(divergence):
        return f"{capital(_where(divergence))}: two different calls"
    return f"{capital(_where(divergence))}: {titles.get(divergence.kind, divergence.kind)}"


def is_of_two_calls(divergence: Divergence) -> bool:
    """Whether the ranks came to a collective from different lines of the user's, so that its size says little of the fault."""
    events = [event for event in divergence.ranks.values() if event is not None and event.origin == USER and frames(event)]
    return len(events) == len(divergence.ranks) and len({(frames(e)[0].path, frames(e)[0].line) for e in events}) > 1


def _where(divergence: Divergence) -> str:
    group = divergence.group_text()
    if divergence.message is not None:
        source, target = divergence.message
        return f"message {divergence.index} from rank {source} to rank {target} in {group}"
    return f"collective {divergence.index} of {group}"


def _agreed_row(index: int, events: Mapping[int, Event], width: int) -> Iterator[Line]:
    first = events[min(events)]
    different = {id(event): event for event in events.values()}.values()
    places: dict[str, None] = dict.fromkeys(str(frames(event)[0]) for event in different if frames(event))
    text = f"{_mark('=', index)}{name(first)}{phase(first, None)}"
    at = " | ".join(_short(place, 30) for place in list(places)[:2])
    if width_of(text) + width_of(at) + 2 <= width:
        yield Line(f"{text}  {at}", "dim")
    else:
        yield Line(cut(text, width), "dim")
        yield Line(cut(" " * _GUTTER + at, width), "dim")


class Column(NamedTuple):
    """The ranks that are in one thing, and its description; the first line of the cell is its head."""

    ranks: list[int]
    cell: list[str]


def _columns(divergence: Divergence, states: Mapping[int, RankState], root: Path | None) -> list[Column]:
    """Ranks that do the same from the same place share a column."""
    cells: dict[tuple[str, ...], list[int]] = {}
    made: dict[tuple[int, int], tuple[str, ...]] = {}  # ranks of a large run share events
    for rank, event in sorted(divergence.ranks.items()):
        forward = divergence.forwards.get(rank)
        if event is None:
            cell = tuple(nothing_lines(states.get(rank)))
        else:
            known = made.get((id(event), id(forward)))
            cell = known or made.setdefault((id(event), id(forward)), tuple(_cell(event, forward, divergence, root)))
        cells.setdefault(cell, []).append(rank)
    columns = [Column(ranks, list(cell)) for cell, ranks in cells.items()]
    if len(columns) <= _MOST_COLUMNS:
        return columns
    first = sorted(columns, key=lambda column: not set(column.ranks) <= set(divergence.odd))[: _MOST_COLUMNS - 1]
    rest = [rank for column in columns if column not in first for rank in column.ranks]
    return [*first, Column(rest, [counted(len(columns) - len(first), "other thing")])]


def _cell(event: Event, forward: Event | None, divergence: Divergence, root: Path | None) -> list[str]:
    head = name(event) + phase(event, forward)
    cell = [head if event.group == divergence.group else f"{head}, on {divergence.group_text(event.group)}"]
    for site in lines(event)[:_MOST_FRAMES]:
        cell.append(f"@{site} in {site.function}" if site.function else f"@{site}")
        text = source_line(root, site)
        if text:
            cell.append(f">{text}")
    if not frames(event):
        cell.append("@an unknown place")
    return cell


def _header(column: Column, odd: Iterable[int]) -> str:
    return rank_list(column.ranks) + (" (odd)" if set(column.ranks) <= set(odd) else "")


def _side_by_side(divergence: Divergence, columns: Sequence[Column], fits: int) -> Iterator[Line]:
    heads = [cut(_header(column, divergence.odd), fits) for column in columns]
    yield Line(" " * _GUTTER + _joined(heads, fits), "head")
    cells = [[line for text in column.cell for line in _fitted(text, fits)] for column in columns]
    for number, row in enumerate(zip_longest(*cells, fillvalue="")):
        gutter = _mark(">", divergence.index) if number == 0 else " " * _GUTTER
        yield Line(gutter + _joined(row, fits), "mark")


def _stacked(divergence: Divergence, columns: Sequence[Column], width: int) -> Iterator[Line]:
    for column in columns:
        yield Line(" " * _GUTTER + cut(_header(column, divergence.odd), width - _GUTTER), "head")
        for number, text in enumerate(line for part in column.cell for line in _fitted(part, width - _GUTTER - 2)):
            yield Line((_mark(">", divergence.index) if number == 0 else " " * _GUTTER) + "  " + text, "mark")


def _mark(sign: str, index: int) -> str:
    return f"{sign} {index}".ljust(_GUTTER - 1) + " "


def _joined(parts: Sequence[str], fits: int) -> str:
    return (" " * _GAP).join(pad(part, fits) for part in parts).rstrip()


def _fitted(text: str, fits: int) -> list[str]:
    """A line of a cell as lines of its column: places keep their end, source its start, other text is wrapped."""
    if text.startswith("@"):
        return [_short(text[1:], fits)]
    if text.startswith(">"):
        return [cut("  " + text[1:], fits)]
    return wrap(text, fits) or [""]


# The other parts


def standing_lines(states: Mapping[int, RankState], width: int = WIDTH) -> Iterator[Line]:
    """Where each rank is or how it ended; ranks of equal standing share a line."""
    yield Line("Where the ranks stand", "head")
    folded: dict[str, list[int]] = {}
    for rank, state in sorted(states.items()):
        folded.setdefault(state.text, []).append(rank)
    for number, (text, ranks) in enumerate(folded.items()):
        if number == _MOST_STANDINGS:
            rest = [rank for ranks in list(folded.values())[number:] for rank in ranks]
            more = counted(len(folded) - number, "more place")
            yield from _wrapped(f"and {more}, of {rank_list(rest)}", width, "  ", hang=2)
            break
        each = "each " if len(ranks) > 1 else ""
        yield from _wrapped(f"{capital(rank_list(ranks))}: {each}{text}.", width, "  ", hang=2)


def _silent_lines(comparison: Comparison, root: Path | None, width: int) -> Iterator[Line]:
    goes_on = ", and the run goes on" if comparison.verdict == AGREED else ""
    yield Line(f"Silent faults: no rank notices them{goes_on}", "head")
    for fault in comparison.silent:
        yield from fault_lines(fault, root, width)


def fault_lines(fault: SilentFault, root: Path | None, width: int = WIDTH, *, so_far: bool = False) -> Iterator[Line]:
    """One silent fault; `so_far` says that the run still goes on."""
    where = "" if fault.site is None else f"  {fault.site}"
    head = "Silent fault so far:" if so_far else " "
    yield Line(cut(f"{head} {fault.kind}  {rank_list(fault.ranks)}{where}", width), "bad")
    text = None if fault.site is None else source_line(root, fault.site)
    if text:
        yield Line(cut(f"      {text}", width), "dim")
    yield from _wrapped(fault.explanation, width, "    ")


def _waiting_lines(comparison: Comparison, width: int) -> Iterator[Line]:
    for kind, text, style in waiting_text.texts(comparison):
        if kind == "head":
            yield Line("")
        if kind == "row":
            yield Line(cut(text, width), style)
        else:
            yield from (Line(line.text, style) for line in _wrapped(text, width, "  " if kind == "slow" else "", hang=2))


def _crossed_lines(notices: Sequence[Divergence], width: int) -> Iterator[Line]:
    yield Line("Crossed: ranks met from different places, and the run went on", "head")
    for notice in notices[:_MOST_CROSSED]:
        yield Line(f"  {_where(notice)}", "warn")
        yield from _wrapped(notice.explanation, width, "    ")
    if len(notices) > _MOST_CROSSED:
        yield Line(f"  and {counted(len(notices) - _MOST_CROSSED, 'more pair', 'more pairs')} of places", "dim")


def _finding_lines(findings: Sequence[Finding], width: int) -> Iterator[Line]:
    yield Line("What the run says of the audit's findings", "head")
    for verdict, (title, meaning, style) in _VERDICTS.items():
        chosen = sorted((f for f in findings if f.verdict == verdict), key=lambda f: f.sort_key)
        if chosen:
            yield Line(f"  {title}: {meaning}", style)
            for finding in chosen:
                place = finding.place
                yield from _wrapped(f"{place} {finding.code} {finding.name}: {finding.message}", width, "    ", hang=2)
                if finding.verdict_reason:
                    yield from (Line(line.text, "dim") for line in _wrapped(finding.verdict_reason, width, "      "))


def source_line(root: Path | None, site: Site) -> str | None:
    """The user's line of source without indentation; None where the file cannot be read."""
    source = _source(str((root or Path()) / site.path))
    return source[site.line - 1].strip().replace("\t", " ") if 0 < site.line <= len(source) else None


@lru_cache(maxsize=64)
def _source(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text("utf-8", "replace").splitlines())
    except (OSError, ValueError):
        return ()


def _wrapped(text: str, width: int, indent: str = "", hang: int = 0) -> Iterator[Line]:
    later = indent + " " * hang
    for line in wrap(text, width, initial_indent=indent, subsequent_indent=later, break_long_words=True, break_on_hyphens=False):
        yield Line(line)


def _short(text: str, width: int) -> str:
    """A place without the first folders of its path where it is too long, and cut where that does not help."""
    while width_of(text) > width and "/" in text.removeprefix("../"):
        text = "../" + text.removeprefix("../").split("/", 1)[1]
    return cut(text, width)
