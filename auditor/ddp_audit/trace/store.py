"""Reads the files of a traced run: whole (`load_run`), or again and again while it lives (`FollowRun`).

Every record becomes an `Event`. What stands in `Event.detail` for each kind:

collective  call: the dispatcher's name (`_allgather_base_`); shape: list of the payload's shapes; async: bool, whether the
            caller did not wait in the call; done: time at which it was seen to have returned, or None while it has not (and for
            works that nobody could ask); raised: bool; thread: 0 for the main thread; for send and recv also peer (a global
            rank, or None: from any) and tag, and async tells isend and irecv from them. `op` is torch.distributed's name, with
            its variants folded: all_gather and all_gather_into_tensor are `all_gather`, reduce_scatter and reduce_scatter_tensor
            `reduce_scatter`, all_to_all and all_to_all_single `all_to_all`, a coalesced call the operation itself with the sum
            of its sizes. `numel` is what this rank brings; for scatter and recv, what it receives. `index` is None for send and
            recv.
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
            where there is none; layout: what state there is, comparable where it is equal; settings: [`lr 0.1`, ..]
outside     model, joins, step, at, hash as for parameters: of what the same optimizer trains and no wrapper holds
gradients   model, joins, step: the one that uses them, from 1; hash of those of the optimizer's parameters
factor      model, joins, step as for gradients; passes: backward passes accumulated for it; replicas: ranks of the wrapper's
            group; factors: the different chains of numbers that their losses are multiplied by, the last one first; mean: whether
            each of these is one mean; hook: whether there is a communication hook; ratio: what the gradients were multiplied by
            from the end of the last pass to the step, None where that is no one number
statistics  model, joins, step, hash of the running statistics of batch normalisation at an evaluation's first call of the module
buffers     model, joins, step; at: `evaluation` (those that its first call of the module read and did not write), `save` or `exit`
            (those that DDP does not send); sent: whether DDP sends them; hashes: [`name shape hash`, ..] of those that were written
            since training began
place       model, devices: [`cuda GPU-..`, ..], those of its parameters but for the CPU, by UUID
samples     epoch: of its sampler, from 0, share: the sampler's rank, samples: 12 hexadecimal digits of each sample, with blanks
            between. Written for the first epochs that a DistributedSampler shares out
made        optimizer (class name), settings: [`lr 0.1`, ..]
scheduler   scheduler and optimizer (class names), steps, optimizer_steps: since its first step, library: that calls it, or empty
restored    state: hash of what torch.set_rng_state was given, before: hash of the generator's state until then
order       batches: how many, order: 16 hexadecimal digits of the first batches of an epoch that a loader shuffles and that was
            trained on
batch       loader: a number in order of iterators made, fingerprint: 16 hexadecimal digits, or None (most after the first 64);
            waited: microseconds that the loader took for it
group       action: init, seen (first collective or new_group on it), new, destroy; name; ranks: global ranks; backend with init
            and new
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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ddp_audit import events
from ddp_audit.compare.messages import Messages
from ddp_audit.compare.recent import RecentEvents
from ddp_audit.compare.run import EMPTY_FILE, EXITED, MISSING, RAISED, RankRun, RecordedRun
from ddp_audit.events import Event, Site
from ddp_audit.trace.headers import NoTrace, TraceError, has_tracer_ended, is_gone, one_line, rank_of, read_header
from ddp_audit.trace.locked import stands_locked
from ddp_audit.trace.plain import MOST_RANKS, plain_file, read_plain, wrong_fields
from ddp_audit.trace.records import collective_event, other_event, stack_of, text_of
from ddp_audit.trace.standing import judge
from ddp_audit.trace.worker import layout

__all__ = ["FollowRun", "NoTrace", "TraceError", "load_run", "read_meta"]

_BLOCK = 1 << 16
_HOLE_PATIENCE = 1.0  # seconds that a live reader leaves a record that is being written
_MOST_OPEN = 4096  # records looked at again for their mark of completion
_AT_ONCE = 1 << 14  # bytes of each rank's file that are read before those of the next, where a run is watched
_MOST_CHECKS = 64  # running hashes kept


def load_run(directory: str | os.PathLike[str]) -> RecordedRun:
    """All that a trace folder holds. Raises TraceError where there is no trace or a file is damaged."""
    folder = Path(directory)
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder")
    follow = FollowRun(folder, strict=True)
    run = follow.poll()
    if not any(rank.state != MISSING for rank in run.ranks.values()):
        raise no_trace(folder, any(folder.glob("rank-*.ddptrace")))
    return run


def no_trace(folder: Path, has_files: bool) -> NoTrace:
    return NoTrace(f"{folder}: no trace in it ({'its files are empty' if has_files else 'no rank-*.ddptrace'})")


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
        self._readers: dict[int, RankReader] = {}
        self._meta_time = 0
        self.restarts = 0  # ranks that the launcher has started again

    @property
    def progress(self) -> tuple[int, int]:
        """Two numbers that grow as the run goes on: events (without answers to a request), and collectives returned."""
        readers = self._readers.values()
        return sum(r.recorded for r in readers), sum(r.returned for r in readers)

    def poll(self) -> RecordedRun:
        """Reads on. Costs about what is new, plus a look at each rank's process."""
        run = self.run
        self._read_meta()
        for path in sorted(self.directory.glob("rank-*.ddptrace")):
            rank = rank_of(path.name)
            if rank is not None and rank not in self._readers:
                self._readers[rank] = self._reader(path, rank)
        while self._read_on():
            pass
        for reader in self._readers.values():
            reader.judge()
        assemble(run, self._readers)
        look_past_met(self._readers, self.messages)
        return run

    def _reader(self, path: Path, rank: int) -> RankReader:
        return RankReader(path, rank, self._strict, forgets=self._consume is not None)

    def _read_on(self) -> bool:
        """Reads what is new in each file, or a part of it where the run is watched. Whether there is more."""
        run, is_more = self.run, False
        for rank, reader in list(self._readers.items()):
            is_more = reader.read() or is_more
            if reader.is_replaced:
                self.restarts += 1
                self.messages = run.messages = Messages()  # those of the attempt that has ended are no partners
                reader = self._readers[rank] = self._reader(reader.path, rank)
                is_more = reader.read() or is_more
        for rank, reader in self._readers.items():
            self.messages.feed(rank, reader.events)
        if self._consume is not None:
            assemble(run, self._readers)
            self._consume(run)
            self.messages.forget()
            for rank, reader in self._readers.items():
                reader.forget(self.messages.unmet(rank))
        return is_more

    def _read_meta(self) -> None:
        try:
            changed = (self.directory / layout.RUN_FILE).stat().st_mtime_ns
        except OSError:
            return
        if changed != self._meta_time:
            self.run.meta = read_meta(self.directory) or self.run.meta
            self._meta_time = changed


