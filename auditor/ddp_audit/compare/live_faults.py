"""Silent faults while a run goes on: which of those that are seen will still be faults at its end.

What is seen once may be undone. A script that trains apart for some steps averages the parameters later; two ranks may get the
same first batches by chance. So a fault counts when it is seen again some steps later, and what an average could undo after more
steps than local SGD takes from one average to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.faults import GRADIENTS_DIFFER, GRADIENTS_NOT_REDUCED, OPTIMIZER_DIFFERS, PARAMETERS_DIFFER, SilentFault
from ddp_audit.compare.run import RecordedRun, tally
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import STEP, Site

_STEPS = 8
_STEPS_APART = 64
_MAY_BE_AVERAGED = frozenset({GRADIENTS_NOT_REDUCED, GRADIENTS_DIFFER, PARAMETERS_DIFFER, OPTIMIZER_DIFFERS})


class LiveFaults:
    """Follows the silent faults of one run; `update` returns those that have become sure, each once."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, Site | None], int] = {}  # the steps at which it was seen first
        self._returned: set[tuple[str, Site | None]] = set()

    def update(self, run: RecordedRun) -> list[SilentFault]:
        """Takes up the run as far as it is recorded."""
        return self.take(silent_faults(run), steps_of(run))

    def take(self, faults: Iterable[SilentFault], steps: int) -> list[SilentFault]:
        """Takes up the faults that are seen after so many steps."""
        seen = {(fault.kind, fault.site): fault for fault in faults}
        for gone in self._first.keys() - seen.keys():
            del self._first[gone]
        found = []
        for key, fault in seen.items():
            since = self._first.setdefault(key, steps)
            enough = _STEPS_APART if fault.kind in _MAY_BE_AVERAGED else _STEPS
            if key not in self._returned and steps - since >= enough:
                self._returned.add(key)
                found.append(fault)
        return found


def steps_of(run: RecordedRun) -> int:
    """The optimizer steps of the rank that has made most."""
    return max((sum(count for _, count in tally(one.events, STEP)) for one in run.ranks.values()), default=0)
