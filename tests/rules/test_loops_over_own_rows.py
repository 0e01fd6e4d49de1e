"""DDP205 on loops over what a rank's own data leave: rows under a mask, indices that are not zero, and lists filled from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = (
    HEAD
    + """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 4))
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False))
(x,) = next(iter(loader))
scores = model.module(x)
keep = scores.mean(1) > 0
"""
)
OWN = {
    "rows under a mask": "for row in scores[keep]:\n    dist.all_reduce(row)\n",
    "numbered indices": "for i, index in enumerate(torch.nonzero(keep)):\n    dist.all_reduce(index)\n",
    "a comprehension over them": "rows = [row * 2 for row in scores[keep]]\nfor row in rows:\n    dist.all_reduce(row)\n",
    "a list that a loop fills": (
        "rows = []\nfor row in torch.unique(scores):\n    rows.append(row)\nfor row in rows:\n    dist.all_reduce(row)\n"
    ),
    "a list of an object's": """
class Results:
    def __init__(self):
        self.rows = []
    def add(self, rows, labels):
        for row, label in zip(rows, labels):
            self.rows.append((row, label))
    def together(self):
        for row, label in self.rows:
            dist.all_reduce(row)
results = Results()
for (x,) in loader:
    scores = model.module(x)
    results.add(scores[scores.mean(1) > 0.5], torch.arange(8))
results.together()
""",
    "a list of a list": """
rows, pairs = [], []
for row in scores[keep]:
    rows.append(row)
for row in rows:
    pairs.append((row, row))
for one, other in pairs:
    dist.all_reduce(one)
""",
}
ALIKE = {
    "all rows": "for row in scores:\n    dist.all_reduce(row)\n",
    "a mask that all ranks share": (
        "shared = keep.float()\ndist.all_reduce(shared)\nfor row in scores[shared > 1]:\n    dist.all_reduce(row)\n"
    ),
    "as many as a range has": "for i, row in zip(range(3), scores[keep]):\n    dist.all_reduce(row)\n",
    "a list filled up to one length": """
rows = []
for row in scores[keep]:
    rows.append(row)
while len(rows) < 64:
    rows.append(torch.zeros(4))
for row in rows:
    dist.all_reduce(row)
""",
    "a list of the batches": """
losses = []
for (x,) in loader:
    losses.append(model.module(x).mean())
for loss in losses:
    dist.all_reduce(loss)
""",
    "a new list in each turn": """
for row in scores[keep]:
    pair = []
    pair.append(row)
for row in scores:
    pair = []
    for i in range(2):
        pair.append(row)
    for one in pair:
        dist.all_reduce(one)
""",
    "a part of them": "rows = list(scores[keep])[:4]\nfor row in rows:\n    dist.all_reduce(row)\n",
    "one gather of all": "boxes = [None] * dist.get_world_size()\ndist.all_gather_object(boxes, scores[keep])\nfor box in boxes:\n"
    "    for row in box:\n        print(row)\n",
    "nothing together in it": "for row in scores[keep]:\n    print(row)\ndist.barrier()\n",
}


@pytest.mark.parametrize("name", OWN)
def test_a_loop_over_what_own_data_leave_is_uneven(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = findings("DDP205", audited(tmp_path, START + OWN[name]))
    assert len(found) == 1
    assert "own data decides how many elements" in found[0].message


@pytest.mark.parametrize("name", ALIKE)
def test_a_loop_of_one_length_is_quiet(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP205", audited(tmp_path, START + ALIKE[name])) == []
