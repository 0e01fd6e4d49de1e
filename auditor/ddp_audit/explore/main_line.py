"""The main line of a script: the job that the tool is for, in which a process group is made and a wrapped model takes steps.

Where the script as its defaults have it does not come there, each open option and each unknown condition that it asked is taken
otherwise in turn, on one rank and for a short while; the one that gets furthest is kept, and the report states it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddp_audit.explore.exact import ALWAYS, RANK, Interpreter, Job, OpenOption
from ddp_audit.source.paths import place_of

_TRIAL_TICKS = 3_000  # statements of one trial
_ALL_TICKS = 40_000  # statements of all trials of a script
_FEWER_TICKS = 12_000  # where there is a process group, and only a wrapper is looked for, which there may not be
_MOST_ROUNDS = 3  # options and conditions that are taken otherwise together
_MOST_CHOICES = 3  # other choices of one option


@dataclass(frozen=True, slots=True)
class Flip:
    """One option or condition that is taken otherwise: `text` says it for a report."""

    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    contrary: Mapping[tuple[str, int, str], int] = field(default_factory=dict)
    default: Any = None


def main_line(job: Job) -> tuple[Job, tuple[Flip, ...]]:
    """The job whose run comes to a process group, a wrapper and a step, and what it takes otherwise than the defaults."""
    trial = replace(job, limits=replace(job.limits, ticks=_TRIAL_TICKS))
    seen = trial.run(0)
    best, spent, flips = _progress(seen), seen.ticks, []
    for _ in range(_MOST_ROUNDS):
        if best[0] and best[1]:
            break
        found, most = None, _FEWER_TICKS if best[0] else _ALL_TICKS
        for flip in _flips(seen, trial):
            if spent > most:
                break
            tried = _with(trial, flip).run(0)
            spent += tried.ticks
            if _progress(tried) > (best if found is None else _progress(found[1])):
                found = (flip, tried)
                if all(_progress(tried)):
                    break
        if found is None:
            break
        flips.append(found[0])
        trial, seen, best = _with(trial, found[0]), found[1], _progress(found[1])
    if not flips or not best[0]:
        return job, ()
    for flip in flips:
        job = _with(job, flip)
    return job, tuple(flips)


def _progress(it: Interpreter) -> tuple[bool, bool, bool]:
    """How far a rank came: to a process group, a wrapper, an optimizer step."""
    return it.grouped, bool(it.wrappers), bool(it.steps)


def _with(job: Job, flip: Flip) -> Job:
    return replace(job, settings={**job.settings, **flip.settings}, contrary={**job.contrary, **flip.contrary})


def _flips(it: Interpreter, job: Job) -> Iterator[Flip]:
    """What a run left open: its options with other values, the switches first, then the conditions that are equal on all ranks."""
    known = {**job.overrides, **job.settings}
    pairs = [(name, option, value) for name, option in it.options.items() if name not in known for value in _values(option, job)]
    for name, option, value in sorted(pairs, key=lambda pair: pair[2] is not True):
        yield Flip(f"the option {name} = {value}", {name: value}, default=option.default)
    for key, assumption in it.assumptions.items():
        if not assumption.local and key not in job.contrary:
            other = "false" if assumption.taken == "true" else "true"
            yield Flip(f"{place_of(assumption.path, assumption.line)} {assumption.text}: {other}", contrary={key: ALWAYS})


def _values(option: OpenOption, job: Job) -> list[Any]:
    """Other values of an option that can switch something on: the flag, another choice, the rank or the number of ranks."""
    if option.choices:
        return [choice for choice in option.choices if choice != option.default][:_MOST_CHOICES]
    if option.default is False and option.is_switch:
        return [True]
    if option.is_number and option.default in (None, -1):
        return [RANK]
    return [job.world_size] if option.is_number and option.default in (0, 1) else []
