"""The order in which classes are asked for an attribute is Python's own."""

from __future__ import annotations

import random

from ddp_audit.lineage import lineage


def bases_of(cls: type) -> list[type]:
    return [base for base in cls.__bases__ if base is not object]


def test_the_order_is_that_of_python() -> None:
    draw = random.Random(1)
    for _ in range(300):
        classes: list[type] = [type("A", (), {}), type("B", (), {})]
        for _ in range(11):
            try:
                classes.append(type("C", tuple(draw.sample(classes, draw.randint(1, min(3, len(classes))))), {}))
            except TypeError:  # there is no order for these bases
                continue
        for one in classes:
            assert lineage(one, bases_of) == list(one.__mro__[:-1])


def test_where_python_has_no_order_each_class_comes_once_and_before_its_bases() -> None:
    graph = {"top": ["left", "right"], "left": ["a", "b"], "right": ["b", "a"], "a": [], "b": []}
    found = lineage("top", lambda name: graph[name])
    assert sorted(found) == sorted(graph)
    assert all(found.index(name) < found.index(base) for name, bases in graph.items() for base in bases)


def test_classes_that_descend_from_themselves_and_long_chains_end() -> None:
    ring = {"a": ["b"], "b": ["a"]}
    assert lineage("a", lambda name: ring[name]) == ["a", "b"]
    assert lineage(0, lambda number: [number + 1] if number < 50_000 else [])[-1] == 50_000
