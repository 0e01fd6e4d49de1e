"""The hazards that `--hazard` brings in, and what each one does on two CPU ranks.

The departures themselves stand in `train.py`, each under a comment `# HAZARD <name>`. This table says what to expect of them.
It was made by running every one with gloo on torch 2.13; the tests run them again.
"""

from __future__ import annotations

from dataclasses import dataclass

# How a run ends.
COMPLETES = "completes"  # every rank exits with code 0; nothing was printed that says what went wrong
STALLS = "stalls"  # the ranks wait for each other until the timeout of the group, 30 minutes with gloo
ABORTS = "aborts"  # gloo meets two sizes in one collective and ends a rank by SIGABRT

# What shows the fault.
CROSSED = "crossed"  # one collective, issued from different places on the two ranks
OPERATION = "operation"  # different operations, or different sizes, at one index of the sequences
REDUCE_OP = "reduce-op"  # one all-reduce with different reduce operations
EXTRA_TRAFFIC = "extra-traffic"  # right gradients, but more all-reduces than needed
PARAMETERS_DIFFER = "parameters-differ"
GRADIENTS_DIFFER = "gradients-differ"  # after they were reduced; the parameters differ from the first step on
SAME_SAMPLES = "same-samples"  # both ranks train on the same samples at the same time
SAME_ORDER = "same-order"  # every epoch has the order of the first


@dataclass(frozen=True)
class Hazard:
    """One hazard.

    `arguments` are what the launch needs in addition to `--hazard`. `outcome` is how two CPU ranks end, `evidence` what a trace of
    them shows. `codes` are the rules that find it in the source; `later` names the rule of the catalogue for one that no rule of
    `codes` finds.
    """

    name: str
    what: str
    outcome: str
    evidence: str
    codes: tuple[str, ...]
    later: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


_MANUAL = ("--attention", "manual")

HAZARDS: dict[str, Hazard] = {
    hazard.name: hazard
    for hazard in (
        Hazard(
            "rank0-eval",
            "Rank 0 alone evaluates through the wrapper: its buffer broadcast meets the next training forward of the others.",
            COMPLETES,
            CROSSED,
            ("DDP401",),
            arguments=_MANUAL,
        ),
        Hazard(
            "rank0-eval-barrier",
            "Rank 0 alone evaluates through the wrapper, then all ranks meet in a barrier: a broadcast waits for a barrier.",
            STALLS,
            OPERATION,
            ("DDP401",),
            arguments=_MANUAL,
        ),
        Hazard(
            "rank0-eval-grad",
            "Rank 0 alone evaluates through the wrapper with gradients on: every one of its forwards broadcasts the buffers.",
            STALLS,
            OPERATION,
            ("DDP401",),
            arguments=_MANUAL,
        ),
        Hazard(
            "flag-after-forward",
            "require_backward_grad_sync is set between forward and backward: it acts on the next micro-batch, one too late.",
            COMPLETES,
            PARAMETERS_DIFFER,
            ("DDP112",),
        ),
        Hazard(
            "no-sync-backward-only",
            "Only the backward stands inside no_sync: the gradients are reduced after every micro-batch all the same.",
            COMPLETES,
            EXTRA_TRAFFIC,
            ("DDP113",),
        ),
        Hazard(
            "wrapper-bypassed",
            "The loss comes from model.module: the reducer is never armed and every rank trains alone.",
            COMPLETES,
            PARAMETERS_DIFFER,
            ("DDP101",),
        ),
        Hazard(
            "no-sampler",
            "The loader shuffles the whole set on every rank from one seed: all ranks compute the same batches.",
            COMPLETES,
            SAME_SAMPLES,
            ("DDP301",),
        ),
        Hazard(
            "no-set-epoch",
            "The sampler never gets the epoch: every epoch has the order of the first.",
            COMPLETES,
            SAME_ORDER,
            ("DDP302",),
        ),
        Hazard(
            "skip-all-reduce",
            "Rank 0 alone reduces the loss that it prints: its all-reduce waits for a collective of the others' next step.",
            STALLS,
            OPERATION,
            ("DDP201",),
        ),
        Hazard(
            "early-exit",
            "Each rank decides on its own loss whether to stop: the one that stops leaves the others in the next step.",
            STALLS,
            OPERATION,
            ("DDP203",),
        ),
        Hazard(
            "uneven-batches",
            "The data is split by hand and rank 0 has more batches: the others leave the training loop before it.",
            ABORTS,
            OPERATION,
            (),
            later=("DDP205",),
        ),
        Hazard(
            "reduce-op-differs",
            "Rank 0 sums the loss, the others take its maximum: no error; whichever rank reduces an element decides.",
            COMPLETES,
            REDUCE_OP,
            ("DDP201",),
            later=("DDP207",),
        ),
        Hazard(
            "params-differ",
            "The other ranks change a parameter after the wrap: DDP never sends parameters again, so they stay apart.",
            COMPLETES,
            PARAMETERS_DIFFER,
            (),
            later=("DDP111",),
        ),
        Hazard(
            "rank0-clip",
            "Rank 0 alone clips the gradients, after DDP has made them equal: its steps are shorter than those of the others.",
            COMPLETES,
            GRADIENTS_DIFFER,
            (),
            later=("DDP804",),
        ),
    )
}
