"""Slow or stuck: who is late to the collectives of a run, who waits for it, and in which phase of a step the time goes.

`waiting` is the entrance. It reads the newest records of each rank (`timeline`), brings the clocks of the ranks together
(`clocks`), derives from the arrivals of all ranks when each could go on (`arrivals`), and asks whether one rank takes longer than
the others in a way that chance does not explain (`straggler`).
"""

from __future__ import annotations

from ddp_audit.compare.waiting.measure import RankWaiting, Waiting, waiting, waiting_of
from ddp_audit.compare.waiting.straggler import Straggler
from ddp_audit.compare.waiting.timeline import CHECKPOINT, DATA, PHASES

__all__ = ["CHECKPOINT", "DATA", "PHASES", "RankWaiting", "Straggler", "Waiting", "waiting", "waiting_of"]
