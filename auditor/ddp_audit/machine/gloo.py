"""What the gloo backend sends for one collective, message by message.

Gloo gives every collective of a group the next tag, the same on all ranks if they agree, and builds a slot from its kind and
that tag. A message reaches a receive of the same slot only; so ranks that are in different operations wait forever, and ranks
in one operation with different sizes meet: the receiver aborts where more arrives than fits, and takes less silently.
The patterns are those of gloo's allreduce.cc and reduce.cc (ring), broadcast.cc (binomial tree), allgather.cc (ring),
gather.cc, scatter.cc and barrier.cc (dissemination).
"""

from __future__ import annotations

from dataclasses import dataclass

SEND = "send"
RECV = "recv"
WAIT = "wait"
NO_LIMIT = 2**62  # bytes; a receive of unknown size
MAX_SEGMENT = 1024 * 1024  # gloo's kMaxSegmentSize, bytes


@dataclass(frozen=True, slots=True)
class Action:
    """One move of one rank: post a send or a receive of `nbytes` with member number `peer`, or wait for post number `post`."""

    kind: str
    peer: int = -1
    nbytes: int = 0
    post: int = -1


def slot_of(op: str) -> str:
    """The kind of slot of an operation: torch's reduce-scatter on gloo is an all-reduce of which each rank keeps its part."""
    return "all_reduce" if op == "reduce_scatter" else op


class _Plan:
    """Collects actions; `send` and `recv` return the number to wait for."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.posts = 0

    def _post(self, kind: str, peer: int, nbytes: int) -> int:
        self.actions.append(Action(kind, peer, nbytes))
        self.posts += 1
        return self.posts - 1

    def send(self, peer: int, nbytes: int) -> int:
        return self._post(SEND, peer, nbytes)

    def recv(self, peer: int, nbytes: int) -> int:
        return self._post(RECV, peer, nbytes)

    def wait(self, post: int) -> None:
        self.actions.append(Action(WAIT, post=post))


def plan(op: str, *, rank: int, size: int, nbytes: int, element: int, root: int) -> list[Action]:
    """The actions of member `rank` of `size` in one collective on `nbytes` bytes of elements of `element` bytes each.

    `root` is a member number. An operation without a pattern of its own exchanges a message with every other member.
    """
    p = _Plan()
    if size == 1:
        return p.actions
    if slot_of(op) == "all_reduce":
        _ring(p, rank, size, nbytes, element, gather=True)
    elif op == "reduce":
        chunk = _ring(p, rank, size, nbytes, element, gather=False)
        if rank == root:
            lengths = [(other, min(chunk, nbytes - other * chunk)) for other in range(size) if other != rank]
            for post in [p.recv(other, length) for other, length in lengths if length > 0]:
                p.wait(post)
        elif nbytes - rank * chunk > 0:
            p.wait(p.send(root, min(chunk, nbytes - rank * chunk)))
    elif op == "broadcast":
        _tree(p, rank, size, nbytes, root)
    elif op == "all_gather":
        _all_gather(p, rank, size, nbytes)
    elif op in ("gather", "scatter"):
        outward = op == "scatter"
        if rank == root:
            call = p.send if outward else p.recv
            for post in [call(other, nbytes) for other in range(size) if other != rank]:
                p.wait(post)
        else:
            p.wait((p.recv if outward else p.send)(root, nbytes))
    elif op in ("barrier", "monitored_barrier"):
        distance = 1
        while distance < size:
            posts = [p.send((rank + distance) % size, 0), p.recv((rank - distance) % size, 0)]
            for post in posts:
                p.wait(post)
            distance *= 2
    else:
        others = [other for other in range(size) if other != rank]
        for post in [p.send(other, nbytes) for other in others] + [p.recv(other, nbytes) for other in others]:
            p.wait(post)
    return p.actions


def _ring(p: _Plan, rank: int, size: int, nbytes: int, element: int, *, gather: bool) -> int:
    """Reduce-scatter over the ring of members, with `gather` followed by the all-gather; returns the bytes of a chunk."""
    if nbytes == 0:
        return 0  # gloo's ring returns at once where there is nothing to reduce
    limit = element * (MAX_SEGMENT // element)
    segment = _round_up(min((nbytes + size * 2 - 1) // (size * 2), limit), element)
    count = _round_up(max(-(-nbytes // segment), size * 2), size)
    each = count // size
    receiver, sender = (rank - 1) % size, (rank + 1) % size
    phases = [(rank + 1, rank + 2)] + ([(rank, rank + 1)] if gather else [])
    for send_from, recv_from in phases:
        posted: list[list[int]] = []
        for i in range(count):
            if i >= 2:
                for post in posted[i - 2]:
                    p.wait(post)
            if i < count - 2:
                posts = []
                length = min(segment, nbytes - (recv_from * each + i) * segment % (count * segment))
                if length > 0:
                    posts.append(p.recv(sender, length))
                length = min(segment, nbytes - (send_from * each + i) * segment % (count * segment))
                if length > 0:
                    posts.append(p.send(receiver, length))
                posted.append(posts)
    return each * segment


def _tree(p: _Plan, rank: int, size: int, nbytes: int, root: int) -> None:
    virtual = (rank - root) % size
    dimensions = (size - 1).bit_length()
    mask = (1 << dimensions) - 1
    sends = []
    for i in range(dimensions):
        mask ^= 1 << i
        partner = virtual ^ (1 << i)
        if virtual & mask or partner >= size:
            continue
        real = (partner + root) % size
        if virtual & (1 << i):
            p.wait(p.recv(real, nbytes))
        else:
            sends.append(p.send(real, nbytes))
    for post in sends:
        p.wait(post)


def _all_gather(p: _Plan, rank: int, size: int, nbytes: int) -> None:
    """A ring in which each contribution travels as two segments."""
    segments = (nbytes // 2, nbytes - nbytes // 2)
    posted: list[tuple[int, int]] = []
    for i in range((size - 1) * 2):
        if i >= 2:
            for post in posted[i - 2]:
                p.wait(post)
        length = segments[i % 2]
        posted.append((p.send((rank + 1) % size, length), p.recv((rank - 1) % size, length)))
    for pair in posted[-2:]:
        for post in pair:
            p.wait(post)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