def read_meta(folder: Path) -> dict[str, Any] | None:
    """What run.json says; None where there is none. Raises TraceError."""
    path = folder / layout.RUN_FILE
    try:
        found = json.loads(read_plain(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: cannot be read: {one_line(error)}") from error
    wrong = "is not an object" if not isinstance(found, dict) else next(wrong_fields(found), "")
    if wrong:
        raise TraceError(f"{path}: damaged: {wrong}")
    checked: dict[str, Any] = found
    return checked


class Reader(Protocol):
    """What is known of one rank's file."""

    rank_run: RankRun
    groups: dict[str, tuple[int, ...]]
    has_header: bool
    started: float
    run_id: str | None
    world_size: int

    @property
    def path(self) -> str | Path: ...

    def judge_again(self, is_met: Callable[[int, Event], bool]) -> None:
        """Derives the rank's state anew, without waits for messages that have met their other end."""


def look_past_met(readers: Mapping[int, Reader], messages: Messages) -> None:
    """Takes no rank for waiting in a message that has met its other end. gloo knows that an isend or irecv is done only once
    somebody has waited for it (ProcessGroupGloo's SendWork and RecvWork, torch 2.13), which a program need not do."""
    for rank, reader in readers.items():
        waiting = reader.rank_run.waiting
        if waiting is not None and _may_be_done(waiting):
            reader.judge_again(lambda position, event, rank=rank: messages.is_met(rank, event, position))  # type: ignore[misc]


def _may_be_done(event: Event) -> bool:
    return event.op in events.POINT_TO_POINT and event.detail["async"] is not False


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
            if not 0 <= reader.world_size <= MOST_RANKS:
                raise TraceError(f"{reader.path}: damaged: a run of {reader.world_size} ranks")
            world = max(world, reader.world_size)
            run.groups.update(reader.groups)
    if not current or run.meta.get("run") in (None, *current):
        world = max(world, int(run.meta.get("world_size") or 0))
    run.world_size = world
    for rank in range(world):
        if rank not in run.ranks or (run.ranks[rank].state == MISSING and rank not in readers):
            run.ranks[rank] = RankRun(rank, state=MISSING, last=EMPTY_FILE if rank in readers else "no trace file")
    run.complete = bool(world) and all(run.ranks[r].state in (EXITED, RAISED) for r in range(world))


class RankReader:
    """One rank's file, read from where the last reading ended."""

    def __init__(self, path: Path, rank: int, strict: bool = False, *, forgets: bool = False) -> None:
        self.path = path
        self.events: list[Event] | RecentEvents = RecentEvents() if forgets else []
        self.rank_run = RankRun(rank, self.events)
        self.groups: dict[str, tuple[int, ...]] = {}
        self.has_header = False
        self.is_replaced = False  # the worker has restarted and writes a new file
        self.started = 0.0
        self.run_id: str | None = None
        self.world_size = 0
        self.pid = 0
        self.host: str | None = None
        self.recorded = 0
        self.returned = 0
        self.checks: dict[int, int] = {}  # running hash of the rank by count of collectives
        self._strict = strict
        self._most = _AT_ONCE if forgets else 0
        self._ticks = 0
        self._start: Mapping[str, Any] | None = None
        self._next = layout.HEADER.size
        self._parts: dict[int, dict[int, bytes]] = {}
        self._stacks: dict[int, tuple[Site, ...]] = {0: ()}
        self._texts: dict[int, dict[str, Any]] = {}
        self._open: list[tuple[int, int]] = []  # (offset in the file, position in events) of what has not returned
        self._hole_since = 0.0
        self._heartbeat = 0.0
        self._has_ended = False
        self._raised = False
        self._judged: Callable[[Iterable[Event]], None] = lambda waits: None
        self._exited = False

    def read(self) -> bool:
        """Reads what is new, or the next part of it; `judge` then brings `rank_run` up to date. Whether there is more to read."""
        before = self._next
        try:
            with plain_file(self.path) as file:
                if self._read_header(file):
                    for offset, record in self._new_records(file):
                        self._take(offset, record)
                    self._look_again(file)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise TraceError(f"{self.path}: {error.strerror or error}") from error
        return 0 < self._most <= self._next - before

    def forget(self, needed: set[int]) -> None:
        """Forgets all but the newest events, those that have not returned, and those at the positions in `needed`."""
        if isinstance(self.events, RecentEvents):
            self.events.forget(needed.union(position for _, position in self._open))

    def _read_header(self, file: Any) -> bool:
        head = file.read(layout.HEADER.size)
        known = read_header(self.path, self.rank_run.rank, head, self._strict)
        self._has_ended = has_tracer_ended(head)
        if known is None:
            return False  # being made
        pid, heartbeat, start = known
        if pid != self.pid and self.has_header:
            self.is_replaced = True
            return False
        self.has_header, self.pid, self._heartbeat, self.started = True, pid, heartbeat, start
        if self._strict and os.fstat(file.fileno()).st_size % layout.CHUNK:
            raise TraceError(f"{self.path}: truncated")
        return True

    def _new_records(self, file: Any) -> Iterator[tuple[int, bytes]]:
        size = layout.RECORD_SIZE
        length = self._most or _BLOCK
        while True:
            file.seek(self._next)
            block = file.read(length)
            used = -(-len(block.rstrip(b"\0")) // size) * size
            for at in range(0, min(used, len(block) - size + 1), size):
                record = block[at : at + size]
                if record[0] == layout.EMPTY and not self._may_skip_hole():
                    return
                self._hole_since = 0.0
                self._next += size
                if record[0] != layout.EMPTY:
                    yield self._next - size, record
            if used < length or self._most:
                if self._strict and self._next < os.fstat(file.fileno()).st_size - 2 * layout.CHUNK:
                    raise TraceError(f"{self.path}: damaged at byte {self._next} (nothing from there on)")
                return

    def _may_skip_hole(self) -> bool:
        """Whether an empty record with written ones after it will stay empty: its writer died, or had time enough."""
        now = time.monotonic()
        self._hole_since = self._hole_since or now
        return self._strict or now - self._hole_since > _HOLE_PATIENCE or self._is_gone()

    def _take(self, offset: int, record: bytes) -> None:
        kind = record[0]
        try:
            if kind == layout.DEFINITION:
                self._take_part(record)
            elif kind == layout.COLLECTIVE:
                self._take_collective(offset, record)
            elif kind == layout.EVENT:
                self._take_event(offset, record)
            elif kind == layout.CHECK:
                fields = layout.CHECK_RECORD.unpack(record)
                self.checks[fields[4]] = fields[6]
                if len(self.checks) > _MOST_CHECKS:
                    del self.checks[next(iter(self.checks))]
            else:
                raise TraceError(f"{self.path}: damaged at byte {offset} (unknown kind of record {kind})")
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise TraceError(f"{self.path}: damaged at byte {offset} ({type(error).__name__}: {one_line(error)})") from error

    def _take_part(self, record: bytes) -> None:
        _, what, part, number, parts, length, text = layout.FRAGMENT.unpack(record)
        held = self._parts.setdefault(number, {})
        held[part] = text[:length]
        if len(held) < parts:
            return
        data = b"".join(held[i] for i in range(parts))
        del self._parts[number]
        if what == layout.STACK_TEXT:
            self._stacks[number] = stack_of(json.loads(data))
        else:
            self._texts[number] = text_of(data)

    def _take_collective(self, offset: int, record: bytes) -> None:
        text = self._texts[layout.RECORD.unpack(record)[3]]
        event = collective_event(text, self._stacks[text["stack"]], record)
        self.recorded += 1
        if event.detail["done"] is not None:
            self.returned += 1
        else:
            self._open.append((offset, len(self.events)))
        self.events.append(event)

    def _take_event(self, offset: int, record: bytes) -> None:
        text = self._texts[layout.RECORD.unpack(record)[3]]
        event = other_event(text, self._stacks[text["stack"]], record)
        if event.kind == events.BACKWARD and event.detail["done"] is None:
            self._open.append((offset, len(self.events)))
        self.events.append(event)
        self.recorded += event.kind != events.STACK
        self._note(event)

    def _note(self, event: Event) -> None:
        detail = event.detail
        if event.kind == events.START:
            self.world_size, self.host, self.run_id = detail["world_size"], detail["host"], detail["run"]
            self._ticks, self._start = detail["ticks"], detail
        elif event.kind == events.GROUP and detail.get("name") and detail.get("ranks"):
            self.groups[detail["name"]] = tuple(detail["ranks"])
        elif event.kind == events.EXCEPTION:
            self._raised = True
        elif event.kind == events.EXIT:
            self._exited = True
            self.rank_run.code = detail["code"]

    def _look_again(self, file: Any) -> None:
        """Reads the marks of completion of what had not returned."""
        still: list[tuple[int, int]] = []
        for offset, position in self._open[-_MOST_OPEN:]:
            file.seek(offset)
            record = file.read(layout.RECORD_SIZE)
            if len(record) < layout.RECORD_SIZE or record[layout.STATE_OFFSET] == layout.ISSUED:
                still.append((offset, position))
                continue
            _, state, _, _, _, number, _, done = layout.RECORD.unpack(record)
            event = self.events[position]
            detail = {**event.detail, "done": done, "raised": state == layout.RAISED}
            if event.kind == events.BACKWARD:
                detail["buckets"] = number if state == layout.DONE else None
            else:
                self.returned += 1
            event = replace(event, detail=detail)
            if isinstance(self.events, RecentEvents):
                self.events.replace(position, event)
            else:
                self.events[position] = event
        self._open = still

    def _is_gone(self) -> bool:
        return is_gone(self.host, self.pid, self._ticks, self._heartbeat)

    def judge(self) -> None:
        """Derives the rank's state from its events and its process."""
        if not self.has_header:
            return
        gone = not self._exited and self._is_gone()
        waits = [self.events[position] for _, position in self._open if self.events[position].kind == events.COLLECTIVE]
        self._judged = partial(
            judge,
            self.rank_run,
            gone=gone,
            exited=self._exited,
            raised=self._raised,
            heartbeat=self._heartbeat,
            untraced=self._has_ended,
            locked=partial(stands_locked, self.path, self.rank_run.rank, self._start),
        )
        self._judged(waits)

    def judge_again(self, is_met: Callable[[int, Event], bool]) -> None:
        self._judged(still_open(((position, self.events[position]) for _, position in self._open), is_met))


def still_open(found: Iterable[tuple[int, Event]], is_met: Callable[[int, Event], bool]) -> Iterator[Event]:
    """What among events, with their positions, has not returned; messages that have met their other end are passed over."""
    for position, event in found:
        is_open = event.kind == events.COLLECTIVE and event.detail["done"] is None
        if is_open and not (_may_be_done(event) and is_met(position, event)):
            yield event
