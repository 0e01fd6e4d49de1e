"""Reads the files of a traced run: whole (`load_run`), or again and again while it lives (`FollowRun`).

Every record becomes an `Event`. What stands in `Event.detail` for each kind:

collective  call: the dispatcher's name (`_allgather_base_`); shape: list of the payload's shapes; async: bool, whether the
            caller did not wait in the call; done: time at which it was seen to have returned, or None while it has not (and for
            works that nobody could ask); raised: bool; thread: 0 for the main thread; for send and recv also peer (a global
            rank, or None: from any) and tag, and async tells isend and irecv from them. `op` is torch.distributed's name, with
            its variants folded: all_gather and all_gather_into_tensor are `all_gather`, reduce_scatter and reduce_scatter_tensor
            `reduce_scatter`, all_to_all and all_to_all_single `all_to_all`, a coalesced call the operation itself with the sum
            of its sizes. `numel` is what this rank brings; for scatter and recv, what it receives. all_to_all, and what has
            lists of tensors, has sends and receives: the elements for and from each rank of the group, a list, or one number
            where they are equal; of gather and scatter the root alone has both. `index` is
            None for send and recv.
start       rank, world_size, pid, host, ticks (start of the process in clock ticks since boot), thread: identity of the main
            thread, cwd, run, restart: how often torchrun has restarted the ranks before, argv, torch, python
wrap        model (`ddp0`, `ddp1`, .. in order of construction), module (class name), parameters: [[name, numel, dtype], ..] of
            those that require gradients, frozen: number of others, buffers: [[name, numel, dtype], ..], group, options: an
            object with those of find_unused_parameters, static_graph, broadcast_buffers, forward_sync_buffers,
            gradient_as_bucket_view, bucket_cap_mb, init_sync that were passed
forward     model, grad: gradients enabled, training, sync: require_backward_grad_sync, batch: 16 hexadecimal digits or None.
            Equal `batch` on two ranks means that they got the same samples
backward    buckets: bucket all-reduces issued in it, None while it runs or when it raised; done: time of its return or None
step        optimizer (class name), models: the wrappers whose parameters it holds, done: when it returned, or None, reduced: the
            backward passes with bucket all-reduces since its last step, unreduced: bool. True when the gradients that were
            accumulated last were never reduced over the wrapper's group, by a bucket or by an all-reduce of the user's that is
            large enough for them
parameters  model, joins: joins of the wrapper that have ended, step: optimizer steps since then, hash: 16 hexadecimal digits, at:
            `step` (right after it), `save` (before the step that follows one), `exit` or `exception`. Comparable between ranks
            where model, joins, step and at are equal
optimizer   model, joins, step, at as for parameters; optimizer (class name); hash of its state of the wrapper's parameters, None
            without one; layout: what state there is, comparable where it is equal; settings: [`lr 0.1`, ..]
outside     model, joins, step, at, hash as for parameters: of what the same optimizer trains and no wrapper holds
gradients   model, joins, step: the one that uses them, from 1; hash of those of the optimizer's parameters
factor      model, joins, step as for gradients; passes: backward passes accumulated for it; replicas: ranks of the wrapper's
            group; factors: the different chains of numbers that their losses are multiplied by, the last one first; mean: whether
            each of these is one mean; hook: whether there is a communication hook; ratio: what the gradients were multiplied by
            from the end of the last pass to the step, None where that is not one number
statistics  model, joins, step, hash of the running statistics of batch normalisation at an evaluation's first call of the module
buffers     model, joins, step; at: `evaluation` (those that its first call of the module read and did not write), `save` or `exit`
            (those that DDP does not send); sent: whether DDP sends them; hashes: [`name shape hash`, ..] of those that were written
            since training began
place       model, devices: [`cuda GPU-..`, ..], those of its parameters but for the CPU, by UUID
samples     epoch: of its sampler, from 0, share: the sampler's rank, samples: 12 hexadecimal digits of each sample, with blanks
            between. Written for the first epochs that a DistributedSampler shares out
made        optimizer (class name), settings: [`lr 0.1`, ..]
scheduler   scheduler and optimizer (class names), steps, optimizer_steps: since its first step, library: that calls it, or empty
restored    state: hash of what torch.set_rng_state was given, before: hash of the generator's state until then, own: whether this
            process had read the state that it restores by torch.get_rng_state
order       batches: how many, order: 16 hexadecimal digits of the first batches of an epoch that a loader shuffles and that was
            trained on
batch       loader: a number in order of iterators made, fingerprint: 16 hexadecimal digits, or None (most after the first 64);
            waited: microseconds that the loader took for it
group       action: init, seen (first collective or new_group on it), new, destroy; name; ranks: global ranks; backend with init
            and new; desc: what its maker called it, `mesh_` and the dimension for a group of a mesh
save        path (or the class name of a file object); done: when it returned, or None; buffers: [[model, joins, step], ..] of the
            wrappers whose buffers are in what is saved, where DDP does not send them
loaded      given, unexpected: numbers of keys of a load_state_dict with strict=False
read        path, devices: of the tensors that torch.load made, as for place
clip        cut: whether the norm was above the limit, None where that is not known; for torch's own functions that clip gradients
unscaled    scale: that a GradScaler took out of gradients, None where that is not known
unfinished  a wait for an asynchronous collective of CPU tensors that found it at work
seed        seed
draws       model, forward: forwards with gradients before it, stream: 16 hexadecimal digits. Written at some forwards before which
            the script drew several numbers from torch's CPU generator since the batch came; equal `stream` on two ranks at an
            equal `forward` means that they drew the same numbers
labels      model, backward: reduced backward passes before it, labels: how many its loss is the mean over, weight: of one of
            them in the loss. Written for some backward passes of a mean of `cross_entropy` or `nll_loss`
sampler     action: set_epoch or iter; epoch, seed, rank, replicas, shuffle
device      index
exception   type, text
stack       request: when it was asked for; `stack` is where the main thread stood
exit        code, or None where it could not be known
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ddp_audit.compare.group_names import GroupFacts, richer
from ddp_audit.compare.messages import Messages
from ddp_audit.compare.run import EMPTY_FILE, EXITED, MISSING, RAISED, RankRun, RecordedRun
from ddp_audit.events import Event
from ddp_audit.trace.headers import NoTrace, TraceError, one_line, rank_of
from ddp_audit.trace.plain import MOST_RANKS, read_plain, wrong_fields
from ddp_audit.trace.rank_file import RankReader, may_be_done
from ddp_audit.trace.worker import layout

__all__ = ["FollowRun", "NoTrace", "TraceError", "description_of", "load_run", "read_meta"]


def load_run(directory: str | os.PathLike[str]) -> RecordedRun:
    """All that a trace folder holds. Raises TraceError where there is no trace or a file is damaged."""
    folder = Path(directory)
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder")
    follow = FollowRun(folder, strict=True)
    run = follow.poll()
    if not any(rank.state != MISSING for rank in run.ranks.values()):
        raise no_trace(folder, follow.readers)
    return run


def no_trace(folder: Path, readers: Mapping[int, Reader]) -> TraceError:
    """What to raise where no rank's file can be read."""
    for reader in readers.values():
        if reader.rank_run.damage:
            return TraceError(f"{reader.path}: {reader.rank_run.damage}")
    return NoTrace(f"{folder}: no trace in it ({'its files are empty' if readers else 'no rank-*.ddptrace'})")


