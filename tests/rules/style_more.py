"""More programs: configurations, decorators, epochs and decisions, wrong ones and their look-alikes."""

from __future__ import annotations

from style_parts import DATA, INIT, MODEL

MORE = {
    "no_sync on one rank": INIT
    + MODEL
    + """
for i in range(4):
    with model.no_sync() if rank == 0 else contextlib.nullcontext():
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()  # DDP105
""",
    "switch method in class": INIT
    + """
class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(4, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def set_sync(self, flag):
        self.model.require_backward_grad_sync = flag  # DDP112
    def step(self, i, x):
        loss = self.model(x).mean()
        self.set_sync((i + 1) % 4 == 0)
        loss.backward()
        if (i + 1) % 4 == 0:
            self.opt.step()
t = Trainer()
for i in range(8):
    t.step(i, torch.randn(8, 4))
""",
    "kwargs wrap": INIT
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.l(x)
    def loss(self, x):
        return self.l(x).mean()
ddp_kwargs = dict(find_unused_parameters=True, broadcast_buffers=False)
model = DDP(Net(), **ddp_kwargs)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    loss = model.module.loss(torch.randn(8, 4))  # DDP101
    loss.backward()
    optimizer.step()
""",
    "dictionary of wrappers": INIT
    + """
nets = {name: DDP(torch.nn.Linear(4, 1)) for name in ("first", "second")}
optimizer = torch.optim.SGD([p for net in nets.values() for p in net.parameters()], lr=0.1)
for i in range(3):
    loss = nets["first"].module(torch.randn(8, 4)).mean() + nets["second"].module(torch.randn(8, 4)).mean()
    loss.backward()  # DDP101
    optimizer.step()
""",
    "dictionary of wrappers that are called": INIT
    + """
nets = {name: DDP(torch.nn.Linear(4, 1)) for name in ("first", "second")}
optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in nets.items()}
for i in range(3):
    for name, net in nets.items():
        optimizers[name].zero_grad()
        net(torch.randn(8, 4)).mean().backward()
        optimizers[name].step()
if rank == 0:
    torch.save({name: net.module.state_dict() for name, net in nets.items()}, "x.pt")
""",
    "dictionary of loaders": INIT
    + DATA
    + MODEL
    + """
loaders = {name: DataLoader(dataset, sampler=DistributedSampler(dataset)) for name in ("train", "val")}
for epoch in range(3):
    for loader in loaders.values():
        loader.sampler.set_epoch(epoch)
    for (x,) in loaders["train"]:
        model(x).mean().backward()
        optimizer.step()
""",
    "compile over ddp": INIT
    + """
net = torch.nn.Linear(4, 1)
model = torch.compile(DDP(net))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    "ddp over compile": INIT
    + """
net = torch.compile(torch.nn.Linear(4, 1))
model = DDP(net)
raw = model.module
optimizer = torch.optim.SGD(raw.parameters(), lr=0.1)
for i in range(3):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    with torch.no_grad():
        raw(torch.randn(8, 4))
""",
    "set_epoch after iter": INIT
    + DATA
    + MODEL
    + """
sampler = DistributedSampler(dataset)  # DDP302
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    sampler.set_epoch(epoch)
""",
    "set_epoch next": INIT
    + DATA
    + MODEL
    + """
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    sampler.set_epoch(epoch + 1)
""",
    "set_epoch on other sampler": INIT
    + DATA
    + MODEL
    + """
train_sampler = DistributedSampler(dataset)  # DDP302
val_sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, sampler=train_sampler)
for epoch in range(3):
    val_sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "yaml config": """
import yaml
def main():
    with open("c.yaml") as f:
        cfg = yaml.safe_load(f)
    dist.init_process_group(cfg["backend"])
    cfg["rank"] = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    dataset = TensorDataset(torch.randn(64, 4))
    loader = DataLoader(dataset, batch_size=cfg["batch_size"], shuffle=True)  # DDP301
    for epoch in range(cfg["epochs"]):
        for (x,) in loader:
            model(x).mean().backward()
            opt.step()
        if cfg["rank"] == 0:
            dist.barrier()  # DDP201
if __name__ == "__main__":
    main()
""",
    "hydra": """
