"""Shapes that a first look at public code got wrong, each with a form in which the hazard is real."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = (
    HEAD + "import functools, os, shutil\ndist.init_process_group('nccl')\nrank = dist.get_rank()\nworld = dist.get_world_size()\n"
)
TRAINED = "opt.zero_grad()\nhead(model(torch.randn(2, 4))).sum().backward()\nopt.step()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "decorator, calls",
    [
        ("functools.cache", "score(1)\nscore(2)\nif rank == 0:\n    print(score({n}))\n"),
        ("functools.lru_cache(maxsize=None)", "for p in (1, 2):\n    score(p)\nif rank == 0:\n    score({n})\n"),
        ("functools.lru_cache", "a, b = score(1), score(2)\nbest = {n} if a < b else 2\nif not rank:\n    score(best)\n"),
        ("functools.cache", "def search():\n    return score(1) + score(2)\nsearch()\nif rank == 0:\n    score({n})\n"),
        ("functools.lru_cache(8)", "score((1, 1))\nbegin = ({n}, 1)\nif rank == 0:\n    score(begin)\n"),
    ],
)
def test_a_kept_result_is_not_computed_again(decorator: str, calls: str, tmp_path: Path) -> None:
    body = f"@{decorator}\ndef score(p):\n    t = torch.zeros(1)\n    dist.all_reduce(t)\n    return t.item()\n"
    kept = audited(tmp_path, START + body + calls.format(n=1))
    assert findings("DDP201", kept) == [] and findings("DDP213", kept) == []
    assert findings("DDP201", audited(tmp_path, START + body.split("\n", 1)[1] + calls.format(n=1)))
    if "best" not in calls and "for" not in calls:  # there it may be one that was kept
        assert findings("DDP201", audited(tmp_path, START + body + calls.format(n=7)))


@pytest.mark.parametrize("names", ['"rank"', '"rank,width"', '("rank", "width")', '["width", "rank"]'])
def test_a_number_from_the_test_runner_is_no_rank(names: str, tmp_path: Path) -> None:
    low = (
        "import pytest\nclass Low(torch.nn.Module):\n    def __init__(self, r):\n        super().__init__()\n        if r > 0:\n"
        "            self.a = torch.zeros(r, 4)\n    def both(self):\n        return self.a * 2\n"
    )
    use = "def test_low(rank):\n    dist.init_process_group('gloo')\n    Low(rank).both()\n    dist.barrier()\n"
    marked = f"@pytest.mark.parametrize({names}, [(0, 1), (4, 2)])\n"
    assert findings("DDP204", audited(tmp_path, HEAD + low + marked + use)) == []
    assert findings("DDP204", audited(tmp_path, HEAD + low + use))


@pytest.mark.parametrize(
    "rows",
    [
        "self.rows = classes // world + int(rank < classes % world)",
        "self.rows = classes // dist.get_world_size() if dist.get_rank() else classes // world + classes % world",
        "me = dist.get_rank()\n        self.rows = len(range(me, classes, world))",
        "self.first = classes // world * rank\n        self.rows = min(classes, self.first + classes // world) - self.first + rank % 2",
    ],
)
def test_a_head_with_the_ranks_own_classes_is_its_own_on_purpose(rows: str, tmp_path: Path) -> None:
    text = START + (
        "class Head(torch.nn.Module):\n    def __init__(self, width, classes):\n        super().__init__()\n"
        f"        {rows}\n        self.weight = torch.nn.Parameter(torch.normal(0, 0.01, (self.rows, width)))\n"
        "    def forward(self, x):\n        return x @ self.weight.t()\n"
        "model = DDP(torch.nn.Linear(4, 4))\nhead = Head(4, 10)\n"
        "opt = torch.optim.SGD([{'params': model.parameters()}, {'params': head.parameters()}], lr=0.1)\n"
    )
    assert findings("DDP102", audited(tmp_path, text + TRAINED)) == []
    whole = text.replace(rows, "self.rows = classes")
    assert len(findings("DDP102", audited(tmp_path, whole + TRAINED))) == 1


@pytest.mark.parametrize(
    "path",
    [
        "f'out/state_{rank}.pt'",
        "os.path.join('out', f'gpu{rank}.pt')",
        "'out/state_%d.pt' % rank",
        "'out/state_{}.pt'.format(dist.get_rank())",
    ],
)
def test_a_rank_goes_on_with_the_file_that_it_wrote(path: str, tmp_path: Path) -> None:
    text = START + (
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "model = DDP(torch.nn.Linear(4, 4).cuda())\nhead = torch.nn.Identity()\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nif os.environ.get('RESUME'):\n"
        f"    state = torch.load({path})\n    model.module.load_state_dict(state['model'])\n"
    )
    save = f"torch.save({{'model': model.module.state_dict()}}, {path})\n"
    told = audited(tmp_path, text + TRAINED + save)
    assert findings("DDP111", told) == [] and findings("DDP603", told) == []
    assert len(findings("DDP111", audited(tmp_path, text + TRAINED))) == 1  # who wrote such files is not seen


@pytest.mark.parametrize(
    "condition",
    ["(j + 1) % args.accum == 0", "args.log and (j + 1) % args.accum == 0 or not args.log", "not (j + 1) % args.accum"],
)
def test_gradients_that_are_zeroed_before_the_backward_are_not_added_up(condition: str, tmp_path: Path) -> None:
    text = START + (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--accum', type=int, default=4)\n"
        "p.add_argument('--log', action='store_true')\nargs = p.parse_args()\n"
        "model = DDP(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for j, x in enumerate([torch.randn(2, 4)] * 8):\n    loss = model(x).mean()\n"
    )
    zero, step = f"    if {condition}:\n        opt.zero_grad()\n", f"    if {condition}:\n        opt.step()\n"
    backward = "    loss.backward()\n"
    assert findings("DDP802", audited(tmp_path, text + zero + backward + step)) == []
    assert len(findings("DDP802", audited(tmp_path, text + backward + step + zero))) == 1


@pytest.mark.parametrize(
    "made", ["torch.zeros(4)", "torch.ones([2]).cuda()", "torch.zeros(1, device='cuda')", "torch.tensor([1.0]).float()"]
)
def test_a_block_that_asks_what_the_backend_can_do_fails_on_all_ranks(made: str, tmp_path: Path) -> None:
    text = START + (
        "can = False\ntry:\n    t = {made}\n    dist.all_to_all_single(t, t)\n    can = True\nexcept RuntimeError as error:\n"
        "    print(error)\nfor _ in range(3):\n    dist.barrier()\n"
    )
    assert findings("DDP204", audited(tmp_path, text.format(made=made))) == []
    own = "torch.load(f'batch{rank}.pt')"
    assert len(findings("DDP204", audited(tmp_path, text.format(made=own)))) == 1


@pytest.mark.parametrize(
    "first",
    ["dist.barrier()", "meet()", "dist.barrier()\n        dist.barrier()", "meet()\n        dist.all_reduce(torch.zeros(1))"],
)
def test_a_rank_that_fails_after_all_collectives_meets_the_others_in_finally(first: str, tmp_path: Path) -> None:
    text = START + (
        "def meet():\n    dist.barrier()\ndef fetch(path):\n    try:\n{body}    finally:\n        meet()\n"
        "fetch('a')\ndist.all_reduce(torch.zeros(1))\n"
    )
    write = "        if rank == 0:\n            torch.save({}, path)\n"
    begins = text.format(body=f"        {first}\n{write}")
    assert findings("DDP204", audited(tmp_path, begins)) == []
    later = text.format(body=f"        data = torch.load(path)\n        {first}\n")
    assert len(findings("DDP204", audited(tmp_path, later))) == 1


@pytest.mark.parametrize(
    "make",
    [
        "if not os.path.exists(folder):\n        os.makedirs(folder)",
        "if not os.path.isdir(folder):\n        os.mkdir(folder)",
        "os.makedirs(folder, exist_ok=True)",
    ],
)
def test_who_makes_a_folder_or_file_itself_waits_for_nobody(make: str, tmp_path: Path) -> None:
    text = START + (
        f"def save(model, folder):\n    {make}\n    path = os.path.join(folder, 'last.pt')\n"
        "    torch.save(model.module.state_dict(), path)\n    shutil.copyfile(path, os.path.join(folder, 'best.pt'))\n"
        "model = DDP(torch.nn.Linear(4, 1))\nif rank == 0:\n    save(model, 'out')\n"
    )
    assert findings("DDP702", audited(tmp_path, text + "save(model, 'out')\n")) == []
    early = "path = 'other.pt'\nif rank == 0:\n    torch.save({}, path)\nmodel.module.load_state_dict(torch.load(path))\n"
    assert len(findings("DDP702", audited(tmp_path, text + early))) == 1