class FollowRun:
    """Reads a run while it is recorded. `poll` reads what came since the last call and returns the same RecordedRun, brought up
    to date.

    An event whose collective has returned meanwhile is replaced by an equal one with `done` in its detail. A rank whose file is
    not there yet is missing. Raises TraceError for a damaged file.

    With `consume` the run may go on for days: it is called with the run whenever a little of each rank has been read, and then all
    but the newest events are forgotten (`RecentEvents`).
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, strict: bool = False, consume: Callable[[RecordedRun], None] | None = None
    ) -> None:
        self.directory = Path(directory)
        self._consume = consume
        self.messages = Messages()
        self.run = RecordedRun(world_size=0, messages=self.messages)
        self._strict = strict
        self.readers: dict[int, RankReader] = {}
        self._meta_time = 0
        self.restarts = 0  # ranks that the launcher has started again

    @property
    def progress(self) -> tuple[int, int]:
        """Two numbers that grow as the run goes on: events (without answers to a request), and collectives returned."""
        readers = self.readers.values()
        return sum(r.recorded for r in readers), sum(r.returned for r in readers)

    def poll(self) -> RecordedRun:
        """Reads on. Costs about what is new, plus a look at each rank's process."""
        run = self.run
        self._read_meta()
        for path in sorted(self.directory.glob("rank-*.ddptrace")):
            rank = rank_of(path.name)
            if rank is not None and rank not in self.readers:
                self.readers[rank] = self._reader(path, rank)
        while self._read_on():
            pass
        for reader in self.readers.values():
            reader.judge()
        assemble(run, self.readers)
        look_past_met(self.readers, self.messages)
        return run

    def _reader(self, path: Path, rank: int) -> RankReader:
        return RankReader(path, rank, self._strict, forgets=self._consume is not None)

    def _read_on(self) -> bool:
        """Reads what is new in each file, or a part of it where the run is watched. Whether there is more."""
        run, is_more = self.run, False
        for rank, reader in list(self.readers.items()):
            is_more = reader.read() or is_more
            if reader.is_replaced:
                self.restarts += 1
                self.messages = run.messages = Messages()  # those of the attempt that has ended are not partners
                reader = self.readers[rank] = self._reader(reader.path, rank)
                is_more = reader.read() or is_more
        for rank, reader in self.readers.items():
            if reader.rank_run.lost:
                self.messages.partial.add(rank)
            self.messages.feed(rank, reader.events)
        if self._consume is not None:
            assemble(run, self.readers)
            self._consume(run)
            self.messages.forget()
            for rank, reader in self.readers.items():
                reader.forget(self.messages.unmet(rank))
        return is_more

    def _read_meta(self) -> None:
        try:
            changed = (self.directory / layout.RUN_FILE).stat().st_mtime_ns
        except OSError:
            return
        if changed != self._meta_time:
            meta, self.run.damage = description_of(self.directory)
            self.run.meta = meta or self.run.meta
            self._meta_time = changed


