"""Writes trace folders of many ranks that never ran: training steps of a DDP model, and one divergence deep inside.

    python benchmarks/generated_traces.py DIR --ranks 1024 --events 10000 --kind reduce-op

`--kind`: reduce-op, size and operation change one collective of one rank; extra gives it one collective more, so that
everything after it is shifted; none leaves the ranks equal.
"""

from __future__ import annotations

import argparse
import json
from array import array
from pathlib import Path
from typing import Any

from ddp_audit import events
from ddp_audit.trace.checks import Checks, lanes
from ddp_audit.trace.headers import FIRST_SLOT
from ddp_audit.trace.worker import layout

KINDS = ("reduce-op", "size", "operation", "extra", "none")
SIZE = layout.RECORD_SIZE
START = 1_790_000_000.0
STEP_TIME = 0.25
BUCKETS = (7_085_312, 2_362_368, 1_182_208)
EVERY = 50  # steps from one hash of the parameters to the next
VARIANTS = 16  # columns of times that differ
_SITE = {"forward": 224, "backward": 231, "step": 232, "metric": 240, "wrap": 60}


class Writer:
    """The records of one rank, as `worker.ring.Ring` writes them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._ids: dict[tuple[int, str], int] = {}

    def define(self, what: int, value: Any) -> int:
        text = json.dumps(value, separators=(",", ":"))
        known = self._ids.get((what, text))
        if known is not None:
            return known
        number = self._ids[what, text] = len(self._ids) + 1
        data = text.encode()
        data += layout.definition_check(what, number, data)
        parts = -(-len(data) // layout.FRAGMENT_TEXT)
        for part in range(parts):
            piece = data[part * layout.FRAGMENT_TEXT : (part + 1) * layout.FRAGMENT_TEXT]
            self.data += layout.FRAGMENT.pack(layout.DEFINITION, what, part, number, parts, len(piece), piece)
        return number

    def stack(self, line: int) -> int:
        return self.define(layout.STACK_TEXT, [["train.py", line, "train"], ["train.py", 300, "<module>"]])

    def signature(self, line: int, op: str, origin: str, numel: int, root: int | None = None, reduce_op: str | None = None) -> int:
        call = "allreduce_" if op == "all_reduce" else "broadcast_"
        text = {"op": op, "call": call, "group": "default", "origin": origin, "numel": numel, "dtype": "float32"}
        more = {"shape": [[numel]], "root": root, "reduce_op": reduce_op, "async": origin == events.DDP_BUCKET}
        return self.define(layout.SIGNATURE_TEXT, {**text, **more, "stack": self.stack(line)})

    def event(self, kind: str, detail: dict[str, Any], line: int = 0, group: str = "default") -> int:
        stack = self.stack(line) if line else 0
        return self.define(layout.EVENT_TEXT, {"kind": kind, "group": group, "stack": stack, "detail": detail})

    def collective(self, definition: int, index: int, now: float) -> None:
        self.data += layout.RECORD.pack(layout.COLLECTIVE, layout.DONE, 0, definition, index, 0, now, now + 0.001)

    def other(self, definition: int, now: float, number: int = 0, value: int = 0, state: int = 0) -> None:
        self.data += layout.VALUE_RECORD.pack(layout.EVENT, state, 0, definition, 0, number, now, value)


def head(writer: Writer, rank: int, ranks: int) -> dict[str, int]:
    """The beginning of a rank's trace, with everything that its steps refer to."""
    start = {"rank": rank, "world_size": ranks, "pid": 10_000 + rank, "host": "node", "ticks": 1, "run": "generated"}
    writer.other(writer.event(events.START, {**start, "argv": ["train.py"], "torch": "2.13.0", "python": "3.11"}), START)
    all_ranks = layout.pack_ranks(range(ranks))
    told = {"action": "init", "name": "default", "ranks": all_ranks, "backend": "nccl"}
    writer.other(writer.event(events.GROUP, told), START)
    parameters = [[f"layers.{number}.weight", 262_144, "float32"] for number in range(12)]
    told = {
        "model": "ddp0",
        "module": "Net",
        "parameters": parameters,
        "frozen": 0,
        "buffers": [],
        "group": "default",
        "options": {},
    }
    writer.other(writer.event(events.WRAP, told, _SITE["wrap"]), START)
    sampler = {"action": "iter", "epoch": 0, "rank": rank, "replicas": ranks, "shuffle": True}
    writer.other(writer.event(events.SAMPLER, sampler, 210), START)
    forward = {"model": "ddp0", "grad": True, "training": True, "sync": True}
    ids = {
        "forward": writer.event(events.FORWARD, forward, _SITE["forward"]),
        "buffers": writer.signature(_SITE["forward"], "broadcast", events.DDP_BUFFERS, 64, root=0),
        "backward": writer.event(events.BACKWARD, {}, _SITE["backward"]),
        "step": writer.event(events.STEP, {"optimizer": "AdamW", "models": ["ddp0"], "unreduced": False}, _SITE["step"]),
        "parameters": writer.event(events.PARAMETERS, {"model": "ddp0", "at": "step"}, _SITE["step"]),
        "metric": writer.signature(_SITE["metric"], "all_reduce", events.USER, 1, reduce_op="sum"),
    }
    for number, numel in enumerate(BUCKETS):
        ids[f"bucket{number}"] = writer.signature(_SITE["backward"], "all_reduce", events.DDP_BUCKET, numel, reduce_op="sum")
    return ids


