"""DDP206 to DDP210 and DDP212: what each finds, in several styles, and the look-alikes on which it stays quiet.

In a program `# HERE` marks a line that a finding names.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules
from group_and_order_look_alikes import HEAD, QUIET

from ddp_audit.launch.command import read_command
from ddp_audit.program.nodes import Collective

MINE = ("DDP206", "DDP207", "DDP208", "DDP209", "DDP212")
FOUND = {
    ("DDP209", "rank 0 as the root of each of the groups of a loop"): HEAD + """
mine = None
for i in range(world_size // 2):
    ranks = list(range(i * 2, (i + 1) * 2))
    group = dist.new_group(ranks)
    if rank in ranks:
        mine = group
dist.broadcast(torch.ones(1), src=0, group=mine)  # HERE
""",
    ("DDP209", "each rank makes the group that it is in"): HEAD + """
half = world_size // 2
mine = None
for ranks in [list(range(half)), list(range(half, world_size))]:
    if rank in ranks:
        mine = dist.new_group(ranks)  # HERE
dist.all_reduce(torch.ones(1), group=mine)
""",
    ("DDP207", "size by rank"): HEAD + """
counts = torch.zeros(rank + 1, 2)
dist.all_reduce(counts)  # HERE
""",
    ("DDP207", "type by rank"): HEAD + """
if rank == 0:
    best = torch.tensor([0.5, 0.25])
else:
    best = torch.zeros(2, dtype=torch.long)
dist.broadcast(best, src=0)  # HERE
""",
    ("DDP207", "two branches"): HEAD + """
def share(model):
    if rank == 0:
        dist.broadcast(torch.zeros(2, 3).double(), 0)  # HERE
    else:
        dist.broadcast(torch.empty(2, 3), 0)
share(None)
""",
    ("DDP207", "a measure into a whole number"): HEAD + """
def evaluate(results):
    if rank == 0:
        metric = results.stats[0]
        dist.broadcast(torch.tensor(metric), 0)  # HERE
    else:
        metric = torch.tensor(0)
        dist.broadcast(metric, 0)
evaluate(os)
""",
    ("DDP207", "size by data"): HEAD + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
for x in loader:
    chosen = x[x > 0].cpu()
    dist.all_gather([torch.empty_like(chosen) for _ in range(world_size)], chosen)  # HERE
    places = torch.nonzero(x)
    dist.all_reduce(places)  # HERE
""",
    ("DDP207", "masked parts joined"): HEAD + """
def collect(loader):
    hard = []
    for x in loader:
        score = x.softmax(-1)
        hard.append(score[score < 0.1])
    hard = torch.cat(hard)
    everywhere = [torch.empty_like(hard) for _ in range(world_size)]
    dist.all_gather(everywhere, hard)  # HERE
    return torch.cat(everywhere)
collect(torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8))
""",
    ("DDP207", "a scheduler on all ranks by what one rank got"): HEAD + """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for epoch in range(3):
    total = torch.zeros(1)
    for x in torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8):
        total += net(x).detach().sum()
    dist.reduce(total, dst=0)
    scheduler.step(total.item() / world_size)  # HERE
""",
    ("DDP207", "objects"): HEAD + """
objects = ["a", "b"] if rank == 0 else [None]
dist.broadcast_object_list(objects, src=0)  # HERE
""",
    ("DDP207", "lists for the root"): HEAD + """
x = torch.ones(2)
dist.scatter(x, [torch.ones(2), torch.ones(2)], src=0)  # HERE
if rank == 0:
    dist.gather(x, dst=0)  # HERE
else:
    dist.gather(x, dst=0)
""",
    ("DDP207", "on the CPU for NCCL"): HEAD.replace("gloo", "nccl") + """
count = torch.zeros(1)
dist.all_reduce(count)  # HERE
dist.all_reduce(count.cuda())
dist.all_reduce(torch.zeros(1, device=f"cuda:{rank}"))
""",
    ("DDP206", "sets joined, and a helper"): HEAD + """
have, wanted = {"a": torch.ones(1), "b": torch.ones(1)}, {"a", "b"}
def share(name):
    dist.all_reduce(have[name])
for name in wanted & set(have):
    share(name)  # HERE
""",
    ("DDP206", "what was made of a set"): HEAD + """
names = {"loss", "accuracy"}
stats = {name: torch.ones(1) for name in names}
for name, value in stats.items():
    dist.all_reduce(value)  # HERE
upper = [name.upper() for name in names]
for place, name in enumerate(upper):
    dist.broadcast(stats[name.lower()], 0)  # HERE
""",
    ("DDP206", "parameters in a set"): HEAD + """
net = torch.nn.Linear(4, 1)
for parameter in set(net.parameters()):
    dist.all_reduce(parameter.grad)  # HERE
""",
    ("DDP206", "directory listings"): HEAD + """
from pathlib import Path
for file in os.listdir("shards"):
    dist.all_reduce(torch.load(file))  # HERE
for file in Path("shards").glob("*.pt"):
    dist.all_reduce(torch.load(file))  # HERE
""",
    ("DDP206", "groups by name"): HEAD + """
groups = {}
for stage in frozenset(["encoder", "decoder"]):
    groups[stage] = dist.new_group([0, 1])  # HERE
""",
    ("DDP208", "scaled in place"): HEAD + """
total = torch.ones(1)
work = dist.all_reduce(total, async_op=True)
total /= world_size  # HERE
work.wait()
total /= world_size
""",
    ("DDP208", "gradients that nobody waits for"): HEAD + """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for parameter in net.parameters():
    dist.all_reduce(parameter.grad, async_op=True)
optimizer.step()  # HERE
""",
    ("DDP208", "waited for under an option"): HEAD + """
overlap = bool(os.environ.get("OVERLAP"))
out, x = torch.zeros(8), torch.ones(4)
head = torch.nn.Linear(8, 1)
work = dist.all_gather_into_tensor(out, x, async_op=True)
if overlap:
    work.wait()
y = head(out)  # HERE
""",
    ("DDP208", "attribute of an object, in another method"): HEAD + """
class Meter:
    def start(self):
        self.total = torch.ones(1)
        self.work = dist.all_reduce(self.total, async_op=True)
    def value(self):
        return self.total.item()  # HERE
    def stop(self):
        self.work.wait()
meter = Meter()
meter.start()
meter.value()
meter.stop()
""",
    ("DDP208", "messages"): HEAD + """
x, y = torch.ones(1), torch.ones(1)
if rank == 0:
    sent = dist.isend(x, 1)
    x.zero_()  # HERE
    sent.wait()
else:
    got = dist.irecv(y, 0)
    print(y)  # HERE
    got.wait()
""",
    ("DDP208", "the wrong handle is waited for"): HEAD + """
a, b = torch.ones(1), torch.ones(1)
first = dist.all_reduce(a, async_op=True)
second = dist.all_reduce(b, async_op=True)
first.wait()
c = a + 1
d = 2 * b  # HERE
second.wait()
""",
    ("DDP208", "written while it is sent"): HEAD + """
out, x = torch.zeros(8), torch.ones(4)
work = dist.all_gather_into_tensor(out, x, async_op=True)
print(x.sum())
x[0] = 7  # HERE
work.wait()
""",
    ("DDP208", "received by a helper, used before the wait"): HEAD + """
def pass_left(t):
    incoming = torch.empty_like(t)
    sent = dist.isend(t, (rank - 1) % world_size)
    received = dist.irecv(incoming, (rank + 1) % world_size)
    return incoming, (sent, received)
model = torch.nn.Linear(4, 1)
halo, works = pass_left(torch.ones(4))
out = model(halo)  # HERE
for work in works:
    work.wait()
print(halo.sum())
""",
    ("DDP209", "made by some ranks"): HEAD + """
def writers():
    if rank != 0:
        return None
    return dist.new_group([0])  # HERE
group = writers()
everybody = dist.new_group()
""",
    ("DDP209", "another list on each rank"): HEAD + """
pairs = [[0, 1], [2, 3]]
group = dist.new_group(pairs[rank // 2])  # HERE
""",
    ("DDP209", "a list computed from the rank"): HEAD + """
first = rank // 2 * 2
group = dist.new_group(list(range(first, first + 2)))  # HERE
""",
    ("DDP209", "each rank makes its own of the lists"): HEAD + """
half = world_size // 2
mine = None
for ranks in [list(range(half)), list(range(half, world_size))]:
    if rank in ranks:
        mine = dist.new_group(ranks)  # HERE
dist.all_reduce(torch.ones(1), group=mine)
""",
    ("DDP209", "each rank makes its own of many lists"): HEAD + """
def own_group(lists):
    for ranks in lists:
        if dist.get_rank() in ranks:
            return dist.new_group(ranks)  # HERE
own_group([[first, first + 1] for first in range(0, world_size, 2)])
""",
    ("DDP209", "each rank makes its own in a loop over ranks"): HEAD + """
for first in range(0, world_size, 2):
    ranks = [first, first + 1]
    if rank in ranks:
        mine = dist.new_group(ranks)  # HERE
""",
    ("DDP209", "the own position in the group as the root"): HEAD + """
pairs = [dist.new_group([i, i + 1]) for i in range(0, world_size, 2)]
mine = pairs[rank // 2]
dist.broadcast(torch.ones(1), src=dist.get_rank(mine), group=mine)  # HERE
""",
    ("DDP209", "the own position in an unknown group as the root"): HEAD + """
from mesh import own
group = own()
dist.gather(torch.ones(1), dst=dist.get_rank(group), group=group)  # HERE
""",
    ("DDP209", "other orders"): HEAD + """
if rank == 0:
    pair = dist.new_group([0, 1])  # HERE
    alone = dist.new_group([0])
else:
    alone = dist.new_group([0])
    pair = dist.new_group([0, 1])
""",
    ("DDP209", "the root is no member"): HEAD + """
last = dist.new_group([1])
x = torch.ones(1)
if rank == 1:
    dist.reduce(x, dst=0, group=last)  # HERE
""",
    ("DDP209", "the root is in the group of the others"): HEAD + """
pairs = dist.new_group([0, 1]), dist.new_group([2, 3])
mine = pairs[0] if rank < 2 else pairs[1]
x = torch.ones(1)
dist.all_reduce(x, group=mine)
dist.broadcast(x, src=0, group=mine)  # HERE
""",
    ("DDP209", "called by all, for one member"): HEAD + """
last = dist.new_group([1])
x = torch.ones(1)
dist.all_reduce(x, group=last)  # HERE
""",
    ("DDP212", "one operand of several"): HEAD + """
def is_main_process():
    return rank == 0
if os.environ.get("SAVE") and is_main_process:  # HERE
    torch.save({}, "net.pt")
""",
    ("DDP212", "a method"): HEAD + """
class Job:
    def is_master(self):
        return rank == 0
    def save(self):
        if self.is_master:  # HERE
            torch.save({}, "net.pt")
Job().save()
""",
    ("DDP212", "conditional expression"): HEAD + """
def is_main_process():
    return rank == 0
path = "net.pt" if is_main_process else None  # HERE
""",
    ("DDP212", "loop of the ranks that wait"): HEAD + """
def is_main_process():
    return rank == 0
while not is_main_process:  # HERE
    dist.barrier()
""",
    ("DDP212", "a getter compared"): HEAD + """
if 0 == dist.get_rank:  # HERE
    torch.save({}, "net.pt")
if dist.get_node_local_rank != 0:  # HERE
    print("quiet")
""",
    ("DDP212", "a library's predicate that is called elsewhere"): HEAD + """
from detectron2.utils.comm import is_main_process
if is_main_process():
    print("one")
if is_main_process:  # HERE
    print("two")
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
    found = [finding for own in MINE for finding in findings(own, context)]
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


def test_a_launch_that_fixes_the_hashes_gives_one_order(tmp_path: Path) -> None:
    text = FOUND["DDP206", "sets joined, and a helper"]
    launch = read_command("PYTHONHASHSEED=0 torchrun --nproc-per-node 2 train.py")
    assert len(findings("DDP206", audited(tmp_path, text))) == 1
    assert findings("DDP206", audited(tmp_path, text, launch=launch)) == []


def test_a_call_that_is_waited_for_at_once_is_one_call(tmp_path: Path) -> None:
    text = HEAD + "x = torch.ones(4)\ny = dist.all_reduce(x, async_op=True)\ndist.all_reduce(x, async_op=True).wait()\n"
    assert len(list(audited(tmp_path, text).program.of(Collective))) == 2
