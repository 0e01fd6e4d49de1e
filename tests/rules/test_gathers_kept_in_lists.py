"""Gathered tensors that a loop puts into a list and an unpacking takes out: the gradient is lost as without the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "dist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP(torch.nn.Linear(4, 2))\n"
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
GATHER = """
def gather(tensors):
    out, kept = [], []
    for t in tensors:
        parts = [torch.zeros_like(t) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, t)
        {keep}
    {end}
for _ in range(4):
    z, w = model(torch.randn(8, 4)), model(torch.randn(8, 4))
    {use}
    ((z @ a.t()).mean() + (w @ b.t()).mean()).backward()
    opt.step()
    opt.zero_grad()
"""
TAKE = "a, b = gather([z, w])"
JOIN = "out.append(torch.cat(parts))"


def _count(tmp_path: Path, keep: str, end: str, use: str) -> int:
    return len(findings("DDP805", audited(tmp_path, START + GATHER.format(keep=keep, end=end, use=use))))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("keep", "end", "use"),
    [
        (JOIN, "return out", TAKE),
        (JOIN, "return out", "(a,), (b,) = gather([z]), gather([w])"),
        (JOIN, "return out", "pair = gather([z, w])\n    [a, b] = pair"),
        (
            "kept.append(parts)",
            "return kept",
            "one, two = gather([z, w])\n    a, b = torch.cat(one), torch.stack(two).flatten(0, 1)",
        ),
        (
            "kept.append(parts)",
            "for k in range(len(kept)):\n        out.append(torch.cat(kept[k]))\n    return out",
            TAKE,
        ),
    ],
    ids=["joined and unpacked", "one at a time", "unpacked later", "unpacked and joined", "joined in a second loop"],
)
def test_a_gather_in_a_list_brings_no_gradient(keep: str, end: str, use: str, tmp_path: Path) -> None:
    assert _count(tmp_path, keep, end, use) == 1


@pytest.mark.parametrize(
    ("keep", "end", "use"),
    [
        ("parts[rank] = t\n        " + JOIN, "return out", TAKE),
        (JOIN + "\n        out.append(t)", "return out", "(_, a), (_, b) = gather([z]), gather([w])"),
        ("out.append(torch.cat([t, *parts]))", "return out", TAKE),
        (JOIN, "return out", "a, b = gather([z.detach(), w.detach()])"),
        (JOIN, "return out", "one, two = gather([z, w])\n    print(one.mean(), two.mean())\n    a, b = z, w"),
        (JOIN, "return out", TAKE + "\n    a[rank * 8 : rank * 8 + 8] = z\n    b[rank * 8 : rank * 8 + 8] = w"),
        (
            "kept.append(parts)",
            "return kept",
            "one, two = gather([z, w])\n    one[rank], two[rank] = z, w\n    a, b = torch.cat(one), torch.cat(two)",
        ),
        (
            "kept.append(parts)",
            "for k in range(2):\n        kept[k][rank] = tensors[k]\n    for k in range(2):\n        out.append(torch.cat(kept[k]))\n"
            "    return out",
            TAKE,
        ),
        (
            "kept.append(parts)",
            "for parts, t in zip(kept, tensors):\n        parts[rank] = t\n    for parts in kept:\n        out.append(torch.cat(parts))\n"
            "    return out",
            TAKE,
        ),
    ],
    ids=[
        "own part put back at once",
        "own rows beside them",
        "own rows joined",
        "constants on purpose",
        "only measured",
        "own rows written over",
        "own part put back after unpacking",
        "own part put back in the list of lists",
        "own part put back in another loop",
    ],
)
def test_a_list_with_the_ranks_own_part_keeps_its_gradient(keep: str, end: str, use: str, tmp_path: Path) -> None:
    assert _count(tmp_path, keep, end, use) == 0
