"""What the sentence next to a command claims about it, and whether the two disagree.

A claim is kept only where it can be read in few ways. Whatever hedges (`up to 8 GPUs`, `trained on 8 GPUs`), names more than
one number, or counts something else (`GPU hours`) is not a claim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddp_audit.launch.model import PYTHON, WORLD_SIZE, Launch, ProseClaim
from ddp_audit.lazy_regex import lazy_compile

_WORDS = {
    **{"single": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9},
    **{"ten": 10, "twelve": 12, "sixteen": 16, "thirty-two": 32, "sixty-four": 64},
}
_COUNT = r"(?<![\w.:/=$-])(?P<count>\d{1,5}|" + "|".join(_WORDS) + r")"
_KIND = r"(?:nvidia|amd|tesla|cuda|local|physical|geforce|rtx|[ahvbptl]\d{2,4}s?|\d{2,3}\s?gb|mi\d{3}x?)"
_OTHER = r"(?:hours?|days?|memory|ram|ids?|nodes|machines|hosts|servers)"
_GPUS = lazy_compile(
    _COUNT + r"[\s-]*(?:[x×]\s*)?(?:" + _KIND + r"[\s-]+){0,3}(?:gpus?|processes|ranks)\b(?![\s-]*" + _OTHER + r"\b)",
    re.IGNORECASE,
)
_NODES = lazy_compile(
    _COUNT + r"(?:[\s-]*(?:(?:compute|cluster)[\s-]+)?(?:nodes?|machines?|hosts?|servers?)|\s+gpu\s+(?:nodes|machines))\b",
    re.IGNORECASE,
)
_RANGE = lazy_compile(r"\d\s*(?:to|or|and|,|/|-|–)\s*\d+[\s-]*(?:gpus?|nodes?|machines?)\b", re.IGNORECASE)

# Words with which a sentence speaks of limits, of the past or of conditions and not of the command next to it.
_HEDGE = lazy_compile(
    r"\b(?:up to|at least|at most|more than|less than|fewer than|or more|or fewer|or less|minimum|maximum|requires?"
    r"|required|needs?|needed|trained|tested|was|were|took|takes|assum\w+|has|have|had|multiples? of|instead of|not|cannot"
    r"|without|except|unless|default|change|replace|adjust|modify|depending|ignored?|unused|paper|only)\b|n't\b|[<>≤≥~]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Unclear:
    """A sentence that names a number of GPUs or nodes in a way that is not a claim. It ends the search for one."""


def claim_in(text: str, line: int) -> ProseClaim | Unclear | None:
    """The claim of one line of prose; `Unclear` where it names GPUs or nodes and claims nothing; None where it does neither.

    Of several sentences on the line the last one counts: it is the one that leads to the command.
    """
    if _RANGE.search(text):
        return Unclear()
    *earlier, text = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text.strip())
    if not _GPUS.search(text) and not _NODES.search(text):
        return Unclear() if any(_GPUS.search(part) or _NODES.search(part) for part in earlier) else None
    gpus = {_value(m) for m in _GPUS.finditer(text)}
    nodes = {_value(m) for m in _NODES.finditer(text)}
    if len(gpus) > 1 or len(nodes) > 1 or _HEDGE.search(text):
        return Unclear()
    return ProseClaim(next(iter(gpus), None), next(iter(nodes), None), line, " ".join(text.split()).lstrip("#-* "))


def _noun(claim: ProseClaim) -> str:
    """What the sentence counts, in its number."""
    one, many = ("GPU", "GPUs") if re.search(r"gpu", claim.text, re.IGNORECASE) else ("process", "processes")
    return one if claim.gpus == 1 else many


def _value(match: re.Match[str]) -> int:
    count = match.group("count").lower()
    return int(count) if count.isdigit() else _WORDS[count]


def disagreement(launch: Launch) -> str | None:
    """Why the sentence next to a command and the command do not describe one job; None where some reading agrees.

    `4 GPUs` may be the total or the number a node; with `2 nodes` it may also be 4 on each of 2. A plain python command is not
    judged: the script may start processes itself.
    """
    claim, world = launch.prose, launch.world_size
    if claim is None or world is None or launch.kind in (PYTHON, WORLD_SIZE):
        return None
    if claim.gpus is not None:
        readings = {claim.gpus: f"{claim.gpus} in total"}
        if claim.nodes is not None and claim.nodes > 1:
            readings.setdefault(
                claim.gpus * claim.nodes, f"{claim.gpus * claim.nodes} as {claim.gpus} on each of {claim.nodes} nodes"
            )
        per_node = isinstance(launch.nproc_per_node, int) and launch.nproc_per_node == claim.gpus
        if world not in readings and not per_node:
            noun = _noun(claim)
            return (
                f"the sentence says {claim.gpus} {noun} ({' or '.join(readings.values())})"
                if len(readings) > 1
                else (f"the sentence says {claim.gpus} {noun}")
            )
    if claim.nodes is not None and launch.nnodes_stated and isinstance(launch.nnodes, int) and launch.nnodes != claim.nodes:
        return f"the sentence says {claim.nodes} node{'s' if claim.nodes > 1 else ''}"
    return None
