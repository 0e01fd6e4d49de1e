"""Lists that only the root of a gather may bring, and that torch refuses on the other ranks (DDP207)."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "from itertools import repeat\ndist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"
    "part = {'rank': rank}\n"
)
LISTS = {
    "repeated": "[None] * world",
    "repeated from the left": "world * [None]",
    "repeated by a call": "[None] * dist.get_world_size()",
    "one for each rank": "[None for _ in range(world)]",
    "one for each of two": "[None, None]",
}
CALLS = {
    "by name": "dist.gather_object(part, object_gather_list={0}, dst=0)\n",
    "in its place": "dist.gather_object(part, {0}, 0)\n",
    "with the root that it has": "dist.gather_object(part, {0})\n",
    "the last rank": "dist.gather_object(part, {0}, dst=1)\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("shown", LISTS.values(), ids=LISTS)
def test_a_list_on_every_rank(shown: str, call: str, tmp_path: Path) -> None:
    (found,) = findings("DDP207", audited(tmp_path, START + f"boxes = {shown}\n" + call.format("boxes")))
    assert "raises ValueError" in found.message


@pytest.mark.parametrize("shown", LISTS.values(), ids=LISTS)
def test_a_list_on_the_root_alone(shown: str, tmp_path: Path) -> None:
    whole = f"boxes = {shown}\n"
    for text in (
        f"boxes = {shown} if rank == 0 else None\n" + CALLS["by name"].format("boxes"),
        whole + CALLS["by name"].format("boxes if rank == 0 else None"),
        "boxes = None\nif rank == 0:\n    " + whole + CALLS["in its place"].format("boxes"),
        whole + "dist.all_gather_object(boxes, part)\n",
    ):
        assert not findings("DDP207", audited(tmp_path, START + text))


@pytest.mark.parametrize("other", ["[]", "[None] * 0", "[None] * (world if rank == 0 else 0)"])
def test_an_empty_list_is_none_to_torch(other: str, tmp_path: Path) -> None:
    text = f"boxes = [None] * world if rank == 0 else {other}\n" + CALLS["by name"].format("boxes")
    assert not findings("DDP207", audited(tmp_path, START + text))
