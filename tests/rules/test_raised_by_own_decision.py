"""DDP204 on exceptions of the program's own that a rank raises for what only it knows, and that a handler takes for a new try."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = (
    HEAD
    + """
class Bad(Exception):
    pass
class Worse(Bad):
    pass
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
ds = TensorDataset(torch.randn(64, 4))
sampler = DistributedSampler(ds)
loader = DataLoader(ds, 8, sampler=sampler)
def train(x):
    loss = model(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss
"""
)
EPOCH = """
def epoch():
    for (x,) in loader:
        loss = train(x)
        if torch.isnan(loss):
            raise Bad
"""
RETRY = """
for attempt in range(3):
    try:
        epoch()
        break
    except Bad:
        continue
"""
PARTS = {
    "a new try of the epoch": EPOCH + RETRY,
    "a message, and a handler that only prints": EPOCH.replace("raise Bad", "raise Bad(f'loss {loss}')")
    + RETRY.replace("        continue", "        print('again')"),
    "a class that descends from the one that is caught": EPOCH.replace("raise Bad", "raise Worse('nan')") + RETRY,
    "one of several that are caught": EPOCH + RETRY.replace("except Bad:", "except (Worse, Bad) as error:"),
    "raised in a function of a function, before the forward": EPOCH.replace("        loss = train(x)", "        look(x)\n        train(x)")
    .replace("        if torch.isnan(loss):\n            raise Bad\n", "") + RETRY
    .replace("for attempt", "def look(x):\n    if x.abs().max().item() > 4:\n        raise Bad()\nfor attempt"),
    "another handler inside of it": EPOCH + RETRY.replace(
        "        epoch()\n", "        try:\n            epoch()\n        except Worse:\n            raise\n"
    ),
    "a batch that is left out before its backward": """
for (x,) in loader:
    try:
        if x.std().item() > 4:
            raise Bad("an outlier")
        train(x)
    except Bad:
        continue
""",
}  # fmt: skip
QUIET = {
    "the ranks agree before": EPOCH.replace(
        "        if torch.isnan(loss):", "        bad = torch.isnan(loss).float()\n        dist.all_reduce(bad)\n        if bad.item():"
    )
    + RETRY,
    "decided by a step count": EPOCH.replace("for (x,) in", "for i, (x,) in enumerate(").replace("loader:", "loader):").replace(
        "torch.isnan(loss)", "i == 5"
    )
    + RETRY,
    "the handler raises": EPOCH + RETRY.replace("        continue", "        raise"),
    "another class is raised": EPOCH.replace("raise Bad", "raise Other").replace("def epoch", "class Other(Exception):\n    pass\ndef epoch")
    + RETRY,
    "a handler inside of it catches": EPOCH.replace(
        "            raise Bad", "            try:\n                raise Bad\n            except Bad:\n                print('nan')"
    )
    + RETRY,
    "all that the ranks do together is done by then": """
for (x,) in loader:
    try:
        loss = train(x)
        if torch.isnan(loss):
            raise Bad
    except Bad:
        print("nan")
""",
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_an_exception_by_a_ranks_own_decision_parts_the_ranks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = findings("DDP204", audited(tmp_path, START + PARTS[name]))
    assert len(found) == 1
    assert [r.role for r in found[0].related if r.text.startswith("raised by each rank")] == ["raise"]


@pytest.mark.parametrize("name", QUIET)
def test_an_exception_that_all_ranks_raise_or_none_catches_is_quiet(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings("DDP204", audited(tmp_path, START + QUIET[name])) == []
