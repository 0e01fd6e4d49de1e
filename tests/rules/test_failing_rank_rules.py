"""DDP204, DDP205, DDP210 and DDP211: what each finds, in several styles, and the look-alikes on which it stays quiet.

In a program `# HERE` marks a line that a finding names.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules

MINE = ("DDP204", "DDP205", "DDP210", "DDP211")
HEAD = """\
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()
"""
TRAIN = (
    HEAD
    + """
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(61, 4)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
def train(x):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
)

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

QUIET = {
    ("DDP205", "a share of what is cut to a multiple before"): TRAIN + """
def batches(items):
    for item in items:
        yield item
def share(items):
    n = len(items) - len(items) % world_size
    return items[:n][rank::world_size]
for item in batches(share(os.listdir("texts"))):
    train(torch.randn(8, 4))
""",
    ("DDP205", "batches that a generator pads"): TRAIN + """
def packed(texts, total):
    for text in texts:
        yield text
    for padding in range(total - len(texts)):
        yield ""
mine = os.listdir("texts")[rank::world_size]
for batch in packed(mine, 64):
    train(torch.randn(8, 4))
""",
    ("DDP211", "before the group is made"): """
import os
import torch.distributed as dist
def prepare_data():
    print()
if int(os.environ["RANK"]) == 0:
    prepare_data()
dist.init_process_group("gloo")
dist.barrier()
""",
    ("DDP211", "a timeout of the program's own"): HEAD.replace('"gloo"', '"nccl", timeout=timedelta(hours=6)').replace(
        "import os", "from datetime import timedelta\nimport os"
    ) + """
def prepare_data():
    print()
if rank == 0:
    prepare_data()
    time.sleep(1200)
dist.barrier()
""",
    ("DDP211", "Trainer with a timeout of its own"): """
from datasets import load_dataset
from transformers import Trainer, TrainingArguments
def tokens(example):
    return example
arguments = TrainingArguments("out", ddp_timeout=36000)
data = load_dataset("corpus")
with arguments.main_process_first(desc="tokens"):
    data = data.map(tokens, batched=True)
Trainer(None, arguments, train_dataset=data).train()
""",
    ("DDP211", "cached"): HEAD + """
def prepare_data():
    print()
if rank == 0 and not os.path.exists("cache"):
    prepare_data()
if rank == 0:
    if not os.path.isfile("cache"):
        prepare_data()
dist.barrier()
""",
    ("DDP211", "the others wait on another group, or not at all"): HEAD + """
def prepare_data():
    print()
host = dist.new_group(backend="gloo")
if rank == 0:
    prepare_data()
dist.barrier(group=host)
dist.barrier()
if rank == 0:
    prepare_data()
    time.sleep(5)
""",
    ("DDP211", "a function that looks first, and all ranks but one"): HEAD + """
def prepare_data():
    if os.path.exists("data"):
        return
    print()
def download():
    print()
if rank == 0:
    prepare_data()
dist.barrier()
if rank != 0:
    download()
dist.barrier()
""",
    ("DDP211", "on all ranks, and short"): HEAD + """
def download():
    print()
download()
if rank == 0:
    print("main")
    time.sleep(3)
dist.barrier()
""",
    ("DDP210", "in turns by parity"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
if rank % 2 == 0:
    dist.send(a, (rank + 1) % world_size)
    dist.recv(b, (rank - 1) % world_size)
else:
    dist.recv(b, (rank - 1) % world_size)
    dist.send(a, (rank + 1) % world_size)
""",
    ("DDP210", "a pipeline, and from one to another"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
if rank > 0:
    dist.recv(b, rank - 1)
if rank < world_size - 1:
    dist.send(a, rank + 1)
if rank == 0:
    dist.send(a, dst=1)
elif rank == 1:
    dist.recv(b, src=0)
""",
    ("DDP210", "neighbours by a bit, the odd ones receive first"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
for buffer in (a, b):
    if (rank >> 0) & 1:
        dist.recv(b, src=rank ^ 1)
    else:
        dist.send(a, dst=rank ^ 1)
""",
    ("DDP210", "posted together, or one of them asynchronously"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
ahead, behind = (rank + 1) % world_size, (rank - 1) % world_size
ops = [dist.P2POp(dist.isend, a, ahead), dist.P2POp(dist.irecv, b, behind)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
work = dist.isend(a, ahead)
dist.recv(b, behind)
work.wait()
""",
    ("DDP210", "peers that are not known"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
def forward(previous, following):
    dist.send(a, following)
    dist.recv(b, previous)
forward(os.getpid(), int(os.environ["NEXT"]))
for other in range(1, world_size):
    if rank == 0:
        dist.recv(b, src=other)
    elif rank == other:
        dist.send(a, dst=0)
""",
    ("DDP205", "a sampler that pads"): TRAIN + """
for epoch in range(3):
    for x in loader:
        train(x)
""",
    ("DDP205", "ranks may end when they like"): TRAIN + """
from torch.distributed.algorithms.join import Join
with Join([model]):
    for x in data[rank::world_size]:
        train(x)
with model.join():
    for x in data[rank::world_size]:
        train(x)
""",
    ("DDP205", "an agreed count"): TRAIN + """
mine = data[rank::world_size]
count = torch.tensor(len(mine))
dist.all_reduce(count, op=dist.ReduceOp.MIN)
for i in range(int(count.item())):
    train(mine[i])
for i, x in zip(range(10), mine):
    train(x)
""",
    ("DDP205", "equal contiguous shares"): TRAIN + """
each = len(data) // world_size
for x in data[rank * each : (rank + 1) * each]:
    train(x)
for x in data.split(len(data) // world_size)[rank]:
    train(x)
""",
    ("DDP205", "a number of rows that comes out even"): TRAIN + """
rows = torch.randn(60, 4)
for x in rows[rank::world_size]:
    train(x)
for x in DataLoader(Subset(rows, range(rank, len(rows), world_size)), batch_size=4):
    train(x)
for i in range(rank, 60, world_size):
    train(rows[i])
""",
    ("DDP205", "padded, or cut to a multiple"): TRAIN + """
count = len(data) // world_size * world_size
for x in data[:count][rank::world_size]:
    train(x)
padded = torch.nn.functional.pad(data, (0, 0, 0, -len(data) % world_size))
for x in padded[rank::world_size]:
    train(x)
""",
    ("DDP205", "nothing done together in the loop"): TRAIN + """
for x in data[rank::world_size]:
    print(x)
with torch.no_grad():
    for x in data[rank::world_size]:
        model.module(x)
""",
    ("DDP205", "a stream without an end, left on a step count"): TRAIN + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            for i, x in enumerate(data):
                if i % world_size == rank:
                    yield x
for step, x in enumerate(DataLoader(Stream(), batch_size=2)):
    if step == 100:
        break
    train(x)
for step, x in enumerate(data[rank::world_size]):
    if step == 10:
        break
    train(x)
""",
    ("DDP204", "the handler ends the process or raises"): TRAIN + """
import sys
for x in loader:
    try:
        train(x)
    except RuntimeError:
        print("failed")
        raise
    except Exception:
        sys.exit(1)
""",
    ("DDP204", "an agreed flag"): TRAIN + """
for x in loader:
    broken = torch.zeros(1)
    try:
        y = torch.load(x)
    except OSError:
        broken += 1
    dist.all_reduce(broken)
    if broken.item():
        continue
    train(y)
""",
    ("DDP204", "exceptions of the program's shape"): TRAIN + """
batches = iter(loader)
while True:
    try:
        x = next(batches)
    except StopIteration:
        break
    train(x)
try:
    dist.all_gather_into_tensor(torch.zeros(2), torch.zeros(1))
except AttributeError:
    dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.zeros(1))
""",
    ("DDP204", "the last thing that the program does"): TRAIN + """
try:
    for x in loader:
        train(x)
except KeyboardInterrupt:
    print("stopped")
except Exception as error:
    print(error)
finally:
    dist.destroy_process_group()
""",
    ("DDP204", "around the processes that train, and exceptions of unknown meaning"): """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
class Finished(Exception):
    pass
def run(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = DDP(torch.nn.Linear(4, 1))
    for step in range(4):
        try:
            model(torch.randn(8, 4)).mean().backward()
        except Finished:
            break
    dist.barrier()
for attempt in range(3):
    try:
        mp.spawn(run, nprocs=2)
    except Exception:
        print("once more")
""",
    ("DDP204", "only what one rank does for itself"): TRAIN + """
for x in loader:
    loss = train(x)
    try:
        print(loss.item())
    except ValueError:
        continue
""",
    ("DDP204", "names that are asked for"): TRAIN + """
writer = SummaryWriter() if rank == 0 else None
if rank == 0:
    board = SummaryWriter()
class Trainer:
    def __init__(self):
        if rank == 0:
            self.log = SummaryWriter()
trainer = Trainer()
for x in loader:
    loss = train(x)
    if writer is not None:
        writer.add_scalar("loss", loss)
    if writer:
        writer.flush()
    if rank == 0 and board.flush():
        board.add_scalar("loss", loss)
    if not rank:
        board.flush()
    if hasattr(trainer, "log"):
        trainer.log.flush()
    if getattr(trainer, "log", None) is not None and writer is not None:
        writer.flush()
""",
    ("DDP204", "in a function that rank 0 alone may call"): TRAIN + """
if rank == 0:
    board = SummaryWriter()
log = SummaryWriter() if rank == 0 else None
def on_event(value):
    board.add_scalar("x", value)
    log.flush()
""",
    ("DDP204", "made on all ranks, one way or the other"): TRAIN + """
class Silent:
    def flush(self):
        pass
if rank == 0:
    board = SummaryWriter()
else:
    board = Silent()
if rank == 0:
    path = "main"
elif rank > 0:
    path = "other"
board.flush()
print(path)
def label(name):
    if rank == 0:
        name = "main"
    return name.upper()
label("x")
""",
    ("DDP204", "an object that exists on rank 0 and its attributes"): TRAIN + """
class Log:
    def __init__(self):
        self.path = None
        self.path = "x"
    def write(self):
        if rank == 0 and self.path:
            print(self.path)
if rank == 0:
    log = Log()
    log.write()
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
