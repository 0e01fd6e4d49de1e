"""The arithmetic of an update: K = W·a·B·T = A·B·T.

W is the world size, B the sequences a micro-batch and rank, T the tokens a sequence, A the micro-batches an update over all
ranks, a = A / W those of one rank, and K the tokens an update. All are whole numbers of at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True, slots=True)
class Option:
    """One way to make an update. `exact` says that `tokens` is the wished number and not one near it."""

    batch: int  # B
    accumulation: int  # A
    per_rank: int  # a
    tokens: int  # K
    exact: bool

    def to_json(self) -> dict[str, object]:
        return {
            "B": self.batch,
            "A": self.accumulation,
            "a": self.per_rank,
            "tokens_per_update": self.tokens,
            "exact": self.exact,
        }


@dataclass(frozen=True, slots=True)
class Current:
    """What was asked about: B and A as given or as they follow from K, and whether the job can be so."""

    batch: int | None
    accumulation: int | None
    per_rank: int | None
    holds: bool
    reason: str | None

    def to_json(self) -> dict[str, object]:
        return {
            "B": self.batch,
            "A": self.accumulation,
            "a": self.per_rank,
            "holds": self.holds,
            "reason": self.reason,
        }


def tokens_per_update(accumulation: int, batch: int, block: int) -> int:
    """K = A·B·T."""
    return accumulation * batch * block


def divisors(number: int) -> list[int]:
    """All divisors of a number of at least 1, in ascending order."""
    low = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def nearest_accumulations(accumulation: int, world_size: int) -> list[int]:
    """The accumulation counts next to A, below and above, that W divides. A itself where it does; none below W."""
    if accumulation % world_size == 0:
        return [accumulation]
    below = accumulation - accumulation % world_size
    return [count for count in (below, below + world_size) if count > 0]


def legal_world_sizes(accumulation: int) -> list[int]:
    """The world sizes that an accumulation count allows: its divisors."""
    return divisors(accumulation)


def options(world_size: int, tokens: int, block: int, near: int | None = None) -> list[Option]:
    """The (B, A, a) that keep K for W ranks, those with B nearest to `near` first, the smaller B first where two are as near.

    Without `near` the largest B comes first. Where W·T does not divide K no choice keeps it: then the options are those of the
    nearest K below and above that can be, and are not exact.
    """
    unit = world_size * block
    below, rest = divmod(tokens, unit)
    counts = [count for count in ((below, below + 1) if rest else (below,)) if count > 0]
    found = [
        Option(batch, world_size * (count // batch), count // batch, count * unit, count * unit == tokens)
        for count in counts
        for batch in divisors(count)
    ]
    if near is None:
        return sorted(found, key=lambda o: (abs(o.tokens - tokens), -o.batch))
    return sorted(found, key=lambda o: (abs(o.batch - near), abs(o.tokens - tokens), o.batch))


def why_not_exact(world_size: int, tokens: int, block: int, noun: str = "tokens") -> str | None:
    """Why no choice keeps K, as a sentence without a stop; None where some does."""
    unit = world_size * block
    if tokens % unit == 0:
        return None
    if block == 1 and noun != "tokens":
        return f"{tokens:,} {noun} are not a multiple of W = {world_size}"
    return f"{tokens:,} {noun} are not a multiple of W x T = {world_size} x {block:,} = {unit:,}"


def current(world_size: int, tokens: int, block: int, batch: int | None, accumulation: int | None) -> Current | None:
    """Whether the given B and A make K on W ranks. The missing one follows from K; None where neither is given."""
    if batch is None and accumulation is None:
        return None
    known = batch if batch is not None else accumulation
    assert known is not None
    if batch is None or accumulation is None:
        name, other = ("A", "B") if accumulation is None else ("B", "A")
        follows, rest = divmod(tokens, known * block)
        if rest or follows == 0:
            reason = f"{tokens} tokens are not a multiple of {other} x T = {known} x {block}, so no {name} makes them"
            return Current(batch, accumulation, None, False, reason)
        batch, accumulation = (known, follows) if accumulation is None else (follows, known)
    per_rank = accumulation // world_size if accumulation % world_size == 0 else None
    if per_rank is None:
        return Current(batch, accumulation, None, False, f"{accumulation} is not divisible by {world_size}")
    made = tokens_per_update(accumulation, batch, block)
    if made != tokens:
        reason = f"A x B x T = {accumulation} x {batch} x {block} = {made}, not {tokens}"
        return Current(batch, accumulation, per_rank, False, reason)
    return Current(batch, accumulation, per_rank, True, None)


def batch_json(
    world_size: int, tokens: int, block: int, batch: int | None, accumulation: int | None, limit: int | None = None
) -> dict[str, object]:
    """The documented JSON of `ddp-audit batch`."""
    now = current(world_size, tokens, block, batch, accumulation)
    found = options(world_size, tokens, block, now.batch if now else None)
    return {
        "version": 1,
        "world_size": world_size,
        "block_size": block,
        "tokens_per_update": tokens,
        "current": now.to_json() if now else None,
        "options": [option.to_json() for option in found[:limit]],
    }


NO_ROOM = (
    "A larger B needs more memory in each process, and more processes bring none: DDP keeps the whole model, its gradients and the "
    "optimizer state in each of them."
)


def needs_memory(found: Sequence[Option], near: int | None) -> bool:
    """Whether some choice takes more memory a process than the micro-batch that there is now."""
    return near is not None and any(option.batch > near for option in found)
