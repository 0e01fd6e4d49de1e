"""Ranks with unequal numbers of tokens: how far the mean of their means can be from the mean of all tokens, and what repairs it.

DDP averages the gradients of the ranks' losses. Where each loss is the mean of its rank's own tokens, a token of a rank with few
of them weighs more. The weight w_r = W n_r / N on the loss of rank r, with N all tokens, makes the average that of all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unequal:
    """The token counts of the ranks of one update, and what they do to a mean of rank means."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def weights(self) -> list[Fraction]:
        """The factor on each rank's mean loss that makes the average over ranks the mean over tokens."""
        return [Fraction(count * len(self.counts), self.total) for count in self.counts]

    @property
    def shift(self) -> Fraction:
        """The largest distance of the mean of means from the token mean, as a share of the spread of the rank means.

        The spread is the largest rank mean less the smallest one; half of the sum of |1/W - n_r/N| is reached where the ranks
        with too much weight have the one and those with too little the other.
        """
        return sum((abs(Fraction(1, len(self.counts)) - Fraction(n, self.total)) for n in self.counts), Fraction(0)) / 2

    @property
    def token_weight(self) -> Fraction:
        """How much more a token of the rank with the fewest weighs than one of the rank with the most."""
        return Fraction(max(self.counts), max(min(self.counts), 1))

    def to_json(self) -> dict[str, object]:
        return {
            "counts": list(self.counts),
            "mean": float(Fraction(self.total, len(self.counts))),
            "weights": [round(float(weight), 6) for weight in self.weights],
            "shift": round(float(self.shift), 6),
        }


def worst(world_size: int, low: int, high: int) -> Unequal:
    """The counts within bounds that shift the mean most: some ranks with the fewest tokens, the others with the most."""
    choices = [Unequal((high,) * many + (low,) * (world_size - many)) for many in range(1, world_size)]
    return max(choices, key=lambda choice: choice.shift, default=Unequal((high,) * world_size))


def token_lines(unequal: Unequal, bounds: tuple[int, int] | None, shown: int = 16) -> Sequence[str]:
    """The answer for people."""
    lines = []
    if bounds is not None:
        many = unequal.counts.count(bounds[1])
        lines.append(
            f"Between {bounds[0]:,} and {bounds[1]:,} tokens a process: the worst is {bounds[1]:,} in {many} and {bounds[0]:,} in "
            f"{len(unequal.counts) - many} of {len(unequal.counts)}."
        )
    if unequal.shift == 0:
        return [*lines, "All processes have the same number of tokens: the mean of their means is the mean of all tokens."]
    lines += [
        f"The mean of the processes' means can be up to {float(unequal.shift):.1%} of their spread (largest less smallest mean) "
        "away from the mean of all tokens.",
        f"A token of the process with the fewest weighs {float(unequal.token_weight):.2f} times one of the process with the most.",
        f"Weights on the losses that repair it (W x n / N, with N = {unequal.total:,}):",
    ]
    distinct = list(dict.fromkeys(zip(unequal.counts, unequal.weights, strict=True)))
    for count, weight in distinct[:shown]:
        times = unequal.counts.count(count)
        lines.append(f"  n = {count:,}: {float(weight):.6g}" + (f"  ({times} processes)" if times > 1 else ""))
    if len(distinct) > shown:
        lines.append(f"  and {len(distinct) - shown} more")
    return lines
