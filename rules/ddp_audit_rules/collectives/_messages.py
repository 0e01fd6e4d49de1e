"""Messages between ranks, run against each other: who waits for whom, and which have no partner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddp_audit.tree.nodes import Node, PointToPoint, Program
from ddp_audit.tree.questions import group_of, is_default, issues, worlds_by_size
from ddp_audit.tree.values import RANK, Ext, Items, Obj, Value, World, evaluate


@dataclass(slots=True, eq=False)
class Message:
    """One send or receive of one rank. `peer` None receives from anybody. A `blocking` one waits for its partner."""

    node: Node
    rank: int
    sends: bool
    peer: int | None
    blocking: bool
    tag: object = 0
    done: bool = False

    def meets(self, other: Message) -> bool:
        """Whether this send and that receive are partners."""
        return (
            self.sends and not other.sends and self.peer == other.rank and other.peer in (None, self.rank) and self.tag == other.tag
        )


@dataclass(slots=True, eq=False)
class Stuck:
    """Messages that wait forever. With `cycle` ranks wait for each other, else partners are missing."""

    messages: list[Message] = field(default_factory=list)
    cycle: bool = False


def stuck_messages(program: Program) -> Iterator[Stuck]:
    """What stands in every job that the ranks of the program fit: by branches that are equal on all ranks."""
    nodes = list(program.of(PointToPoint))
    places = list(dict.fromkeys(_place(n) for n in nodes))
    for place in places:
        part = [n for n in nodes if _place(n) == place]
        found = []
        for job in worlds_by_size(program.world_size):
            sequences = _sequences(part, job)
            if sequences is not None:
                found.append(_run(sequences))
        if not found or not all(stuck.messages for stuck in found):
            continue
        if found[0].cycle or len(places) == 1:
            yield found[0]


def _place(node: Node) -> tuple[object, ...]:
    """The loops and the conditions equal on all ranks around a message."""
    guards = tuple((g.span, g.polarity) for g in node.guards if RANK not in g.test.taint and g.via != "early-exit")
    return (tuple(loop.span for loop in node.loops), guards)


def _sequences(nodes: Sequence[PointToPoint], job: Sequence[World]) -> list[list[Message]] | None:
    """The messages of each rank in order; None where one of them is not known, or goes to a rank that the job has not."""
    found: list[list[Message]] = []
    for world in job:
        own: list[Message] = []
        for node in nodes:
            if any(g.admits(world) is None for g in node.guards if RANK in g.test.taint):
                return None
            if not issues(node, world):
                continue
            messages = list(_messages(node, world))
            if not messages or None in messages:
                return None
            own += [m for m in messages if m is not None]
        found.append(own)
    fits = all(m.peer is None or (0 <= m.peer < len(job) and m.peer != m.rank) for own in found for m in own)
    return found if fits and any(found) else None


def _messages(node: PointToPoint, world: World) -> Iterator[Message | None]:
    op = node.op
    group = group_of(node)
    if group is not None and not is_default(group):
        yield None
    elif op == "batch_isend_irecv":
        ops = node.args.get("p2p_op_list")
        if not isinstance(ops, Items) or ops.many or not ops.items:
            yield None
            return
        for item in ops.items:
            given = item.info if isinstance(item, Obj) and item.kind == "p2p-op" else {}
            function = given.get("op")
            name = function.name.rsplit(".", 1)[-1] if isinstance(function, Ext) else ""
            known = name in ("isend", "irecv") and (given.get("group") is None or is_default(given["group"]))
            yield _message(node, world, name == "isend", given.get("peer"), given.get("tag"), False) if known else None
    else:
        sends = "send" in op
        peer = node.args.get("dst" if sends else "src")
        if not sends and peer is None:
            yield Message(node, world.rank, False, None, op == "recv")
        else:
            yield _message(node, world, sends, peer, node.args.get("tag"), not op.startswith("i"))


def _message(node: Node, world: World, sends: bool, peer: Value | None, tag: Value | None, blocking: bool) -> Message | None:
    number = None if peer is None else evaluate(peer, world)
    label = evaluate(tag, world) if tag is not None else 0
    if not isinstance(number, int) or isinstance(number, bool) or (tag is not None and not isinstance(label, int)):
        return None
    return Message(node, world.rank, sends, number, blocking, label)


def _run(sequences: Sequence[Sequence[Message]]) -> Stuck:
    """Lets the ranks run until nothing moves. A blocking message is posted when its turn comes, and the next when it is done."""
    turn = [0] * len(sequences)
    posted: list[Message] = []
    moved = True
    while moved:
        moved = False
        for rank, own in enumerate(sequences):
            while turn[rank] < len(own) and (turn[rank] == 0 or own[turn[rank] - 1].done or not own[turn[rank] - 1].blocking):
                posted.append(own[turn[rank]])
                turn[rank] += 1
                moved = True
        for send, receive in itertools.product(posted, posted):
            if not send.done and not receive.done and send.meets(receive):
                send.done = receive.done = True
                moved = True
    waiting = [m for m in posted if not m.done]
    coming = [m for rank, own in enumerate(sequences) for m in own[turn[rank] :]]
    late = [m for m in waiting if m.blocking and any(m.meets(other) or other.meets(m) for other in coming)]
    return Stuck(late or waiting, bool(late))


__all__ = ["Message", "Stuck", "stuck_messages"]