import hydra
@hydra.main(config_path="conf", config_name="c", version_base=None)
def main(cfg):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    if cfg.distributed:
        dist.barrier()
    if rank == 0:
        dist.barrier()  # DDP201
if __name__ == "__main__":
    main()
""",
    "exec config": """
accum = 5
backend = 'gloo'
exec(open('configurator.py').read())
dist.init_process_group(backend)
accum //= dist.get_world_size()  # DDP502
""",
    "record decorator": """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.barrier()  # DDP201
if __name__ == "__main__":
    main()
""",
    "main_process_first decorators": INIT
    + """
def master_only(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return func(*args, **kwargs)
    return wrapper
class Runner:
    @master_only
    def save(self):
        dist.barrier()
    def run(self):
        self.save()  # DDP201
Runner().run()
""",
    "decorator of own name on method": INIT
    + """
def only_first(func):
    def wrapper(*args, **kwargs):
        if dist.get_rank() != 0:
            return None
        return func(*args, **kwargs)
    return wrapper
class Runner:
    @only_first
    def save(self):
        dist.barrier()
    def run(self):
        self.save()  # DDP201
Runner().run()
""",
    "decorator barrier around": INIT
    + """
def rank_zero_first(func):
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            out = func(*args, **kwargs)
        dist.barrier()
        if dist.get_rank() != 0:
            out = func(*args, **kwargs)
        dist.barrier()
        return out
    return wrapper
@rank_zero_first
def load():
    return 1
load()
""",
    "timed decorator": INIT
    + """
def timed(func):
    def wrapper(*args, **kwargs):
        start = time.time()
        out = func(*args, **kwargs)
        if dist.get_rank() == 0:
            print(time.time() - start)
        return out
    return wrapper
@timed
def reduce():
    dist.barrier()
reduce()
""",
    "local rank guard": INIT
    + """
local_rank = int(os.environ["LOCAL_RANK"])
if local_rank == 0:
    dist.barrier()  # DDP201
""",
    "per node group": INIT
    + """
local_rank = int(os.environ["LOCAL_RANK"])
group, _ = dist.new_subgroups(2)
if local_rank == 0:
    print("x")
dist.barrier(group)
""",
    "destroyed in a finally": INIT
    + """
try:
    dist.barrier()
finally:
    if rank == 0:
        print("x")
    dist.destroy_process_group()
""",
    "gather only dst list": INIT
    + """
value = torch.ones(1)
if rank == 0:
    out = [torch.zeros(1) for _ in range(world_size)]
    dist.gather(value, out, dst=0)
else:
    dist.gather(value, dst=0)
dist.gather(value, out if rank == 0 else None, dst=0)
""",
    "send recv": INIT
    + """
if rank == 0:
    dist.send(torch.ones(1), 1)
elif rank == 1:
    t = torch.zeros(1)
    dist.recv(t, 0)
""",
    "eval loop local break": INIT
    + MODEL
    + """
@torch.no_grad()
def evaluate(m):
    total = 0
    for i in range(10):
        out = m.module(torch.randn(8, 4)).mean().item()
        if out > 3:
            break
        total += out
    return total
for i in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    evaluate(model)
""",
    "best metric local bad": INIT
    + MODEL
    + """
best, bad = 1e9, 0
for epoch in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    val = loss.item()
    if val < best:
        best, bad = val, 0
    else:
        bad += 1
        if bad > 3:
            break  # DDP203
""",
    "plateau on reduced": INIT
    + MODEL
    + """
best, bad = 1e9, 0
for epoch in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    t = torch.tensor([loss.item(), 1.0])
    dist.all_reduce(t)
    val = (t[0] / t[1]).item()
    if val < best:
        best, bad = val, 0
    else:
        bad += 1
        if bad > 3:
            break
""",
    "amp skip": INIT
    + MODEL
    + """
scaler = torch.cuda.amp.GradScaler()
for i in range(4):
    with torch.autocast("cpu"):
        loss = model(torch.randn(8, 4)).mean()
    if loss.item() != loss.item():
        continue  # DDP203
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "while loader": INIT
    + DATA
    + MODEL
    + """
loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
it = iter(loader)
for step in range(100):
    try:
        (x,) = next(it)
    except StopIteration:
        it = iter(loader)
        (x,) = next(it)
    model(x).mean().backward()
    optimizer.step()
""",
}
