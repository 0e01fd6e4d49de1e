"""Broadcasts whose value nobody takes (DDP214), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + "dist.init_process_group('gloo')\nrank = dist.get_rank()\nvalue = 3 if rank == 0 else None\n"


@pytest.mark.parametrize(
    "text",
    [
        "dist.broadcast_object_list([value], src=0)\nprint(value)\n",
        "dist.broadcast_object_list(object_list=[value, 1], src=0)\nprint(value)\n",
        "dist.broadcast_object_list([v for v in (value,)], 0)\nprint(value)\n",
        "def share(v):\n    box = [v]\n    dist.broadcast_object_list(box, src=0)\n    return v\nshare(value)\n",
        "def share(v):\n    dist.broadcast(torch.tensor([v]), src=0)\n    return v\nshare(rank)\n",
        "class A:\n    def __init__(self):\n        self.v = value\n    def go(self):\n        dist.broadcast_object_list([self.v], 0)\nA().go()\n",
        "for step in range(3):\n    print(value)\n    dist.broadcast_object_list([value], src=0)\n",
    ],
)
def test_a_value_that_nobody_takes_is_lost(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(findings("DDP214", audited(tmp_path, START + text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "box = [value]\ndist.broadcast_object_list(box, src=0)\nvalue = box[0]\nprint(value)\n",
        "def share(v):\n    box = [v]\n    dist.broadcast_object_list(box, src=0)\n    (v,) = box\n    return v\nshare(value)\n",
        "def share(v):\n    box = [v]\n    for _ in range(2):\n        print(box)\n        dist.broadcast_object_list(box, 0)\nshare(value)\n",
        "def share(values):\n    dist.broadcast_object_list(values, src=0)\n    return values\nshare([value])\n",
        "t = torch.ones(3) * rank\ndist.broadcast(t.cuda(), src=0)\nprint(t)\n",
        "t = torch.ones(3) * rank\ndist.broadcast(t.view(-1), src=0)\nprint(t)\n",
        "dist.broadcast(torch.zeros(1), src=0)\ndist.broadcast_object_list(['ready'], src=0)\n",
        "dist.broadcast_object_list([value], src=0)\nvalue = 4\nprint(value)\n",
        "dist.broadcast_object_list([value], src=0)\n",
    ],
)
def test_a_value_that_is_taken_or_needed_by_nobody(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP214", audited(tmp_path, START + text)) == []
