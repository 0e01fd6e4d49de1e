"""Programs that look like the hazards of DDP206 to DDP209 and DDP212, and what they and the bad ones begin with."""

from __future__ import annotations

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()
"""

QUIET = {
    ("DDP209", "the first member as the root of each of the groups of a loop"): HEAD + """
mine, first = None, 0
for i in range(world_size // 2):
    ranks = list(range(i * 2, (i + 1) * 2))
    group = dist.new_group(ranks)
    if rank in ranks:
        mine, first = group, ranks[0]
dist.broadcast(torch.ones(1), src=first, group=mine)
dist.broadcast(torch.ones(1), group=mine, group_src=0)
""",
    ("DDP209", "all groups are made, and each rank keeps its own"): HEAD + """
half = world_size // 2
mine = None
for ranks in [list(range(half)), list(range(half, world_size))]:
    group = dist.new_group(ranks)
    if rank in ranks:
        mine = group
    if rank in ranks:
        here = dist.new_group(ranks, use_local_synchronization=True)
dist.all_reduce(torch.ones(1), group=mine)
""",
    ("DDP207", "one size and type"): HEAD + """
if rank == 0:
    best = torch.tensor([0.5, 0.25])
    dist.broadcast(best, src=0)
else:
    best = torch.zeros(2)
    dist.broadcast(best, src=0)
rows = torch.zeros(2, 3) if rank == 0 else torch.empty((2, 3))
dist.broadcast(rows, 0)
flag = torch.tensor(rank == 0)
dist.all_reduce(flag)
dist.all_gather_object([None] * world_size, rows[rows > 0])
""",
    ("DDP207", "data of another size, padded or reduced"): HEAD + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
for x in loader:
    total = x[x > 0].sum()
    dist.all_reduce(total)
    padded = torch.zeros(32)
    padded[: len(x[x > 0])] = x[x > 0]
    dist.all_reduce(padded)
    dist.all_to_all_single(torch.empty(9), x[x > 0], [4, 5], [3, 3])
""",
    ("DDP207", "masked parts joined, padded to the longest or counted"): HEAD + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
hard, means, whole = [], [], []
for x in loader:
    hard.append(x[x < 0.1])
    means.append(x[x < 0.1].mean())
    whole.append(x)
hard = torch.cat(hard)
longest = torch.tensor([len(hard)])
dist.all_reduce(longest, op=dist.ReduceOp.MAX)
padded = torch.zeros(longest.item())
padded[: len(hard)] = hard
dist.all_gather([torch.empty_like(padded) for _ in range(world_size)], padded)
dist.all_reduce(torch.stack(means))
dist.all_reduce(torch.cat(whole))
dist.all_gather_object([None] * world_size, hard)
""",
    ("DDP207", "a scheduler by what all ranks got, or on the root"): HEAD + """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
logged = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for epoch in range(3):
    total = torch.zeros(1)
    for x in torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8):
        total += net(x).detach().sum()
    dist.reduce(total, dst=0)
    if rank == 0:
        print(total.item() / world_size)
        logged.step(total.item())
    dist.broadcast(total, src=0)
    scheduler.step(total.item() / world_size)
    dist.reduce(total, 0)
    dist.all_reduce(total)
    scheduler.step(total.item() / world_size)
""",
    ("DDP207", "lists on the root alone"): HEAD + """
x = torch.ones(2)
out = [torch.ones(2) for _ in range(world_size)]
dist.gather(x, out if rank == 0 else None, dst=0)
dist.scatter(x, scatter_list=out if rank == 1 else [], src=1)
found = [None] * world_size if rank == 0 else None
dist.gather_object({}, found, dst=0)
objects = [1, 2] if rank == 0 else [None, None]
dist.broadcast_object_list(objects, src=0)
""",
    ("DDP207", "the local rank where one node is meant"): HEAD + """
local_rank = int(os.environ["LOCAL_RANK"])
found = [None] * world_size if local_rank == 0 else None
dist.gather_object({}, found, dst=0)
""",
    ("DDP207", "CPU tensors where they may be sent"): HEAD.replace("gloo", "cpu:gloo,cuda:nccl") + """
dist.all_reduce(torch.zeros(1))
""",
    ("DDP207", "a default device"): HEAD.replace("gloo", "nccl") + """
torch.set_default_device("cuda")
dist.all_reduce(torch.zeros(1))
""",
    ("DDP207", "groups of their own"): HEAD.replace("gloo", "nccl") + """
