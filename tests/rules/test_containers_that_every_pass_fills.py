"""Containers that a loop fills in other ways than append(): nobody is where one is empty (DDP201), unless it may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import collections\nfrom collections import defaultdict\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
    "loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)\n"
)
PASS = "for i, (x,) in enumerate(loader):\n    "
GUARDS = ("rank == 0 and not seen", "not seen and rank == 0", "rank == 0 and len(seen) == 0")
FILLED = {
    "+= of a display": ("seen = []\n", "seen += [x]\n"),
    "+= twice": ("seen = []\n", "seen += [x]\n    seen += [i]\n"),
    "+= and again": ("seen = []\n", "seen += [x, x]\nfor epoch in range(2):\n    seen += [epoch]\n"),
    "+= before what is not known": ("seen = []\n", "seen += [x]\n    seen += os.listdir('.')\n"),
    "insert": ("seen = []\n", "seen.insert(0, i)\n"),
    "a list of a default dict": ("seen = defaultdict(list)\n", "seen[i].append(x)\n"),
    "a number of a default dict": ("seen = collections.defaultdict(int)\n", "seen[i] += 1\n"),
    "a set of a default dict": ("seen = defaultdict(lambda: set())\n", "seen['a'].add(i)\n"),
    "a counter": ("seen = collections.Counter()\n", "seen[i] += 1\n"),
    "a dict": ("seen = {}\n", "seen[i] = x\n"),
    "setdefault": ("seen = {}\n", "seen.setdefault(i, []).append(x)\n"),
    "a set": ("seen = set()\n", "seen.add(i)\n"),
    "|=": ("seen = set()\n", "seen |= {i}\n"),
    "a new list": ("seen = []\n", "seen = seen + [x]\n"),
    "a new list, before the others": ("seen = []\n", "seen = [x] + seen\n"),
    "a star": ("seen = []\n", "seen = [*seen, x]\n"),
    "a tuple": ("seen = ()\n", "seen += (x,)\n"),
    "a dict |=": ("seen = {}\n", "seen |= {i: x}\n"),
    "a new dict": ("seen = {}\n", "seen = seen | {i: x}\n"),
    "two stars": ("seen = {}\n", "seen = {**seen, i: x}\n"),
    "update of a dict": ("seen = {}\n", "seen.update({i: x})\n"),
    "update by keyword": ("seen = {}\n", "seen.update(last=x)\n"),
    "update of a set": ("seen = set()\n", "seen.update([i])\n"),
    "update of a counter": ("seen = collections.Counter()\n", "seen.update([i])\n"),
    "a deque": ("seen = collections.deque(maxlen=3)\n", "seen.append(i)\n"),
}
MAY_BE_EMPTY = {
    "+= under a condition": ("seen = []\n", "if x.sum() > 1:\n        seen += [x]\n"),
    "+= of what may be nothing": ("seen = []\n", "seen += os.listdir('.')\n"),
    "+= and cleared": ("seen = []\n", "seen += [x]\nseen.clear()\n"),
    "+= and made anew": ("seen = []\n", "seen += [x]\nseen = []\n"),
    "a default dict under a condition": ("seen = defaultdict(list)\n", "if x.sum() > 1:\n        seen[i].append(x)\n"),
    "a default dict that gives up": ("seen = defaultdict(list)\n", "seen[i].append(x)\n    seen.pop(i)\n"),
    "a default dict that is cleared": ("seen = defaultdict(list)\n", "seen[i].append(x)\nseen.clear()\n"),
    "a default dict that nobody fills": ("seen = defaultdict(list)\n", "pass\n"),
    "a dict under a condition": ("seen = {}\n", "if x.sum() > 1:\n        seen[i] = x\n"),
    "a set under a condition": ("seen = set()\n", "if x.sum() > 1:\n        seen.add(i)\n"),
    "a set that gives up": ("seen = set()\n", "seen.add(i)\n    seen.discard(i)\n"),
    "a new list under a condition": ("seen = []\n", "if x.sum() > 1:\n        seen = seen + [x]\n"),
    "a new list with what may be nothing": ("seen = []\n", "seen = seen + os.listdir('.')\n"),
    "a new list that is dropped": ("seen = []\n", "seen = seen + [x]\n    if x.sum() > 1:\n        seen = []\n"),
    "a new list in a loop that may have no pass": ("seen = []\n", "pass\nfor name in os.listdir('.'):\n    seen = seen + [name]\n"),
    "stars of what may be nothing": ("seen = []\n", "seen = [*seen, *os.listdir('.')]\n"),
    "a tuple under a condition": ("seen = ()\n", "if x.sum() > 1:\n        seen += (x,)\n"),
    "a text of what may be nothing": ("seen = ''\n", "seen += os.environ.get('A', '')\n"),
    "a text that gets shorter": ("seen = ''\n", "seen += 'a'\n    seen = seen[1:]\n"),
    "a new dict under a condition": ("seen = {}\n", "if x.sum() > 1:\n        seen = {**seen, i: x}\n"),
    "a copy of a dict": ("seen = {}\n", "seen = {**seen, **dict(os.environ)}\n"),
    "update with what may be nothing": ("seen = set()\n", "seen.update(os.listdir('.'))\n"),
    "update with nothing": ("seen = {}\n", "seen.update({})\n"),
    "update under a condition": ("seen = {}\n", "if x.sum() > 1:\n        seen.update({i: x})\n"),
    "filled in one of two arms": ("seen = set()\n", "pass\nif os.path.exists('a'):\n    seen.add(1)\nelse:\n    pass\n"),
    "a loop that may have no pass": ("seen = defaultdict(int)\n", "pass\nfor name in os.listdir('.'):\n    seen[name] += 1\n"),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("made", FILLED)
def test_nobody_is_where_it_is_empty(made: str, guard: str, tmp_path: Path) -> None:
    before, within = FILLED[made]
    assert not findings("DDP201", audited(tmp_path, START + before + PASS + within + f"if {guard}:\n    dist.barrier()\n"))


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("made", MAY_BE_EMPTY)
def test_rank_0_is_alone_where_it_may_be_empty(made: str, guard: str, tmp_path: Path) -> None:
    before, within = MAY_BE_EMPTY[made]
    assert findings("DDP201", audited(tmp_path, START + before + PASS + within + f"if {guard}:\n    dist.barrier()\n"))


@pytest.mark.parametrize("before", ["seen = []\n", "seen = defaultdict(list)\n"])
def test_rank_0_is_there_where_it_is_not_empty(before: str, tmp_path: Path) -> None:
    filled = "seen += [x]\n" if "[]" in before else "seen[i].append(x)\n"
    assert findings("DDP201", audited(tmp_path, START + before + PASS + filled + "if rank == 0 and seen:\n    dist.barrier()\n"))
