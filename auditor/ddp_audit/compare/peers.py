"""Which ranks are replicas of each other: those that wrapped a model with one process group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ddp_audit.compare.run import RecordedRun, tally
from ddp_audit.events import DEFAULT_GROUP, WRAP

T = TypeVar("T")


class Groups:
    """The replicas of a run. Stages of a pipeline and ranks of other tensor-parallel places wrap with other groups: they are none.

    >>> run = RecordedRun(4)
    >>> list(Groups(run).of("ddp0", range(4)))  # the trace tells of no wrapper
    [[0, 1, 2, 3]]
    """

    def __init__(self, run: RecordedRun) -> None:
        self._members: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        belong = {name: set(ranks) for name, ranks in run.groups.items()}  # thousands of ranks ask
        for rank, rank_run in sorted(run.ranks.items()):
            for event, _ in tally(rank_run.events, WRAP):
                name = str(event.detail.get("group") or event.group or DEFAULT_GROUP)
                known = belong.get(name)
                if known is None or rank in known:
                    self._members[str(event.detail.get("model", ""))][name].add(rank)

    def of(self, model: str, ranks: Iterable[int]) -> Iterator[list[int]]:
        """The ranks, as far as they are among `ranks`, that are replicas of each other in a model; groups of one are left out."""
        given = list(ranks)
        if model not in self._members:
            found = [given]
        else:
            found = [[rank for rank in given if rank in members] for members in self._members[model].values()]
        return (group for group in found if len(group) > 1)

    def replicas(self, ranks: Iterable[int]) -> Iterator[list[int]]:
        """The ranks that are replicas of each other in the first model that is wrapped."""
        return self.of(next(iter(self._members), ""), ranks)

    def split(self, by_model: Mapping[str, Mapping[int, T]]) -> Iterator[dict[int, T]]:
        """What is known by model and rank, for each group of replicas."""
        for model, by_rank in sorted(by_model.items()):
            for ranks in self.of(model, by_rank):
                yield {rank: by_rank[rank] for rank in ranks}
