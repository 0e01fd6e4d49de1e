"""Graphs: which files import which, which functions call which, and which ranks wait for which.

They are networkx's. Its import takes as long as the audit of fifty scripts, so that it is made where a graph is walked: for rings
of imports, for ranks that wait in different groups, and for `debug --graph`. An audit of files without a ring needs none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx


def parts_of(graph: Mapping[str, Collection[str]]) -> Iterator[tuple[set[str], bool]]:
    """The strongly connected parts of a graph (a node without a ring is one by itself), and whether another part leads to each.

    A graph without a ring, as imports mostly are, is found by the standard library.
    """
    nodes = dict.fromkeys([*graph, *(target for targets in graph.values() for target in targets)])
    others = {node: [target for target in graph.get(node, ()) if target != node] for node in nodes}
    try:
        TopologicalSorter(others).prepare()
    except CycleError:
        import networkx

        parts = networkx.condensation(networkx.DiGraph(others))
        yield from ((set(members), parts.in_degree(part) > 0) for part, members in parts.nodes(data="members"))
        return
    reached = {target for targets in others.values() for target in targets}
    yield from (({node}, node in reached) for node in nodes)


def shortest_cycle(start: int, waits: Mapping[int, Sequence[int]]) -> list[int]:
    """A shortest cycle through `start` in the graph of who waits for whom; empty without one."""
    import networkx

    graph = networkx.DiGraph((rank, other) for rank, others in waits.items() for other in others)
    if start not in graph:
        return []
    back = dict(networkx.single_target_shortest_path(graph, start))
    ways: list[list[int]] = [back[other] for other in graph.successors(start) if other in back]
    return min(ways, key=len, default=[])


def lines_of(graph: networkx.DiGraph) -> Iterator[str]:
    """A graph as text: a node a line with what it leads to below, and the rings at the end."""
    import networkx

    for node in sorted(graph):
        yield str(node)
        for target in sorted(graph.successors(node)):
            places = graph.edges[node, target].get("places", ())
            yield f"  -> {target}" + (f" ({', '.join(places)})" if places else "")
    for ring in sorted(sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1):
        yield f"ring: {', '.join(ring)}"


__all__ = ["lines_of", "parts_of", "shortest_cycle"]
