"""Whether one rank is slower than the others, and in which phase: a test that chance and a busy machine do not pass.

Compared is, step by step, the time of a rank's own work in a phase with the median of the other ranks in the same step: what
slows all ranks down (a long sequence, a busy disk) falls out. Steps that follow each other are not independent, since a load on the
machine lasts for many of them. So they are joined to blocks, and the spread of the blocks says how far chance goes. A rank is slow
if its surplus is beyond chance for all ranks and phases that are asked about, is there in nearly all blocks, and is worth naming:
at least `LEAST_SHARE` of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, median, pvariance

from ddp_audit.compare.waiting.timeline import PHASES
from ddp_audit.events import Site

LEAST_SHARE = 0.03
_BLOCKS = 16
_LEAST_UNITS = 6  # steps in which a phase must occur
_RARE = 0.5  # a phase of fewer steps than this part of all is compared where it occurs
_ALPHA = 0.001  # chance of a verdict on a run of even ranks
_SAME_SIGN = 0.85  # part of the blocks in which the rank is slower
_MOST_CORRELATED = 0.9
_CUT = 4.0  # a surplus further than so many spreads from the median is cut there: one long pause decides nothing


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank whose own work in `phase` takes `share` of a step longer than that of the others, `seconds` a step on average.

    `phases` are all in which it is slower, the first one most. `occurs`: in how many of the `steps` the phase occurs on it;
    `alone` says that the other ranks have no such phase.
    """

    rank: int
    phase: str
    site: Site | None
    share: float
    seconds: float
    steps: int
    occurs: int
    alone: bool
    phases: tuple[str, ...]


