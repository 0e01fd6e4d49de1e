"""The sampler of a loader (DDP301) and its epoch (DDP302): shapes that are mended, and shapes that are left."""

from __future__ import annotations

from pathlib import Path

import pytest
from mending import mended, refusals, text_after

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
{imports}

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
IMPORTS = "from torch.utils.data import DataLoader, TensorDataset"
EPOCHS = """\
for epoch in range(3):
    for x, y in {loader}:
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
"""


def program(made: str, imports: str = IMPORTS, loader: str = "loader") -> str:
    return HEAD.format(imports=imports) + made + "\n" + EPOCHS.format(loader=loader)


def changed(before: str, after: str) -> list[str]:
    """The lines that are new."""
    old = before.splitlines()
    return [line for line in after.splitlines() if line not in old]


@pytest.mark.parametrize(
    ("made", "new"),
    [
        ("loader = DataLoader(data, 4, shuffle=True)", "loader = DataLoader(data, 4, sampler=sampler)"),
        ("loader = DataLoader(data, 4, True)", "loader = DataLoader(data, 4, sampler=sampler)"),
        ("loader = DataLoader(dataset=data, shuffle = True)", "loader = DataLoader(dataset=data, sampler = sampler)"),
        ("loader = DataLoader(data, sampler=None, shuffle=True)", "loader = DataLoader(data, sampler=sampler, shuffle=False)"),
    ],
)
def test_a_loader_that_shuffles_gets_a_sampler_and_the_epoch(made: str, new: str) -> None:
    before = program(made)
    after = text_after(mended(before, "DDP301"))
    assert changed(before, after) == [
        "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset",
        "sampler = DistributedSampler(data)",
        new,
        "    sampler.set_epoch(epoch)",
    ]
    assert mended(after, "DDP301,DDP302").changed == []


def test_a_loader_that_does_not_shuffle_keeps_its_order() -> None:
    before = program("loader = DataLoader(data, 4)")
    after = text_after(mended(before, "DDP301"))
    assert changed(before, after)[1:] == [
        "sampler = DistributedSampler(data, shuffle=False)",
        "loader = DataLoader(data, 4, sampler=sampler)",
    ]


def test_comments_and_line_breaks_of_the_call_stay() -> None:
    made = "# batches\ntrain_loader = DataLoader(\n    data,\n    batch_size=4,  # small\n    shuffle=True,  # each epoch\n)"
    before = program(made, loader="train_loader")
    after = text_after(mended(before, "DDP301"))
    call = "train_loader = DataLoader(\n    data,\n    batch_size=4,  # small\n    sampler=train_sampler,  # each epoch\n)"
    assert f"# batches\ntrain_sampler = DistributedSampler(data)\n{call}\n" in after


@pytest.mark.parametrize(
    ("imports", "loader", "sampler"),
    [
        ("from torch.utils.data import DataLoader as DL, TensorDataset", "DL", "DistributedSampler"),
        (
            "from torch.utils.data import TensorDataset\nfrom torch.utils import data as tud",
            "tud.DataLoader",
            "tud.DistributedSampler",
        ),
        ("from torch.utils.data import TensorDataset", "torch.utils.data.DataLoader", "torch.utils.data.DistributedSampler"),
        (
            "from torch.utils.data import DataLoader, TensorDataset\nfrom torch.utils.data.distributed import DistributedSampler as Share",
            "DataLoader",
            "Share",
        ),
    ],
)
def test_other_names_of_the_classes(imports: str, loader: str, sampler: str) -> None:
    after = text_after(mended(program(f"loader = {loader}(data, shuffle=True)", imports), "DDP301"))
    assert f"sampler = {sampler}(data)\nloader = {loader}(data, sampler=sampler)\n" in after


def test_a_script_that_also_runs_alone_has_a_sampler_in_a_job_only() -> None:
    before = program("loader = DataLoader(data, 4, shuffle=True)").replace(
        'dist.init_process_group("gloo")', 'if "RANK" in os.environ:\n    dist.init_process_group("gloo")'
    )
    before = "import os\n" + before.replace(
        "model = DDP(torch.nn.Linear(4, 1))", "model = torch.nn.Linear(4, 1)\nif dist.is_initialized():\n    model = DDP(model)"
    )
    after = text_after(mended(before, "DDP301"))
    assert "sampler = DistributedSampler(data) if dist.is_initialized() else None\n" in after
    assert "loader = DataLoader(data, 4, shuffle=sampler is None, sampler=sampler)\n" in after
    assert "    if sampler is not None:\n        sampler.set_epoch(epoch)\n" in after


