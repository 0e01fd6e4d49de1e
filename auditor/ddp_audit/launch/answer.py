"""The answer of `ddp-audit batch` for a script: what an update is on W processes, what it was on others, and what keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddp_audit.launch import arithmetic
from ddp_audit.launch.model import Launch
from ddp_audit.launch.quantities import quantities
from ddp_audit.launch.scaling import Job, Number
from ddp_audit.launch.update import FIXED, GLOBAL_BATCH_KIND, GLOBAL_COUNT, PER_PROCESS, PLAIN, TOTAL, Update
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Draw, SamplerMade, Seed
from ddp_audit.program.values import RANK

MEANINGS = {
    GLOBAL_COUNT: "A is global: {where} divides {name} by the number of processes",
    PER_PROCESS: "{name} is already per process: nothing divides it by the number of processes, so K grows with W",
    TOTAL: "K is given: {where} divides {name} by B, T and the number of processes",
    GLOBAL_BATCH_KIND: "the batch is global: {where} divides {name} by the number of processes",
    FIXED: "a is fixed: {where} computes it {fixed} and not from the number of processes, so K grows with W",
    PLAIN: "one micro-batch an update: {name} is per process, so K grows with W",
}


@dataclass(slots=True)
class Answer:
    """All that is said about one question. B, A and K are those that are kept; `now` is the job that is asked about."""

    world: int
    block: int
    batch: int
    accumulation: int | None
    tokens: int
    unit: str
    now: Update | None = None
    before: Update | None = None
    numbers: list[Number] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quantities: list[str] = field(default_factory=list)  # what else follows the number of processes
    only_per_rank: int | None = None  # the script makes this many micro-batches, whatever is asked

    @property
    def options(self) -> list[arithmetic.Option]:
        """The choices that keep K, nearest to B first; those that the script can make."""
        found = arithmetic.options(self.world, self.tokens, self.block, self.batch)
        return [o for o in found if self.only_per_rank in (None, o.per_rank)]

    @property
    def instead(self) -> list[arithmetic.Option]:
        """What becomes of an update with B as it is and A next to what does not divide: the same B, another K."""
        if self.accumulation is None or self.accumulation % self.world == 0 or self.only_per_rank is not None:
            return []
        near = arithmetic.nearest_accumulations(self.accumulation, self.world)
        return [self._with_accumulation(count) for count in near]

    def _with_accumulation(self, count: int) -> arithmetic.Option:
        tokens = arithmetic.tokens_per_update(count, self.batch, self.block)
        return arithmetic.Option(self.batch, count, count // self.world, tokens, tokens == self.tokens)

    def current(self) -> arithmetic.Current | None:
        """Whether the job that is asked about can be so."""
        if self.now is None:
            return arithmetic.current(self.world, self.tokens, self.block, self.batch, self.accumulation)
        reason = why_not(self.now)
        if reason is None and self.now.tokens != self.tokens:
            reason = f"{self.now.product()} = {self.now.tokens}, not {self.tokens}"
        batch = int(self.now.batch.value) if self.now.batch is not None else None
        # A batch that is rounded down is not a batch of the job: the script stops, or does less than it says.
        whole = self.now.kind != GLOBAL_BATCH_KIND or self.now.rest == 0
        per_rank = self.now.per_rank if self.now.holds else None
        return arithmetic.Current(batch if whole else None, self.accumulation, per_rank, reason is None, reason)


def why_not(update: Update) -> str | None:
    """Why a job cannot be so, as a sentence without a stop; None where it can."""
    if update.holds or update.source is None:
        return None
    value = int(update.source.value)
    if value < 1:
        return f"{update.source.name} is {value}, and an update needs at least one micro-batch"
    if update.kind == TOTAL and update.divisor != update.world:
        factors = " x ".join(["W", *(["B"] if update.batch else []), *(["T"] if update.block else [])])
        return f"{value} is not divisible by {factors} = {update.divisor}"
    return f"{value} is not divisible by {update.divisor}"


def meaning(update: Update) -> str:
    """How the code comes to a, in words."""
    name = update.source.name if update.source is not None else "the count"
    where = update.division.span.place if update.division is not None else ""
    fixed = f"from {update.fixed.name} = {update.fixed.value}" if update.fixed is not None else "from numbers of the source"
    return MEANINGS[update.kind].format(name=name, where=where, fixed=fixed)


def answer(
    job: Job, now: Update, before: Update | None, tokens: int | None, *, batch: int | None = None, block: int | None = None
) -> Answer | None:
    """The answer for a script. `tokens` is the wished K, that of the job before where None; None where B is not known."""
    shown = before if before is not None and before.holds else now
    size = int(shown.batch.value) if shown.batch is not None else None
    size = batch if batch is not None else size
    if size is None:
        return None
    length = block or (int(now.block.value) if now.block is not None else 1)
    accumulation = _accumulation(now, before, size, length)
    kept = tokens if tokens is not None else _kept(now, before, size, length, accumulation)
    unit = "tokens" if now.block is not None or block is not None else "samples"
    found = Answer(now.world, length, size, accumulation, kept, unit, now, before)
    found.numbers = list(dict.fromkeys([*now.numbers(), *(before.numbers() if before is not None else [])]))
    if now.kind in (PLAIN, GLOBAL_BATCH_KIND):
        found.only_per_rank = now.per_rank
    found.quantities = quantities(job, now)
    found.notes = [*_random_batches(job.program, now, before), *_changed_count(found)]
    return found


def _accumulation(now: Update, before: Update | None, batch: int, block: int) -> int | None:
    """A as it is meant now."""
    if now.kind == GLOBAL_COUNT and now.source is not None:
        return int(now.source.value)
    if now.kind == TOTAL and now.source is not None:
        count, rest = divmod(int(now.source.value), batch * block)
        return count if rest == 0 else None
    first = before or now
    return first.made


def _kept(now: Update, before: Update | None, batch: int, block: int, accumulation: int | None) -> int:
    """K as it was, or as it is meant to be."""
    if before is not None and before.holds and before.tokens is not None:
        return before.tokens
    if now.kind in (TOTAL, GLOBAL_BATCH_KIND) and now.source is not None:
        return int(now.source.value) * (block if now.kind == GLOBAL_BATCH_KIND else 1)
    return (accumulation or 1) * batch * block


def _random_batches(program: Program, now: Update, before: Update | None) -> list[str]:
    """What the samples of an update do when W changes, from how the program comes to them."""
    if before is None or before.world == now.world:
        return []
    draws = next((node for node in program.of(Draw)), None)
    seed = next((node for node in program.of(Seed) if RANK in node.seed.taint), None)
    seeded = f", seeded with its rank at {seed.span.place}" if seed is not None else ""
    if program.has(SamplerMade):
        return [
            "The sampler deals the same shuffled order out over more or fewer processes: with K kept an update has the same "
            "samples up to the padding at the end, but dropout and augmentation draw from "
            f"{now.world} streams instead of {before.world}{seeded}."
        ]
    if draws is not None:
        return [
            "The random batches change with W even where K does not: every process draws its own at "
            f"{draws.span.place}{seeded}, so {now.world} processes draw others than {before.world}, and the two "
            "runs do not give the same losses."
        ]
    return [
        f"With {now.world} processes instead of {before.world} the random numbers of an update come from other streams, so the two "
        "runs differ even where K does not."
    ]


def _changed_count(found: Answer) -> list[str]:
    now, before = found.now, found.before
    if now is None or before is None or now.tokens is None or not before.tokens or now.tokens == before.tokens or not now.holds:
        return []
    factor = now.tokens / before.tokens
    return [
        f"Unchanged, K goes from {before.tokens:,} to {now.tokens:,} {found.unit} ({factor:.4g} times): {meaning(now)}. "
        "Schedules counted in updates then see as many more samples, and a learning rate that was tuned for the one K is used "
        "with the other."
    ]


def launch_row(launch: Launch, update: Update | None) -> dict[str, Any]:
    """One launch with what an update is made of, for the list of all launches of a script."""
    row: dict[str, Any] = {
        "where": launch.where(), "command": launch.text, "world_size": launch.world_size,
        "world_from": {name: launch.origin(name) for name in ("nnodes", "nproc_per_node") if launch.origin(name)},
        "open": launch.symbolic,
    }  # fmt: skip
    if update is None:
        return row
    row.update(
        a=update.per_rank if update.holds else None,
        B=int(update.batch.value) if update.batch is not None and update.holds else None,
        T=int(update.block.value) if update.block is not None else None, A=update.made if update.holds else None,
        tokens_per_update=update.tokens if update.holds else None, unit=update.unit, holds=update.holds, reason=why_not(update),
        meaning=meaning(update), numbers=[{"name": n.name, "value": n.value, "where": n.where} for n in update.numbers()],
    )  # fmt: skip
    return row


def differing(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of launches of several processes whose K is not the same; empty where it is."""
    known = [row for row in rows if row.get("tokens_per_update") is not None and row["world_size"] > 1]
    return known if len({row["tokens_per_update"] for row in known}) > 1 else []
