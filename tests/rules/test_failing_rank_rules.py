"""DDP204, DDP205, DDP210 and DDP211: what each finds, in several styles, and the look-alikes on which it stays quiet.

In a program `# HERE` marks a line that a finding names.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_rank_look_alikes import HEAD, QUIET, TRAIN
from found import audited, findings, rules

MINE = ("DDP204", "DDP205", "DDP210", "DDP211")
FOUND = {
    ("DDP205", "batches that a generator packs from a share"): TRAIN + """
def packed(lengths, budget):
    batch, used = [], 0
    for i, n in enumerate(lengths):
        if used + n > budget and batch:
            yield batch
            batch, used = [], 0
        batch.append(i)
        used += n
mine = os.listdir("texts")[rank::world_size]
for batch in packed([len(text) for text in mine], 256):  # HERE
    train(torch.randn(8, 4))
""",
    ("DDP210", "a partner by exclusive or"): HEAD + """
mine, theirs = torch.randn(4096, 4096), torch.empty(4096, 4096)
peer = dist.get_rank() ^ 1
dist.send(mine, dst=peer)  # HERE
dist.recv(theirs, src=peer)
""",
    ("DDP211", "a function that prepares data"): HEAD + """
def prepare_data(folder):
    print(folder)
if rank == 0:
    prepare_data("corpus")  # HERE
dist.barrier()
""",
    ("DDP211", "a data set is mapped, before the model is wrapped"): HEAD + """
import datasets
def tokens(example):
    return example
if dist.get_rank() == 0:
    data = datasets.load_dataset("corpus")  # HERE
    data = data.map(tokens)  # HERE
model = DDP(torch.nn.Linear(4, 1))
""",
    ("DDP211", "a sleep that is longer than the timeout"): HEAD.replace('"gloo"', '"gloo", timeout=timedelta(minutes=2)').replace(
        "import os", "from datetime import timedelta\nimport os"
    ) + """
if rank == 0:
    time.sleep(600)  # HERE
dist.barrier()
""",
    ("DDP211", "one process first"): HEAD + """
def tokens(example):
    return example
def load(accelerator, raw):
    with accelerator.main_process_first():
        return raw.map(tokens, batched=True)  # HERE
load(os, os)
""",
    ("DDP211", "Trainer's arguments let the main process through first"): """
from datasets import load_dataset
from transformers import Trainer, TrainingArguments
def tokens(example):
    return example
arguments = TrainingArguments("out")
data = load_dataset("corpus")
with arguments.main_process_first(desc="tokens"):
    data = data.map(tokens, batched=True)  # HERE
Trainer(None, arguments, train_dataset=data).train()
""",
    ("DDP211", "an evaluation on one rank"): TRAIN + """
@torch.no_grad()
def evaluate():
    for x in data:
        model.module(x)
for epoch in range(3):
    for x in loader:
        train(x)
    if rank == 0:
        evaluate()  # HERE