def test_names_that_are_taken_are_not_used_again() -> None:
    after = text_after(mended(program("sampler = 3\nloader = DataLoader(data, shuffle=True)"), "DDP301"))
    assert "train_sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=train_sampler)\n" in after


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("options = {'shuffle': True}\nloader = DataLoader(data, **options)", ""),
        ("loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), shuffle=True)", "no plain name"),
        ("loader = DataLoader(data, shuffle=True) if data else None", "statement of its own"),
        ("loader = DataLoader(data, shuffle=True); print(loader)", "statement of its own"),
        ("DistributedSampler = 3\nloader = DataLoader(data, shuffle=True)", "DistributedSampler means something else"),
    ],
)
def test_a_loader_that_is_not_understood_stays(made: str, reason: str) -> None:
    outcome = mended(program(made), "DDP301")
    assert outcome.changed == []
    assert all(reason in text for text in refusals(outcome))


def test_a_loader_of_several_uses_is_not_offered_a_sampler() -> None:
    helper = "\n\ndef make(data):\n    return DataLoader(data, shuffle=True)\n\n\nloader = make(data)\nrest = make(TensorDataset(torch.randn(4, 4)))"
    outcome = mended(program(helper), "DDP301")
    assert (outcome.changed, [f.fix.safety for f in outcome.result.findings if f.fix]) == ([], ["display-only"])


# DDP302


def told(sampler: str, before_loop: str = "", inside: str = "") -> str:
    made = f"sampler = DistributedSampler(data)\nloader = DataLoader(data, 4, {sampler})\n{before_loop}"
    if "sampler=sampler" not in sampler:
        made = made.partition("\n")[2]
    text = program(made.rstrip("\n"), "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset")
    return text.replace("    for x, y", f"{inside}    for x, y")


@pytest.mark.parametrize(
    ("before", "call"),
    [
        (told("sampler=DistributedSampler(data)"), "loader.sampler.set_epoch(epoch)"),
        (told("sampler=sampler", "sampler.set_epoch(0)  # once\n"), "sampler.set_epoch(epoch)  # once"),
        (told("sampler=sampler", inside="    sampler.set_epoch(0)\n"), "sampler.set_epoch(epoch)"),
    ],
    ids=["by-the-loader", "before-the-loop", "a-constant"],
)
def test_the_epoch_is_told_at_the_start_of_each(before: str, call: str) -> None:
    after = text_after(mended(before, "DDP302", unsafe=False))
    assert f"for epoch in range(3):\n    {call}\n    for x, y in loader:\n" in after
    assert after.count("set_epoch") == 1
    assert mended(after, "DDP302").changed == []


@pytest.mark.parametrize(
    ("loop", "is_told"), [("for i in trange(3):", True), ("for epoch in schedule:", True), ("for rate in rates:", False)]
)
def test_what_counts_the_epochs_is_a_number(loop: str, is_told: bool) -> None:
    before = program("rates = schedule = [1, 2]\nloader = DataLoader(data, shuffle=True)").replace("for epoch in range(3):", loop)
    assert ("set_epoch" in text_after(mended(before, "DDP301"))) == is_told


@pytest.mark.parametrize(
    "before",
    [
        told("sampler=DistributedSampler(data) if dist.get_world_size() > 1 else None"),
        told("sampler=DistributedSampler(data)").replace("loader = DataLoader", "for _ in range(1):\n    loader = DataLoader"),
        told("sampler=sampler", "sampler.set_epoch(0)\n").replace("sampler.set_epoch(0)\n", "if data:\n    sampler.set_epoch(0)\n"),
    ],
)
def test_a_loader_without_a_sure_sampler_is_left(before: str) -> None:
    assert mended(before, "DDP302").changed == []


