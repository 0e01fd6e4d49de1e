"""Differences between prediction and record that come from a choice which the program leaves open."""

from __future__ import annotations

import ast

import pytest

from ddp_audit.compare.open_choices import explained
from ddp_audit.compare.predicted import Difference, Disagrees
from ddp_audit.events import COLLECTIVE, Event, Site
from ddp_audit.explore.exact.state import ASSUMED, BOUNDED, Doubt

TEXT = """\
for step in range(9):
    train()
    if flag.item():
        save()
        break
    if late:
        dist.barrier()
while more():
    dist.all_reduce(x)
dist.broadcast(x, 0)
"""
FLAG = Doubt(ASSUMED, 3, "a.py:3 flag.item(): false", ("a.py", 3, "flag.item()"))
LOOP = Doubt(BOUNDED, 9, "a loop of unknown length ran 3 times (a.py:8)", ("a.py", 8, "loop"), 5)


def at(line: int | None) -> Event | None:
    return None if line is None else Event(COLLECTIVE, op="barrier", site=Site("a.py", line))


def said(doubt: Doubt, place: int, predicted: int | None, recorded: int | None) -> str:
    """What is said of a difference after `place` events."""
    difference = Difference(0, place, "site", at(predicted), at(recorded))
    other = Event(COLLECTIVE, op="barrier", site=Site("a.py", 2))
    events = [other] * place + ([] if difference.predicted is None else [difference.predicted])
    tree = ast.parse(TEXT)
    return explained(Disagrees("site", "", difference), [doubt], events, {"a.py": tree}.get)


@pytest.mark.parametrize(
    ("doubt", "place", "predicted", "recorded", "explains"),
    [
        (FLAG, 4, 2, None, True),  # the run left the loop
        (FLAG, 4, 2, 10, True),
        (FLAG, 4, 2, 4, True),  # in the arm that was not taken
        (FLAG, 2, 2, None, False),  # before it was asked
        (FLAG, 4, 10, 9, False),  # behind the loop
        (LOOP, 6, 9, 10, True),  # fewer passes
        (LOOP, 9, 10, 9, True),  # more of them
        (LOOP, 3, 2, 10, False),
    ],
)
def test_what_the_open_choice_decides_is_explained_by_it(
    doubt: Doubt, place: int, predicted: int | None, recorded: int | None, explains: bool
) -> None:
    text = said(doubt, place, predicted, recorded)
    assert bool(text) == explains
    assert not text or text.startswith(doubt.what)


def test_an_end_of_another_kind_is_not_explained() -> None:
    assert explained(Disagrees("outcome", "Rank 0 hung."), [FLAG], [], {"a.py": ast.parse(TEXT)}.get) == ""