host = dist.new_group(backend="gloo")
dist.all_reduce(torch.zeros(1), group=host)
""",
    ("DDP206", "sorted, and sorted in place"): HEAD + """
import glob
names = {"loss", "accuracy"}
stats = {name: torch.ones(1) for name in sorted(names)}
for name in sorted(names):
    dist.all_reduce(stats[name])
for name in stats:
    dist.all_reduce(stats[name])
files = glob.glob("*.pt")
files.sort()
for file in files:
    dist.all_reduce(torch.load(file))
""",
    ("DDP206", "dicts and sets of numbers or of one element"): HEAD + """
stats = {"loss": torch.ones(1), "accuracy": torch.ones(1)}
for name, value in stats.items():
    dist.all_reduce(value)
for size in {1, 2, 3}:
    dist.all_reduce(torch.ones(size))
for name in {"loss"}:
    dist.all_reduce(stats[name])
""",
    ("DDP206", "nothing but barriers, and no collectives"): HEAD + """
names = {"loss", "accuracy"}
for name in names:
    dist.barrier()
for name in names:
    print(name)
""",
    ("DDP208", "handles in a list"): HEAD + """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
for handle in handles:
    handle.wait()
for p in net.parameters():
    p.grad /= world_size
optimizer.step()
""",
    ("DDP208", "waited for in another method"): HEAD + """
class Meter:
    def start(self):
        self.total = torch.ones(1)
        self.work = dist.all_reduce(self.total, async_op=True)
    def finish(self):
        if self.work is not None:
            self.work.wait()
            self.work = None
    def value(self):
        self.finish()
        return self.total.item()
meter = Meter()
meter.start()
meter.value()
""",
    ("DDP208", "an option decides about both"): HEAD + """
overlap = bool(os.environ.get("OVERLAP"))
x = torch.ones(4)
work = dist.all_reduce(x, async_op=overlap)
if overlap:
    work.wait()
x /= 2
if overlap:
    work = dist.all_reduce(x, async_op=True)
else:
    dist.all_reduce(x)
if overlap:
    work.wait()
x /= 2
""",
    ("DDP208", "facts, views and what is only sent"): HEAD + """
out, x = torch.zeros(8), torch.ones(4)
work = dist.all_gather_into_tensor(out, x, async_op=True)
rows = out.view(2, 4)
print(out.shape, out.numel(), x.sum(), torch.empty_like(out))
work.wait()
print(rows.sum())
""",
    ("DDP208", "one pipeline over iterations"): HEAD + """
work = None
buffer = torch.ones(4)
for step in range(4):
    if work is not None:
        work.wait()
        print(buffer.sum())
    buffer = torch.ones(4)
    work = dist.all_reduce(buffer, async_op=True)
work.wait()
""",
    ("DDP208", "handles that go elsewhere, futures, and a wait at once"): HEAD + """
from library import later
x, y, z = torch.ones(4), torch.ones(4), torch.ones(4)
future = dist.all_reduce(x, async_op=True).get_future()
x /= 2
dist.all_reduce(y, async_op=True).wait()
y /= 2
later(dist.all_reduce(z, async_op=True))
z /= 2
""",
    ("DDP208", "the device is waited for"): HEAD + """
x = torch.ones(4)
dist.all_reduce(x, async_op=True)
torch.cuda.synchronize()
x /= 2
""",
    ("DDP208", "the name stands for something else"): HEAD + """
x = torch.ones(4)
work = dist.all_reduce(x, async_op=True)
held, x = x, torch.ones(4)
print(x.sum())
work.wait()
""",
    ("DDP208", "received by a helper, waited for in several ways"): HEAD + """
def pass_left(t):
    incoming = torch.empty_like(t)
    sent = dist.isend(t, (rank - 1) % world_size)
    received = dist.irecv(incoming, (rank + 1) % world_size)
    return incoming, (sent, received)
def begin(t, wait):
    incoming = torch.empty_like(t)
    work = dist.irecv(incoming, (rank + 1) % world_size)
    if wait:
        work.wait()
        return incoming, None
    return torch.zeros_like(incoming), work
def finish(works):
    for work in works:
        work.wait()
model = torch.nn.Linear(4, 1)
halo, works = pass_left(torch.ones(4))
for work in works:
    work.wait()
