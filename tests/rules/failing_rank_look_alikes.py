"""Programs that look like the hazards of DDP204, DDP205, DDP210 and DDP211, and what they and the bad ones begin with."""

from __future__ import annotations

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
