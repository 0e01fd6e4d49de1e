"""The bytes of `rank-00000.ddptrace`, shared by the writer in the worker and the reader outside.

A file is a header of 64 bytes and then records of 32 bytes, little endian, in the order in which they were allocated. It grows
by chunks of `CHUNK` bytes that are filled with zeros in advance, so that its size is always a whole number of chunks. A record
whose first byte is 0 was not written (yet); that byte is written last.

Header: magic (8 bytes), version (u16), record size (u16), chunk size (u32), rank (u32), pid (u32), heartbeat (f64, seconds
since the epoch, renewed about once a second while the process lives), start (f64), end (f64: 0, or when the tracer ended before
its process), newest (u32), ring (u32), stands (u32): the definition of the user's frames at which the main thread stood at the
last heartbeat (0: not known), stood (u32): for how many tenths of a second before it the main thread had stood at one place of
torch.distributed outside of what is recorded (0: it did not).

A file of `ring` chunks is full (0: it grows still), and from then on a ring: chunk 0, the beginning of the run, stays as it is, and
the chunks behind it are taken again, the oldest first, filled with zeros. Chunks are counted on: `newest` is the number of the one
taken last, and chunk n lies in place 1 + (n - 1) % (ring - 1). A slot is the number of a record from the start of the file, chunks
counted on. Records name definitions of chunk 0 and of the newest part of the ring (one of `SEGMENTS`), so that what is there can be
read; GROUP, WRAP and PLACE events are written once more in each part, with the state REPEATED.

Records, by their first byte:

DEFINITION  a part of a definition: kind (u8), what (u8), part (u16), id (u32), parts (u16), length (u16), 20 bytes of text.
            The parts of one definition are joined in order; the text is JSON, and its CRC-32 (4 bytes, `definition_check`) follows
            it. What: STACK_TEXT `[[path, line, function], ..]`
            innermost first; SIGNATURE_TEXT an object with everything of a collective that repeats (op, call, group, origin,
            numel, dtype, shape, root, reduce_op, async, peer, tag, stack: a definition's id or 0); EVENT_TEXT an object with kind,
            stack and detail. A definition stands before the first record that names it.
COLLECTIVE  kind (u8), state (u8), thread (u16), definition (u32), index (u32), check (u32), time (f64), done (f64). The state and
            the time of completion are written in place when the collective has returned or raised.
EVENT       kind (u8), state (u8), thread (u16), definition (u32), check (u32), number (u32), time (f64), value (f64 or u64).
            `NUMBER_KEY` and `VALUE_KEY` name what number and value mean for a kind of event. Those of a backward pass are written
            in place, with the state, when it has returned or raised.
CHECK       kind (u8), 0 (u8), 0 (u16), 0 (u32), count (u32), check (u32), hash (u64), time (f64). Written after every `CHECK_EVERY`
            collectives of the rank: the running hash over the signatures (without stacks and without sizes that ranks may
            choose freely) of its first `count` collectives. Two ranks with an equal hash at an equal count agree up to there,
            so a comparison of many ranks can skip equal prefixes.

`check` makes the exclusive or of a record's eight words equal to `slot_word` of its slot, so a record that was changed, moved or
left from another turn of the ring is known as damaged. What is written in place does not count in it: the state, done, and number
and value of an EVENT whose state is not ISSUED.

Version 1 had no checks (0 in their place, no CRC-32) and no ring; it can still be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Any

from ddp_audit import events

MAGIC = b"DDPTRACE"
VERSION = 2
UNCHECKED = 1  # the version without checks, which is still read
RECORD_SIZE = 32
CHUNK = 1 << 20
HEADER = Struct("<8sHHIIIdd24x")
HEARTBEAT_OFFSET = 24
END_OFFSET = 40
RING_OFFSET = 48  # newest, ring
RING = Struct("<II")
STANDS_OFFSET = 56
STANDS = Struct("<II")  # stands, stood
FEWEST_CHUNKS = 3  # of a ring
SEGMENTS = 4  # parts of a ring
LASTING = frozenset({events.START, events.GROUP, events.WRAP, events.PLACE})  # events that say what the run is

EMPTY, DEFINITION, COLLECTIVE, EVENT, CHECK = range(5)
STACK_TEXT, SIGNATURE_TEXT, EVENT_TEXT = range(1, 4)
ISSUED, DONE, RAISED, REPEATED = range(4)

FRAGMENT = Struct("<BBHIHH20s")
FRAGMENT_TEXT = 20
RECORD = Struct("<BBHIIIdd")
VALUE_RECORD = Struct("<BBHIIIdQ")
CHECK_RECORD = Struct("<BBHIIIQd")
STATE_OFFSET = 1
NUMBER_OFFSET = 12
DONE_OFFSET = 24
F64 = Struct("<d")
U32 = Struct("<I")
LABELS_VALUE = Struct("<fI")
NO_INDEX = 0xFFFFFFFF
CHECK_EVERY = 1024

# What `number` and `value` of an EVENT record become in `Event.detail`. A value is a 64-bit hash, shown as 16 hexadecimal
# digits, and None when it is 0. The value of BACKWARD, STEP and SAVE is the time at which it returned, that of
# LABELS what `LABELS_VALUE` packs: the weight of one label (f32) and their number (u32), that of FACTOR a ratio (f64).
NUMBER_KEY = {
    events.BACKWARD: "buckets",
    events.BATCH: "waited",
    events.PARAMETERS: "step",
    events.STEP: "reduced",
    events.DRAWS: "forward",
    events.LABELS: "backward",
    events.OUTSIDE: "step",
    events.GRADIENTS: "step",
    events.OPTIMIZER: "step",
    events.STATISTICS: "step",
    events.BUFFERS: "step",
    events.FACTOR: "step",
    events.ORDER: "batches",
    events.SCHEDULER: "steps",
}
VALUE_KEY = {
    events.FORWARD: "batch",
    events.BATCH: "fingerprint",
    events.PARAMETERS: "hash",
    events.DRAWS: "stream",
    events.OUTSIDE: "hash",
    events.GRADIENTS: "hash",
    events.OPTIMIZER: "hash",
    events.STATISTICS: "hash",
    events.ORDER: "order",
    events.RESTORED: "state",
}

FILE_PATTERN = "rank-{:05d}.ddptrace"
STACKS_PATTERN = "rank-{:05d}.stacks"  # see locked.py
RUN_FILE = "run.json"
LOCK_FILE = "run.lock"  # held by a launcher while it reads and writes RUN_FILE
REQUEST_FILE = "dump-request"
SAVED_FILE = "saved"  # a line a save: after which steps a rank saved something, so that all ranks hash what they have then
ERRORS_FILE = "stderr{}.log"  # what the traced command of a node wrote to its standard error: stderr.log, stderr-1.log, ..

# Environment variables that reach from the launcher into the workers.
ENV_DIRECTORY = "DDP_AUDIT_TRACE_DIR"
ENV_RUN = "DDP_AUDIT_TRACE_RUN"  # an id of the run, so that files of an earlier run are not taken for this one's
ENV_OWNER = "DDP_AUDIT_TRACE_OWNER"  # pid of the traced rank that this process descends from
ENV_SOLO = "DDP_AUDIT_TRACE_SOLO"  # pid of the launcher, when COMMAND is plain python
ENV_PACKAGE = "DDP_AUDIT_TRACE_PACKAGE"  # folder of the ddp_audit package, for workers of another environment
ENV_STALL = "DDP_AUDIT_TRACE_STALL"  # seconds after which a waiting rank asks all ranks where they stand; 0 never
ENV_HASH_EVERY = "DDP_AUDIT_TRACE_HASH_EVERY"  # parameters are hashed after every so many steps (default 50)
ENV_STACK = "DDP_AUDIT_TRACE_STACK"  # 0: no user frames on collectives
ENV_LOCKED = "DDP_AUDIT_TRACE_LOCKED"  # seconds of a locked interpreter after which its stacks are written (default 3); 0 never
ENV_NATIVE = "DDP_AUDIT_NATIVE"  # auto (default), on or off: whether the native kernel is used
ENV_LIMIT = "DDP_AUDIT_TRACE_LIMIT_MB"  # a rank's file grows to this size, and is a ring then
DEFAULT_LIMIT_MB = 256  # 8 million records


def slot_word(slot: int) -> int:
    """What the words of the record in a slot come to."""
    return (slot * 0x9E3779B1 + 0x7F4A7C15) & 0xFFFFFFFF


def definition_check(what: int, number: int, text: bytes) -> bytes:
    """What follows the text of a definition."""
    return U32.pack(zlib.crc32(text, what << 24 ^ number))


def place_of_chunk(chunk: int, ring: int) -> int:
    """Where in the file a chunk lies."""
    return chunk if chunk < ring or not ring else 1 + (chunk - 1) % (ring - 1)


def segment_length(ring: int) -> int:
    """The chunks of a part of the ring."""
    return max(1, (ring - 1) // SEGMENTS)


def pack_ranks(ranks: Sequence[int]) -> Any:
    """A group's ranks as they are in a definition: evenly spaced ones, as most groups have, as `{"range": [start, stop, step]}`.

    >>> pack_ranks(range(0, 64, 8)), pack_ranks([0, 1])
    ({'range': [0, 64, 8]}, [0, 1])
    """
    if len(ranks) > 4:
        step = ranks[1] - ranks[0]
        if step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + step, step)):
            return {"range": [ranks[0], ranks[-1] + step, step]}
    return list(ranks)


def unpack_ranks(value: Any) -> list[int]:
    """The ranks that `pack_ranks` was given."""
    return list(range(*value["range"])) if isinstance(value, dict) else list(value)