def body(count: int, ids: dict[str, int], odd: int | None) -> tuple[Writer, list[int], int]:
    """About `count` events of steps; the record numbers of the forwards; the index at which the ranks part (with `odd`, the
    definition that stands there instead of the metric)."""
    writer = Writer()
    forwards: list[int] = []
    index = step = 0
    apart = -1
    while len(writer.data) < count * SIZE:
        now = START + step * STEP_TIME
        forwards.append(len(writer.data) // SIZE)
        writer.other(ids["forward"], now)
        for name in ("buffers", "backward", "bucket0", "bucket1", "bucket2"):
            if name == "backward":
                writer.other(ids[name], now, len(BUCKETS), state=layout.DONE)
                continue
            writer.collective(ids[name], index, now)
            index += 1
        writer.other(ids["step"], now, 1)
        step += 1
        if step % EVERY == 0:
            writer.other(ids["parameters"], now, step, value=0x1234_5678_9ABC + step)
        if apart < 0 and len(writer.data) >= count * SIZE * 3 // 4:
            apart = index
            if odd == 0:
                writer.collective(ids["metric"], index, now)
                index += 1
            writer.collective(odd or ids["metric"], index, now)
            index += 1
    return writer, forwards, apart


def sealed(records: bytes, checks: Checks) -> bytes:
    """Records with their checks (`layout`)."""
    kinds = records[0::SIZE]
    wrong = checks.differences(records, kinds, checks.slots(FIRST_SLOT, len(kinds)))
    words = array("I", records)
    for column, kind in ((2, layout.EVENT), (3, layout.COLLECTIVE)):
        own = bytes(255 if value == kind else 0 for value in range(256))
        made = int.from_bytes(words[column::8].tobytes(), "little") ^ (wrong & lanes(kinds.translate(own)))
        words[column::8] = array("I", made.to_bytes(4 * len(kinds), "little"))
    return words.tobytes()


def _odd(writer: Writer, kind: str) -> int:
    """The definition of what the odd rank does instead of the metric; 0: one metric more."""
    if kind == "reduce-op":
        return writer.signature(_SITE["metric"], "all_reduce", events.USER, 1, reduce_op="max")
    if kind == "size":
        return writer.signature(_SITE["metric"], "all_reduce", events.USER, 2, reduce_op="sum")
    return writer.signature(250, "broadcast", events.USER, 1, root=0) if kind == "operation" else 0


def generate(folder: Path, ranks: int, count: int, kind: str, odd_rank: int) -> int:
    """Writes the files; returns the index of the collective in which the ranks part, -1 for none."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {"version": 1, "run": "generated", "world_size": ranks, "cwd": str(folder), "start": START, "end": START + 1}
    (folder / layout.RUN_FILE).write_text(json.dumps(meta))
    checks = Checks()
    times: dict[bool, list[array[float]]] = {}
    bodies: dict[bool, tuple[bytearray, list[int]]] = {}
    apart = -1
    for rank in range(ranks):
        writer = Writer()
        ids = head(writer, rank, ranks)
        is_odd = rank == odd_rank and kind != "none"
        odd = _odd(writer, kind) if is_odd else None
        exit_event = writer.event(events.EXIT, {"code": 0})
        if is_odd not in bodies:
            made, forwards, at = body(count, ids, odd)
            apart = at + (kind == "extra") if is_odd else apart
            bodies[is_odd] = (made.data, forwards)
            column = array("d", memoryview(made.data).cast("d")[2::4].tolist())
            times[is_odd] = [array("d", [t + v * 1e-4 for t in column]) for v in range(VARIANTS)]
        data, forwards = bodies[is_odd]
        records = bytearray(data)
        memoryview(records).cast("d")[2::4] = memoryview(times[is_odd][rank % VARIANTS])
        words = memoryview(records).cast("Q")
        for number, forward in enumerate(forwards):
            words[forward * 4 + 3] = (rank * 1_000_003 + number) * 0x9E3779B97F4A7C15 % (1 << 64) or 1
        end = Writer()
        end.other(exit_event, START + 1e6)
        header = layout.HEADER.pack(layout.MAGIC, layout.VERSION, SIZE, layout.CHUNK, rank, 10_000 + rank, START + 1e6, START)
        with (folder / layout.FILE_PATTERN.format(rank)).open("wb") as file:
            file.write(header + sealed(bytes(writer.data + records + end.data), checks))
            file.truncate(-(-file.tell() // layout.CHUNK) * layout.CHUNK)
    return apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--kind", choices=KINDS, default="reduce-op")
    parser.add_argument("--odd-rank", type=int, default=None, help="default: the middle one")
    args = parser.parse_args()
    odd = args.ranks // 2 if args.odd_rank is None else args.odd_rank
    print(
        f"the ranks part in collective {generate(args.folder, args.ranks, args.events, args.kind, odd)}, rank {odd} from the others"
    )


if __name__ == "__main__":
    main()