class Worked:
    """The own work of one rank, by step and phase and by the line that stands for it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.phases: dict[str, list[float]] = {}
        self.sites: dict[str, dict[Site | None, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, step: int, phase: str, site: Site | None, seconds: float) -> None:
        """Takes up some seconds of work."""
        column = self.phases.get(phase)
        if column is None:
            column = self.phases[phase] = [0.0] * self.steps
        column[step] += seconds
        self.sites[phase][site] += seconds

    def of(self, phase: str) -> list[float]:
        """The seconds of a phase in each step."""
        return self.phases.get(phase) or [0.0] * self.steps

    def totals(self) -> dict[str, float]:
        """The seconds of each phase that occurs."""
        return {phase: sum(self.phases[phase]) for phase in PHASES if phase in self.phases}


def find_stragglers(worked: Mapping[int, Worked], lengths: Sequence[float]) -> list[Straggler]:
    """The ranks that are slow, the slowest first. `lengths`: how long each step took."""
    whole = sum(lengths)
    phases = [phase for phase in PHASES if any(phase in one.phases for one in worked.values())]
    if len(worked) < 2 or whole <= 0 or not phases:
        return []
    tests = len(worked) * len(phases)
    surplus = dict.fromkeys(worked, 0.0)
    slower: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for phase in phases:
        columns = {rank: one.of(phase) for rank, one in worked.items()}
        for rank, (seconds, is_slow) in _compared(columns, whole, tests).items():
            surplus[rank] += seconds
            if is_slow:
                slower[rank].append((seconds, phase))
    found = []
    for rank, slow in slower.items():
        seconds, phase = max(slow)
        # A rank that makes up for it in another phase holds nobody up.
        if surplus[rank] < seconds / 4:
            continue
        others = [one.of(phase) for other, one in worked.items() if other != rank]
        steps = worked[rank].steps
        found.append(
            Straggler(
                rank,
                phase,
                _site(rank, phase, worked),
                seconds / whole,
                seconds / steps,
                steps,
                sum(value > 0 for value in worked[rank].of(phase)),
                not any(map(any, others)),
                tuple(name for _, name in sorted(slow, reverse=True)),
            )
        )
    return sorted(found, key=lambda one: -one.share)


def _compared(columns: Mapping[int, Sequence[float]], whole: float, tests: int) -> dict[int, tuple[float, bool]]:
    """By rank the seconds that a phase takes longer than on the others, and whether that is beyond chance."""
    steps = len(next(iter(columns.values())))
    chosen = [step for step in range(steps) if any(column[step] > 0 for column in columns.values())]
    if len(chosen) >= _RARE * steps:
        chosen = list(range(steps))
    surplus = _surplus(columns, chosen)
    sums = {rank: sum(_without_pauses(values)) for rank, values in surplus.items()}
    if len(chosen) < _LEAST_UNITS or max(sums.values(), default=0.0) < LEAST_SHARE * whole:
        return {rank: (seconds, False) for rank, seconds in sums.items()}
    blocks = {rank: _blocks(_without_pauses(values)) for rank, values in surplus.items()}
    count = len(next(iter(blocks.values())))
    spreads = {rank: pvariance(values) * count / (count - 1) for rank, values in blocks.items()}
    usual = median(spreads.values())
    longer = _memory(list(blocks.values()))
    # The spread of all ranks together is known better than that of one.
    freedom = (count - 1) * (len(blocks) // 2)
    limit = _quantile(_ALPHA / tests, freedom)
    found = {}
    for rank, values in blocks.items():
        seconds = sums[rank]
        error = (longer * max(spreads[rank], usual) / count) ** 0.5
        is_slow = (
            seconds >= LEAST_SHARE * whole
            and fmean(values) > limit * error
            and sum(value > 0 for value in values) >= _SAME_SIGN * count
        )
        found[rank] = (seconds, is_slow)
    return found


def _surplus(columns: Mapping[int, Sequence[float]], chosen: Iterable[int]) -> dict[int, list[float]]:
    """What each rank takes longer than the median of the others, in each of some steps."""
    found: dict[int, list[float]] = {rank: [] for rank in columns}
    for step in chosen:
        row = sorted(column[step] for column in columns.values())
        for rank, column in columns.items():
            found[rank].append(column[step] - _median_without(row, column[step]))
    return found


def _median_without(row: Sequence[float], value: float) -> float:
    """The median of a sorted row without one of its values.

    >>> _median_without([1, 2, 3, 4], 3), _median_without([1, 2, 3], 1), _median_without([1, 2, 3], 2)
    (2, 2.5, 2.0)
    """
    half = len(row) // 2
    if len(row) % 2 == 0:
        return row[half] if value <= row[half - 1] else row[half - 1]
    if value == row[half]:
        return (row[half - 1] + row[half + 1]) / 2
    return (row[half] + row[half + 1]) / 2 if value < row[half] else (row[half - 1] + row[half]) / 2


def _without_pauses(values: Sequence[float]) -> list[float]:
    middle = median(values)
    spread = 1.4826 * median([abs(value - middle) for value in values])
    if spread == 0.0:
        return list(values)
    low, high = middle - _CUT * spread, middle + _CUT * spread
    return [min(max(value, low), high) for value in values]


def _blocks(values: Sequence[float]) -> list[float]:
    """The means of blocks of steps that follow each other, all of about one length."""
    count = min(_BLOCKS, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    return [fmean(values[first:last]) for first, last in pairwise(edges)]


def _memory(series: Sequence[Sequence[float]]) -> float:
    """By how much blocks that resemble the one before them raise the variance of their mean, from all ranks together.

    (1 + r) / (1 - r) for a correlation r of neighbours, which a short series shows too small by about (1 + 4 r) / length (M. G.
    Kendall, Note on bias in the estimation of autocorrelation, 1954).
    """
    count = len(series[0])
    together = spread = 0.0
    for values in series:
        middle = fmean(values)
        apart = [value - middle for value in values]
        together += sum(one * other for one, other in pairwise(apart))
        spread += sum(one * one for one in apart)
    if spread <= 0.0:
        return 1.0
    seen = together / spread
    correlation = min(max(seen + (1 + 4 * seen) / count, 0.0), _MOST_CORRELATED)
    return (1 + correlation) / (1 - correlation)


def _quantile(alpha: float, freedom: int) -> float:
    """The value that Student's t exceeds with chance `alpha`, by the expansion of Cornish and Fisher around the normal one.

    >>> round(_quantile(0.025, 9), 2), round(_quantile(0.001, 9), 1)
    (2.26, 4.3)
    """
    z = NormalDist().inv_cdf(1 - alpha)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _site(rank: int, phase: str, worked: Mapping[int, Worked]) -> Site | None:
    """The line at which a rank takes most of what it takes longer than the others."""
    mine = worked[rank].sites[phase]
    others = [one.sites.get(phase, {}) for other, one in worked.items() if other != rank]
    longer = {site: seconds - median([other.get(site, 0.0) for other in others]) for site, seconds in mine.items()}
    known = {site: seconds for site, seconds in longer.items() if site is not None}
    return max(known, key=known.__getitem__) if known else None
