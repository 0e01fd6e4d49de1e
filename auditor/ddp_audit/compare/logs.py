"""What the log of a worker or of a whole run says of ranks that part: known error texts, with their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit.compare.explain import code_text, place, rank_list
from ddp_audit.compare.log_texts import TEXTS
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED
from ddp_audit.compare.sequence import Divergence
from ddp_audit.lazy_regex import lazy_compile

if TYPE_CHECKING:
    from ddp_audit.compare.verdict import RankState

# `[rank1]:` of torch, `[default1]:` and `[trainer1]:` of torchrun's --tee, `[Rank 1]` and `Rank 1]` of the watchdog.
_RANK = lazy_compile(r"\[[a-zA-Z_]*?(\d+)\]:|\bRank (\d+)\]")
_ESCAPES = lazy_compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST = 4000  # characters of a line that are looked at
_LOGS = ("*.log", "*.err", "*.out", "*.txt", "stderr*", "stdout*")


@dataclass(slots=True)
class LogNote:
    """A known text in a log: where it stands first, the ranks that print it, how often, and what it means."""

    kind: str
    path: str
    line: int
    text: str
    meaning: str
    ranks: list[int] = field(default_factory=list)
    count: int = 1
    values: dict[str, str] = field(default_factory=dict)


def read_logs(paths: Iterable[str | Path]) -> list[LogNote]:
    """The known texts in log files; a folder stands for the logs in it and below. Raises OSError for one that cannot be read."""
    found: dict[tuple[str, str], LogNote] = {}
    for path in paths:
        for file in _files(Path(path)):
            with file.open("rb") as stream:
                for note in notes_in((line.decode("utf-8", "replace") for line in stream), str(file)):
                    _add(found, note)
    return list(found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted({file for pattern in _LOGS for file in path.rglob(pattern) if file.is_file()})


def notes_in(lines: Iterable[str], path: str) -> Iterator[LogNote]:
    """Each line that holds a known text. The rank is the one that the line or else the file's folder tells."""
    parts = Path(path).parts
    # torchrun --log-dir: .../attempt_0/RANK/stderr.log
    of_file = [int(parts[-2])] if len(parts) > 2 and parts[-2].isdigit() and parts[-3].startswith("attempt_") else []
    for number, raw in enumerate(lines, 1):
        # A progress bar rewrites its line: what stands after its last return is what is read.
        line = _ESCAPES.sub("", raw.rstrip()[:_LONGEST]).rpartition("\r")[2]
        for text in TEXTS:
            match = text.pattern.search(line)
            if match:
                values = {name: value.strip() for name, value in match.groupdict().items() if value is not None}
                if "ms" in values:
                    values["seconds"] = f"{int(values['ms']) / 1000:g}"
                told = _RANK.search(line)
                ranks = [int(told[1] or told[2])] if told else of_file
                yield LogNote(text.kind, path, number, line.strip(), text.meaning.format_map(values), ranks, 1, values)
                break


def _add(found: dict[tuple[str, str], LogNote], note: LogNote) -> None:
    known = found.setdefault((note.kind, note.meaning), note)
    if known is not note:
        known.count += 1
        known.ranks = sorted({*known.ranks, *note.ranks})


def with_diff(
    notes: Sequence[LogNote],
    divergences: Sequence[Divergence],
    states: Mapping[int, RankState] | None = None,
    first_index: int = 0,
) -> list[str]:
    """What the texts and the diff say together, in sentences. `states` says of ranks how they ended, `first_index` is the index
    of a group's first collective."""
    said = []
    parted = [divergence for divergence in divergences if not divergence.is_notice]
    for note in notes:
        if note.kind == "nccl-timeout" and "seq" in note.values:
            index = int(note.values["seq"]) - 1 + first_index
            same = next((d for d in parted if d.index == index and d.message is None), None)
            where = "which is where the ranks diverge" if same else "as the diff counts them"
            said.append(f"Number {note.values['seq']} of the watchdog is collective {index} {where}.")
    if notes and parted:
        first = parted[0]
        sides: list[tuple[list[int], str]] = []
        for rank, event in sorted(first.ranks.items()):
            text = _absence((states or {}).get(rank)) if event is None else f"at {place(event)}"
            if not sides or sides[-1][1] != text:
                sides.append(([rank], text))
            else:
                sides[-1][0].append(rank)
        told = "; ".join(f"{rank_list(ranks)} {text}" for ranks, text in sides[:4])
        what = "collective" if first.message is None else "message"
        said.append(f"The diff explains these texts by {what} {first.index} of {first.group_text()}: {told}.")
    elif notes:
        said.append("The diff shows no collective in which the ranks diverge: what the texts report is not in the trace.")
    return list(dict.fromkeys(said))


def _absence(state: RankState | None) -> str:
    """What is said of a rank that never entered the collective: how it ended, where it has."""
    if state is None or state.state == MISSING:
        return "left no trace"
    if state.state == RAISED:
        return f"ended with {state.error or 'an exception'}{f' at {state.raised_at}' if state.raised_at else ''}"
    if state.state in (EXITED, KILLED):
        return f"{'exited' if state.state == EXITED else 'was killed'}{code_text(state.code)}"
    return "never entered it"
