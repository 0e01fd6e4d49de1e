"""What a silent fault is, and its kinds."""

from __future__ import annotations

from dataclasses import dataclass

from ddp_audit.events import Site

GRADIENTS_NOT_REDUCED = "gradients-not-reduced"
STEPS_DIFFER = "steps-differ"
GRADIENTS_DIFFER = "gradients-differ"
PARAMETERS_DIFFER = "parameters-differ"
OPTIMIZER_DIFFERS = "optimizer-differs"
BUFFERS_DIFFER = "buffers-differ"
WRONG_FACTOR = "wrong-factor"
SAME_DEVICE = "same-device"
SAME_SAMPLES = "same-samples"
TOKEN_WEIGHTS = "token-weights"
SEED_SHARED = "seed"
SAMPLER_DIFFERS = "sampler-differs"
SAMPLES_SHARED = "shared-samples"
SCHEDULER_STEPS = "scheduler-steps"
GENERATOR_SHARED = "generator"


@dataclass(frozen=True, slots=True)
class SilentFault:
    """One fault: its kind, the ranks it concerns, the user's line (None where none was recorded) and what it means."""

    kind: str
    ranks: tuple[int, ...]
    site: Site | None
    explanation: str