out = model(halo)
halo, works = pass_left(torch.ones(4))
finish(works)
out = model(halo)
halo, (sent, received) = pass_left(torch.ones(4))
received.wait()
out = model(halo)
halo, works = pass_left(torch.ones(4))
[work.wait() for work in works]
out = model(halo)
halo, works = pass_left(torch.ones(4))
halo = torch.ones(4)
out = model(halo)
halo, work = begin(torch.ones(4), rank == 0)
out = model(halo)
""",
    ("DDP209", "each list on every rank"): HEAD + """
mine = None
for first in range(0, world_size, 2):
    ranks = [first, first + 1]
    group = dist.new_group(ranks)
    if rank in ranks:
        mine = group
dist.all_reduce(torch.ones(1), group=mine)
""",
    ("DDP209", "all lists on every rank, its own is kept"): HEAD + """
pairs = [[first, first + 1] for first in range(0, world_size, 2)]
for ranks in pairs:
    group = dist.new_group(ranks)
    if rank in ranks:
        mine = group
groups = [dist.new_group(list(range(i * 2, i * 2 + 2))) for i in range(world_size // 2)]
other = groups[rank // 2]
dist.broadcast(torch.ones(1), src=rank // 2 * 2, group=other)
dist.broadcast(torch.ones(1), group_src=0, group=other)
""",
    ("DDP209", "one list of all, groups of one, and lists that are not known"): HEAD + """
from mesh import lists
for ranks in [list(range(world_size))]:
    if rank in ranks:
        everybody = dist.new_group(ranks)
for ranks in [[other] for other in range(world_size)]:
    if rank in ranks:
        alone = dist.new_group(ranks)
for ranks in lists():
    if rank in ranks:
        local = dist.new_group(ranks, use_local_synchronization=True)
""",
    ("DDP209", "the position in the group where it belongs"): HEAD + """
from mesh import own
group = own()
if dist.get_rank(group) == 0:
    dist.broadcast(torch.ones(1), src=dist.get_rank(), group=group)
else:
    dist.broadcast(torch.ones(1), src=dist.get_global_rank(group, 0), group=group)
""",
    ("DDP209", "one group under a setting"): HEAD + """
group = None
if os.environ.get("WORLD_SIZE") and dist.get_backend() == "nccl":
    group = dist.new_group(backend="gloo")
dist.barrier(group=group)
""",
    ("DDP209", "members meet by the list"): HEAD + """
if rank == 0:
    group = dist.new_group([0], use_local_synchronization=True)
""",
    ("DDP209", "both branches make the same"): HEAD + """
if rank == 0:
    group = dist.new_group([0, 1], backend="gloo")
else:
    group = dist.new_group([1, 0], backend="gloo")
""",
    ("DDP209", "calls by members alone"): HEAD + """
last = dist.new_group([1])
x = torch.ones(1)
if rank in (1,):
    dist.all_reduce(x, group=last)
if last != dist.GroupMember.NON_GROUP_MEMBER:
    dist.all_reduce(x, group=last)
""",
    ("DDP209", "root in the group"): HEAD + """
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = groups[rank // 2]
x = torch.ones(1)
dist.broadcast(x, src=rank // 2 * 2, group=mine)
dist.broadcast(x, group_src=0, group=mine)
dist.broadcast(x, src=dist.get_global_rank(mine, 0), group=mine)
""",
    ("DDP212", "a variable, a parameter, a property, an attribute"): HEAD + """
def is_main_process():
    return rank == 0
class Job:
    def __init__(self):
        self.is_master = is_main_process()
    @property
    def is_main(self):
        return rank == 0
job = Job()
def save(is_main_process, options):
    if is_main_process or options.is_main_process:
        torch.save({}, "net.pt")
is_primary = is_main_process()
if is_primary and job.is_main and not job.is_master:
    save(is_primary, os)
""",
    ("DDP212", "a name of an unknown module that may be a variable"): HEAD + """
from settings import is_main_process
if is_main_process:
    torch.save({}, "net.pt")
""",
    ("DDP212", "a callable passed and asked for"): HEAD + """
def is_main_process():
    return rank == 0
def save(predicate=None):
    if predicate and predicate():
        torch.save({}, "net.pt")
save(is_main_process)
""",
    ("DDP212", "a number under the getter's name"): HEAD + """
get_rank = rank
if get_rank == 0:
    torch.save({}, "net.pt")
""",
}  # fmt: skip
