"""Rings of imports, against networkx on drawn graphs."""

from __future__ import annotations

import random

import networkx
import pytest

from ddp_audit.source.rings import rings


@pytest.mark.parametrize("seed", range(60))
def test_parts_and_what_leads_to_them_are_those_of_networkx(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randint(1, 12))]
    graph = {node: {other for other in nodes if chance.random() < 1.5 / len(nodes)} for node in nodes if chance.random() < 0.9}
    drawn = networkx.DiGraph([(source, target) for source, targets in graph.items() for target in targets])
    drawn.add_nodes_from(graph)
    parts = networkx.condensation(drawn)
    expected = {frozenset(members): parts.in_degree(part) > 0 for part, members in parts.nodes(data="members")}
    assert {frozenset(members): leads for members, leads in rings(graph)} == expected


def test_a_long_chain_is_no_matter() -> None:
    graph = {str(number): {str(number + 1)} for number in range(5_000)}
    found = list(rings(graph))
    assert len(found) == 5_001
    assert [members for members, leads in found if not leads] == [{"0"}]
