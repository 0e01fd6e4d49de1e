"""Whether records are as their writer left them: the check of each record of a file, one by one or of all at once (`layout`)."""

from __future__ import annotations

from array import array

from ddp_audit.trace.worker import layout

_SIZE = layout.RECORD_SIZE
_LOW = (1 << 192) - 1  # all but a record's last 8 bytes
_LOW_WITHOUT_NUMBER = _LOW & ~(0xFFFFFFFF << 96)
_WORD = 0xFFFFFFFF
_WITHOUT_STATE = b"\xff\x00\xff\xff"


def is_whole(record: bytes, slot: int) -> bool:
    """Whether a record is as it was written, and in its slot. Definitions have a check of their own."""
    kind, state = record[0], record[1]
    if kind in (layout.EMPTY, layout.DEFINITION):
        return True
    words = int.from_bytes(record, "little") ^ state << 8
    if kind == layout.COLLECTIVE:
        words &= _LOW
    elif kind == layout.EVENT and state != layout.ISSUED:
        words &= _LOW_WITHOUT_NUMBER
    words ^= words >> 128
    words ^= words >> 64
    words ^= words >> 32
    return words & _WORD == layout.slot_word(slot)


def _table(*kinds: int) -> bytes:
    return bytes(255 if value in kinds else 0 for value in range(256))


_CHECKED = _table(layout.COLLECTIVE, layout.EVENT, layout.CHECK)
_COLLECTIVE = _table(layout.COLLECTIVE)
_EVENT = _table(layout.EVENT)
_CHECK = _table(layout.CHECK)
_ISSUED = _table(layout.ISSUED)


class Checks:
    """Of many files with records of the same kinds, as those of the ranks of a run are: what they share is made once."""

    def __init__(self) -> None:
        self._slots: dict[int, bytes] = {}
        self._lanes: dict[tuple[bytes, bytes], tuple[int, int, int, int]] = {}
        self._collectives: dict[bytes, int] = {}

    def slots(self, first: int, count: int) -> bytes:
        """The words of so many slots from one on."""
        known = self._slots.get(first, b"")
        if len(known) < 4 * count:
            if len(self._slots) > 4:
                self._slots.clear()
            known = self._slots[first] = array("I", map(layout.slot_word, range(first, first + count))).tobytes()
        return known[: 4 * count]

    def first_damaged(self, data: bytes, kinds: bytes, slots: bytes) -> int | None:
        """The first record that is not as it was written; None where all are."""
        found = self.differences(data, kinds, slots)
        return ((found & -found).bit_length() - 1) // 32 if found else None

    def differences(self, data: bytes, kinds: bytes, slots: bytes) -> int:
        """A word for each record: what its words come to more than they should."""
        states = data[layout.STATE_OFFSET :: _SIZE]
        checked, number, value, state = self._lanes.get((kinds, states)) or self._made(kinds, states)
        words = array("I", data)
        w0, w1, w2, w3, w4, w5, w6, w7 = (int.from_bytes(words[k::8].tobytes(), "little") for k in range(8))
        found = (w0 & state) ^ w1 ^ w2 ^ (w3 & number) ^ w4 ^ w5 ^ ((w6 ^ w7) & value) ^ int.from_bytes(slots, "little")
        return found & checked

    def _made(self, kinds: bytes, states: bytes) -> tuple[int, int, int, int]:
        """Masks of one word for each record: of those with a check, of those whose number counts, and whose value does; and one
        that takes out the states."""
        if len(self._lanes) > 4:
            self._lanes.clear()
        count = len(kinds)
        issued = int.from_bytes(kinds.translate(_EVENT), "little") & int.from_bytes(states.translate(_ISSUED), "little")
        value = issued | int.from_bytes(kinds.translate(_CHECK), "little")
        number = value | int.from_bytes(kinds.translate(_COLLECTIVE), "little")
        made = (
            lanes(kinds.translate(_CHECKED)),
            lanes(number.to_bytes(count, "little")),
            lanes(value.to_bytes(count, "little")),
            int.from_bytes(_WITHOUT_STATE * count, "little"),
        )
        self._lanes[kinds, states] = made
        return made

    def only_indices(self, kinds: bytes, column: array[int]) -> array[int]:
        """The third words of records without the checks among them: those of events."""
        known = self._collectives.get(kinds)
        if known is None:
            if len(self._collectives) > 4:
                self._collectives.clear()
            known = self._collectives[kinds] = lanes(kinds.translate(_COLLECTIVE))
        return array("I", (int.from_bytes(column.tobytes(), "little") & known).to_bytes(4 * len(kinds), "little"))


def lanes(marks: bytes) -> int:
    """A word for each byte, filled with it."""
    wide = bytearray(4 * len(marks))
    for at in range(4):
        wide[at::4] = marks
    return int.from_bytes(wide, "little")
