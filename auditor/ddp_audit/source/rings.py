"""Rings of imports: which files lead to each other.

Written out here because every audit of a folder needs it, and importing networkx takes longer than reading fifty scripts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def rings(graph: Mapping[str, Collection[str]]) -> Iterator[tuple[set[str], bool]]:
    """The strongly connected parts of a graph (a node without a ring is one by itself), and whether another part leads to each.

    Two searches in depth, after Kosaraju: what is finished last in the graph begins a part, and what reaches it is in the part.
    """
    finished: list[str] = []
    into: dict[str, list[str]] = {node: [] for node in graph}
    for source, targets in graph.items():
        for target in targets:
            into.setdefault(target, []).append(source)
    entered: set[str] = set()
    for start in graph:
        if start in entered:
            continue
        entered.add(start)
        stack = [(start, iter(graph[start]))]
        while stack:
            node, targets_left = stack[-1]
            following = next((target for target in targets_left if target not in entered), None)
            if following is None:
                finished.append(node)
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(graph.get(following, ()))))
    placed: set[str] = set()
    for start in reversed(finished):
        if start in placed:
            continue
        part, queue = {start}, [start]
        while queue:
            for source in into[queue.pop()]:
                if source not in placed and source not in part:
                    part.add(source)
                    queue.append(source)
        placed |= part
        yield part, any(source not in part for node in part for source in into[node])