def description_of(folder: Path) -> tuple[dict[str, Any], str]:
    """What run.json says, as far as it can be used, and in a sentence what is wrong with the rest; empty without one."""
    try:
        found = read_json(folder / layout.RUN_FILE)
    except TraceError as error:
        what = str(error).removeprefix(f"{folder / layout.RUN_FILE}: ")
        return {}, f"{layout.RUN_FILE} {what}: which command was run, and how it ended, is not known."
    if found is None:
        return {}, ""
    wrong = wrong_fields(found)
    if not wrong:
        return found, ""
    said = "; ".join(wrong.values())
    return {
        key: value for key, value in found.items() if key not in wrong
    }, f"{layout.RUN_FILE} is damaged: {said}. This is not used."


def read_meta(folder: Path) -> dict[str, Any] | None:
    """What run.json says; None without one. Raises TraceError."""
    found = read_json(folder / layout.RUN_FILE)
    wrong = next(iter(wrong_fields(found or {}).values()), "")
    if wrong:
        raise TraceError(f"{folder / layout.RUN_FILE}: damaged: {wrong}")
    return found


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None without one. Raises TraceError."""
    try:
        found = json.loads(read_plain(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: cannot be read: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise TraceError(f"{path}: damaged: is not an object")
    return found


class Reader(Protocol):
    """What is known of one rank's file."""

    rank_run: RankRun
    groups: dict[str, tuple[int, ...]]
    called: dict[str, GroupFacts]
    has_header: bool
    started: float
    run_id: str | None
    world_size: int

    @property
    def path(self) -> str | Path: ...

    def judge_again(self, is_met: Callable[[int, Event], bool]) -> None:
        """Derives the rank's state again, without waits for messages that have met their other end."""


def look_past_met(readers: Mapping[int, Reader], messages: Messages) -> None:
    """Takes no rank for waiting in a message that has met its other end. gloo knows that an isend or irecv is done only once
    somebody has waited for it (ProcessGroupGloo's SendWork and RecvWork, torch 2.13), which a program need not do."""
    for rank, reader in readers.items():
        waiting = reader.rank_run.waiting
        if waiting is not None and may_be_done(waiting):
            reader.judge_again(lambda position, event, rank=rank: messages.is_met(rank, event, position))  # type: ignore[misc]


def assemble(run: RecordedRun, readers: Mapping[int, Reader]) -> None:
    """Puts what the files of the ranks hold into a run. Files that an earlier run left are passed over."""
    latest = max((r.started for r in readers.values()), default=0.0)
    current = {r.run_id for r in readers.values() if r.started == latest and r.run_id is not None}
    world = 0
    for rank, reader in readers.items():
        if current and reader.run_id is not None and reader.run_id not in current:  # left by an earlier run
            run.ranks.pop(rank, None)
            continue
        if reader.has_header:
            run.ranks[rank] = reader.rank_run
            if 0 <= reader.world_size <= MOST_RANKS:
                world = max(world, reader.world_size)
            else:
                reader.rank_run.damage = f"damaged: a run of {reader.world_size} ranks"
            run.groups.update(reader.groups)
            for name, facts in reader.called.items():
                run.called[name] = richer(run.called.get(name), facts)
    if not current or run.meta.get("run") in (None, *current):
        world = max(world, int(run.meta.get("world_size") or 0))
    run.world_size = world
    for rank in range(world):
        if rank not in run.ranks or (run.ranks[rank].state == MISSING and rank not in readers):
            run.ranks[rank] = RankRun(rank, state=MISSING, last=EMPTY_FILE if rank in readers else "no trace file")
            if rank in readers:
                run.ranks[rank].damage = readers[rank].rank_run.damage
    run.complete = bool(world) and all(run.ranks[r].state in (EXITED, RAISED) for r in range(world))