def test_the_sampler_of_one_branch_is_not_taken_for_the_loaders(tmp_path: Path) -> None:
    branch = "if dist.is_initialized():\n        sampler = DistributedSampler(data)\n    else:\n        sampler = None"
    helper = f"\n\ndef make(data):\n    {branch}\n    return DataLoader(data, shuffle=sampler is None, sampler=sampler)\n\n\nloader = make(data)"
    text = program(helper, "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset")
    assert mended(text, "DDP302").changed == []


def test_ddp301_and_ddp302_compose_where_the_epochs_run_in_a_method() -> None:
    text = HEAD.format(imports=IMPORTS) + (
        "\n\nclass Trainer:\n    def __init__(self):\n        self.loader = DataLoader(data, 4, shuffle=True)\n\n"
        "    def one(self):\n        for x, y in self.loader:\n            (model(x) - y).pow(2).mean().backward()\n            optimizer.step()\n\n"
        "    def fit(self):\n        for epoch in range(3):\n            self.one()\n\n\nTrainer().fit()\n"
    )
    outcome = mended(text, "DDP301,DDP302")
    after = text_after(outcome)
    assert [finding.code for finding in outcome.fixed] == ["DDP301", "DDP302"]
    assert "        sampler = DistributedSampler(data)\n        self.loader = DataLoader(data, 4, sampler=sampler)\n" in after
    assert "        for epoch in range(3):\n            self.loader.sampler.set_epoch(epoch)\n            self.one()\n" in after


# DDP303 and DDP306

SAMPLER = "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split"


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("num_replicas=dist.get_world_size(), rank=0", "num_replicas=dist.get_world_size(), rank=dist.get_rank()"),
        ("torch.cuda.device_count(), rank % 2", "world_size, rank"),
        ("seed=rank + 5", "seed=5"),
        ("shuffle=True, seed=2 * 3 + dist.get_rank()", "shuffle=True, seed=2 * 3"),
    ],
)
def test_a_sampler_gets_the_numbers_of_the_group(arguments: str, after: str) -> None:
    names = "rank = dist.get_rank()\nworld_size = dist.get_world_size()\n" if " rank" in arguments or "=rank" in arguments else ""
    if "rank=0" in arguments:
        names = ""
    before = program(
        f"{names}sampler = DistributedSampler(data, {arguments})\nloader = DataLoader(data, 4, sampler=sampler)", SAMPLER
    )
    outcome = mended(before, "DDP303")
    assert text_after(outcome) == before.replace(f"(data, {arguments})", f"(data, {after})")
    assert outcome.result.findings == []


@pytest.mark.parametrize("arguments", ["seed=7 * dist.get_rank()", "**{'num_replicas': 2, 'rank': 0}"])
def test_numbers_that_are_not_understood_stay(arguments: str) -> None:
    made = f"sampler = DistributedSampler(data, {arguments})\nloader = DataLoader(data, 4, sampler=sampler)"
    assert mended(program(made, SAMPLER), "DDP303").changed == []


@pytest.mark.parametrize(
    ("made", "after", "safety"),
    [
        (
            "data, rest = random_split(data, [12, 4])",
            "data, rest = random_split(data, [12, 4], generator=torch.Generator().manual_seed(0))",
            "unsafe",
        ),
        ("data = Files(os.listdir('.'))", "data = Files(sorted(os.listdir('.')))", "safe"),
        ("data = Files([p for p in Path('.').iterdir()])", "data = Files([p for p in sorted(Path('.').iterdir())])", "safe"),
    ],
)
def test_all_ranks_index_one_data_set(made: str, after: str, safety: str) -> None:
    files = (
        "import os\nfrom pathlib import Path\n\n\nclass Files(torch.utils.data.Dataset):\n    def __init__(self, names):\n        self.names = names\n\n"
        "    def __len__(self):\n        return len(self.names)\n\n    def __getitem__(self, index):\n        return torch.ones(4), torch.ones(1)\n\n\n"
    )
    before = program(f"{files}{made}\nsampler = DistributedSampler(data)\nloader = DataLoader(data, 4, sampler=sampler)", SAMPLER)
    outcome = mended(before, "DDP306")
    assert text_after(outcome) == before.replace(made, after)
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]