""",
    ("DDP210", "both send first"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
def exchange(peer):
    dist.send(a, peer)  # HERE
    dist.recv(b, peer)
exchange(1 - rank)
""",
    ("DDP210", "a ring in which all receive first"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
for step in range(4):
    dist.recv(b, src=(rank - 1) % world_size)  # HERE
    dist.send(a, dst=(rank + 1) % world_size)
""",
    ("DDP210", "neighbours by a bit of the rank"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
peer = rank ^ 1
dist.send(a, dst=peer)  # HERE
dist.recv(b, src=peer)
""",
    ("DDP210", "a message that nobody receives"): HEAD + """
if rank == 0:
    dist.send(torch.ones(1), 1)  # HERE
""",
    ("DDP210", "a batch of one side"): HEAD + """
b = torch.ones(1)
ops = [dist.P2POp(dist.irecv, b, (rank + 1) % world_size)]
for work in dist.batch_isend_irecv(ops):  # HERE
    work.wait()
""",
    ("DDP210", "another tag"): HEAD + """
if rank == 0:
    dist.send(torch.ones(1), 1, tag=1)  # HERE
elif rank == 1:
    dist.recv(torch.ones(1), 0, tag=2)
""",
    ("DDP205", "a stride, in a loader, over epochs"): TRAIN + """
mine = DataLoader(Subset(data, range(rank, len(data), world_size)), batch_size=4)
for epoch in range(3):
    for x in mine:  # HERE
        train(x)
""",
    ("DDP205", "a part of a split, by its length"): TRAIN + """
import numpy as np
part = np.array_split(data, world_size)[rank]
for first in range(0, len(part), 8):  # HERE
    train(part[first : first + 8])
""",
    ("DDP205", "a filter by rank, in a function"): TRAIN + """
def fit(rows):
    for x in rows:  # HERE
        train(x)
fit([x for i, x in enumerate(data) if i % world_size == rank])
""",
    ("DDP205", "each rank's clock"): TRAIN + """
start = time.time()
while time.time() - start < 60:  # HERE
    train(data)
""",
    ("DDP205", "a stream dealt out by rank"): TRAIN + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i, x in enumerate(data):
            if i % world_size == rank:
                yield x
for x in DataLoader(Stream(), batch_size=2):  # HERE
    train(x)
""",
    ("DDP205", "collectives in a loop over a rank's own rows"): HEAD + """
rows = torch.randn(61, 4)[rank::world_size]
for row in rows:  # HERE
    dist.all_reduce(row)
""",
    ("DDP204", "out of memory and on"): TRAIN + """
for x in loader:
    try:
        train(x)
    except RuntimeError as error:  # HERE
        if "out of memory" not in str(error):
            raise
        torch.cuda.empty_cache()
""",
    ("DDP204", "one way raises and the other continues"): TRAIN + """
for x in loader:
    try:
        train(x)
    except torch.cuda.OutOfMemoryError as error:  # HERE
        if len(x) > 1:
            continue
        raise error
""",
    ("DDP204", "swallowed before a barrier"): TRAIN + """
try:
    for x in loader:
        train(x)
except Exception:  # HERE
    print("failed")
dist.barrier()
""",
    ("DDP204", "a sample that cannot be read"): TRAIN + """
for x in loader:
    try:
        y = torch.load(x)
    except (OSError, ValueError):
        continue  # HERE
    train(y)
""",
    ("DDP204", "a collective in a handler, through a helper"): TRAIN + """
def save():
    dist.barrier()
    torch.save({}, "crash.pt")
try:
    y = torch.load("data.pt")
except Exception:
    save()  # HERE
    raise
""",
    ("DDP204", "a barrier in finally"): TRAIN + """
try:
    for x in loader:
        train(x)
finally:
    dist.barrier()  # HERE
    dist.destroy_process_group()
""",
    ("DDP204", "a variable of rank 0"): TRAIN + """
if rank == 0:
    writer = SummaryWriter()
for x in loader:
    writer.add_scalar("loss", train(x))  # HERE
""",
    ("DDP204", "None on the other ranks"): TRAIN + """
writer = None
if rank == 0:
    writer = SummaryWriter()
log = SummaryWriter() if rank == 0 else None
for x in loader:
    loss = train(x)
    writer.add_scalar("loss", loss)  # HERE
    log.flush()  # HERE
""",
    ("DDP204", "an attribute of rank 0, used in another method"): TRAIN + """
class Trainer:
    def before(self, kind):
        self.rank = dist.get_rank()
        if self.rank == 0:
            if kind == "board":
                self.board = SummaryWriter()
            else:
                self.other = SummaryWriter()
    def after(self, kind):
        dist.barrier()
        if kind == "board":
            self.board.flush()  # HERE
        if self.rank == 0 and kind != "board":
            self.other.flush()
trainer = Trainer()
trainer.before(os.environ.get("KIND"))
trainer.after(os.environ.get("KIND"))
""",
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a working directory of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("code", "name"), FOUND)
def test_found_at_the_marked_lines(tmp_path: Path, code: str, name: str) -> None:
    text = FOUND[code, name]
    lines = [number for number, row in enumerate(text.splitlines(), 1) if "# HERE" in row]
    context = audited(tmp_path, text)
    found = sorted((finding for own in MINE for finding in findings(own, context)), key=lambda finding: finding.span.line)
    assert [(f.code, f.span.line) for f in found] == [(code, line) for line in lines]
    assert all(f.message.endswith(".") and f.explanation.endswith(".") for f in found)


@pytest.mark.parametrize(("code", "name"), QUIET)
def test_quiet_on_look_alikes(tmp_path: Path, code: str, name: str) -> None:
    context = audited(tmp_path, QUIET[code, name])
    assert [(f.code, f.span.line, f.message) for own in MINE for f in findings(own, context)] == []


@pytest.mark.parametrize("code", MINE)
def test_examples_of_the_page(tmp_path: Path, code: str) -> None:
    rule = rules()[code]
    bad = audited(tmp_path, rule.bad)
    assert {f.code for own in MINE for f in findings(own, bad)} == {code}
    good = audited(tmp_path, rule.good)
    assert [f for own in MINE for f in findings(own, good)] == []
