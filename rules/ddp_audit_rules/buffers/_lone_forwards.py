"""What a forward of some ranks alone leads to, in words: its buffers, the times at which it works, and what ends that."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.events import ORIGINS, USER, Event
from ddp_audit.explore.alone import Lone
from ddp_audit.tree.nodes import BufferSite, Jump, Node, Program
from ddp_audit.tree.questions import first_of_each_place


def buffer_text(buffer: BufferSite) -> str:
    """Where the model gets a buffer."""
    where = f", only where {buffer.guards[-1].describe()}" if buffer.guards else ""
    return f"{buffer.owner} registers the buffer {buffer.name!r}{where}" if not buffer.layer else f"{buffer.layer} has buffers"


def where_buffers(buffers: list[BufferSite]) -> list[str]:
    """A sentence on when the model has buffers at all."""
    guards = [b.guards[-1] for b in buffers if b.guards]
    if len(guards) < len(buffers):
        return ["The model always has buffers."]
    test = guards[0].test.text or guards[0].text
    reason = f"{guards[0].describe()} ({test})" if test != guards[0].describe() else test
    if "scaled_dot_product_attention" in repr(guards[0].test):
        return [
            "Where torch has scaled_dot_product_attention (SDPA, torch 2.0 and newer) the model has no buffer and nothing is "
            f"sent. With the manual branch ({guards[0].describe()}) it registers {buffers[0].name!r}."
        ]
    return [f"The buffer exists only where {reason}; without it nothing is sent."]


def what_comes(node: Node, times: list[Lone]) -> Iterable[str]:
    """One sentence for the times at which the run goes on, one for each at which it does not."""
    going = [time.when for time in times if time.goes_on]
    mode = "Under no_grad" if node.grad is False else "With gradients on"
    if going:
        yield (
            f"{mode} it issues one broadcast for each stretch of forwards, which pairs with the other ranks' next training "
            f"forward, and the run goes on ({', '.join(going)})."
        )
    for time in times:
        if not time.goes_on:
            yield f"{mode}, {time.when}, the run {time.prediction.outcome.kind}: {_where_ranks_stand(time)}."


def _where_ranks_stand(time: Lone) -> str:
    stands = []
    for rank, position in sorted(time.prediction.outcome.positions.items()):
        events = time.prediction.sequences[rank]
        at = "has left" if position >= len(events) else f"is in a {_name(events[position])} at {events[position].site}"
        stands.append(f"rank {rank} {at}")
    return ", ".join(stands)


def _name(event: Event) -> str:
    return ORIGINS[event.origin] if event.origin != USER else event.op


def what_breaks(program: Program, node: Node, times: list[Lone]) -> Iterable[str]:
    """What ends the luck of a run that goes on."""
    if not any(time.goes_on for time in times):
        return
    exits = [
        f"{jump.guards[-1].text} at line {jump.span.line}"
        for jump in first_of_each_place(program.of(Jump))
        if jump.what in ("break", "exit") and jump.number > node.number and jump.guards and jump.loops
        and not node.calls[:1] == jump.calls[:1] != ()
    ]  # fmt: skip
    last = f" ({exits[0]}, or the last evaluation)" if exits else " (the last evaluation)"
    grad = "when gradients are on, " if node.grad is False else ""
    yield (
        "It breaks when another collective comes before the next training forward, when the evaluation falls between the "
        f"first and the second optimizer step (bucket rebuild), {grad}or when no training forward follows{last}."
    )
