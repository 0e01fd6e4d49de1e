"""Training loops as real code writes them: accumulation, sharding, epochs, wrappers, arithmetic, devices."""

from __future__ import annotations

from style_parts import MODEL

# ---- gradient accumulation

ACCUMULATION = {
    "block under an if": MODEL
    + """
for i in range(8):
    x = torch.randn(8, 4)
    if (i + 1) % 4:
        with model.no_sync():
            model(x).mean().backward()
    else:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "context by a condition": MODEL
    + """
for i in range(8):
    context = model.no_sync() if (i + 1) % 4 else contextlib.nullcontext()
    with context:
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "bound method": MODEL
    + """
for i in range(8):
    my_context = model.no_sync if (i + 1) % 4 != 0 else contextlib.nullcontext
    with my_context():
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "function that gives the context": MODEL
    + """
def maybe_no_sync(i, last):
    if i < last:
        return model.no_sync()
    else:
        return contextlib.ExitStack()
for step in range(3):
    for i in range(4):
        with maybe_no_sync(i, 3):
            model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    "generator": MODEL
    + """
@contextlib.contextmanager
def ddp_sync(module, sync):
    if sync or not isinstance(module, DDP):
        yield
    else:
        with module.no_sync():
            yield
for step in range(3):
    for i in range(4):
        with ddp_sync(model, i == 3):
            loss = model(torch.randn(8, 4)).mean()
            loss.backward()
    optimizer.step()
""",
    "closure": MODEL
    + """
for i in range(8):
    x = torch.randn(8, 4)
    def _forward():
        return model(x).mean()
    def _backward(loss):
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
    if (i + 1) % 4 != 0:
        with model.no_sync():
            _backward(_forward())
    else:
        _backward(_forward())
""",
    "asked again in the callee": MODEL
    + """
class Scaler:
    def __call__(self, loss, need_update):
        loss.backward()
        if need_update:
            optimizer.step()
scaler = Scaler()
for i in range(8):
    need_update = (i + 1) % 4 == 0
    if hasattr(model, "no_sync") and not need_update:
        with model.no_sync():
            scaler(model(torch.randn(8, 4)).mean(), need_update)
    else:
        scaler(model(torch.randn(8, 4)).mean(), need_update)
""",
    "asked again in an optimizer of the project": MODEL
    + """
class Lookahead:
    def __init__(self, base):
        self.base = base
    def step(self, closure=None):
        return self.base.step(closure)
args = argparse.Namespace(window=int(sys.argv[1]), clip=sys.argv[2])
slow = Lookahead(optimizer)
def backward(loss, need_update):
    loss.backward()
    if need_update:
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        slow.step()
for i, x in enumerate(torch.randn(8, 8, 4)):
    last = args.clip == "last"
    need_update = last or (i + 1) % args.window == 0
    if hasattr(model, "no_sync") and not need_update:
        with model.no_sync():
            backward(model(x).mean(), need_update)
    else:
        backward(model(x).mean(), need_update)
""",
    "last batch of the loader": MODEL
    + """
loader = DataLoader(torch.randn(60, 4), batch_size=8, sampler=DistributedSampler(range(60)))
for i, x in enumerate(loader):
    is_last = i + 1 == len(loader)
    sync = is_last or (i + 1) % 4 == 0
    with contextlib.nullcontext() if sync else model.no_sync():
        model(x).mean().backward()
    if sync:
        optimizer.step()
""",
    "tail": MODEL
    + """
loader = DataLoader(torch.randn(60, 4), batch_size=8, sampler=DistributedSampler(range(60)))
for i, x in enumerate(loader):
    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        model(x).mean().backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        optimizer.step()  # DDP105
""",
    "forward alone inside": MODEL
    + """
for step in range(3):
    for i in range(4):
        if i < 3:
            with model.no_sync():
                loss = model(torch.randn(8, 4)).mean()
        else:
            loss = model(torch.randn(8, 4)).mean()
        loss.backward()
    optimizer.step()
""",
    "backward alone inside": MODEL
    + """
for step in range(3):
    for i in range(4):
        loss = model(torch.randn(8, 4)).mean()
        if i < 3:
            with model.no_sync():  # DDP113
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
""",
    "switch of the loop's own flags": MODEL
    + """
flags = [False, False, True]
for step in range(3):
    for sync in flags:
        model.require_backward_grad_sync = sync
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
}

# ---- sharding

SHARDS = {
    "stride": "data = torch.randn(64, 4)[rank::world_size]\ntrain(model, DataLoader(TensorDataset(data), batch_size=8))\n",
    "numpy": "ids = np.arange(rank, 64, world_size)\ntrain(model, DataLoader(torch.utils.data.Subset(dataset, ids), batch_size=8))\n",
    "array split": "ids = np.array_split(np.arange(64), world_size)[rank]\ntrain(model, DataLoader(torch.utils.data.Subset(dataset, ids)))\n",
    "library's shard": """
from datasets import load_dataset
data = load_dataset("rows")["train"].shard(num_shards=world_size, index=rank)
train(model, DataLoader(data, batch_size=8))
""",
    "library's split by node": """
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
data = split_dataset_by_node(load_dataset("rows")["train"], rank=rank, world_size=world_size)
train(model, DataLoader(data, batch_size=8))
""",
    "list of files": """
class Rows(Dataset):
    def __init__(self, files):
        self.files = files
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        return torch.load(self.files[index])
files = sorted(os.listdir("data"))
files = [name for i, name in enumerate(files) if i % world_size == rank]
train(model, DataLoader(Rows(files), batch_size=8))
""",
    "sampler that takes the rank": """
class Strided(torch.utils.data.Sampler):
    def __init__(self, data, rank, world):
        self.data, self.offset, self.step = data, rank, world
    def __iter__(self):
        return iter(range(self.offset, len(self.data), self.step))
    def __len__(self):
        return len(self.data) // self.step
train(model, DataLoader(dataset, sampler=Strided(dataset, rank, world_size)))
""",
    "sampler of a library": """
from timm.data.distributed_sampler import RepeatAugSampler
train(model, DataLoader(dataset, sampler=RepeatAugSampler(dataset)))
""",
    "conditional sampler": """
sampler = DistributedSampler(dataset) if world_size > 1 else None
train(model, DataLoader(dataset, shuffle=(sampler is None), sampler=sampler))
""",
    "sampler of an option": """
args = argparse.Namespace(distributed=True)
if args.distributed:
    sampler = DistributedSampler(dataset)
else:
    sampler = torch.utils.data.RandomSampler(dataset)
train(model, DataLoader(dataset, sampler=torch.utils.data.BatchSampler(sampler, 8, True)))
""",
    "each rank's own seed and draws": """
class Draws(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, _):
        return torch.randn(4)
torch.manual_seed(rank)
train(model, DataLoader(Draws(), batch_size=8))
""",
    "whole": "train(model, DataLoader(dataset, batch_size=8, shuffle=True))  # DDP301\n",
    "whole, made by a function": """
def get_loader(data, batch_size):
    kwargs = {"batch_size": batch_size, "shuffle": True}
    return DataLoader(data, **kwargs)  # DDP301
train(model, get_loader(dataset, 8))
""",
    "whole, in order": "train(model, DataLoader(dataset))  # DDP301\n",
    "subset of all": "part = torch.utils.data.Subset(dataset, range(32))\ntrain(model, DataLoader(part, shuffle=True))  # DDP301\n",
}

# ---- epochs

EPOCHS = {
    "never": "sampler = DistributedSampler(dataset)  # DDP302\ntrain(model, DataLoader(dataset, sampler=sampler), 3)\n",
    "inside the callee": """
def one_epoch(loader, epoch):
    loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    one_epoch(loader, epoch)
""",
    "and": """
sampler = DistributedSampler(dataset) if world_size > 1 else None
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    sampler and sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "hasattr": """
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    if hasattr(loader, "sampler") and isinstance(loader.sampler, DistributedSampler):
        loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "method of the data": """
class Data:
    def __init__(self):
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, sampler=self.sampler)
    def set_epoch(self, epoch):
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
data = {"train": Data()}
for epoch in range(3):
    data["train"].set_epoch(epoch)
    for (x,) in data["train"].loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "getattr": """
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    getattr(loader.sampler, "set_epoch", lambda _: None)(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "while": """
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
epoch = 0
while epoch < 3:
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    epoch += 1
""",
    "endless loader": """
def forever(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1
batches = forever(DataLoader(dataset, sampler=DistributedSampler(dataset)))
for step in range(20):
    (x,) = next(batches)
    model(x).mean().backward()
    optimizer.step()
""",
    "validation": """
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
validation = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    with torch.no_grad():
        for (x,) in validation:
            model(x)
""",
    "single pass": "train(model, DataLoader(dataset, sampler=DistributedSampler(dataset)), 1)\n",
    "no shuffle": "train(model, DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False)), 3)\n",
    "always zero": """
sampler = DistributedSampler(dataset)  # DDP302
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(0)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
}

# ---- wrappers

WRAPPERS = {
    "an object that was made is there": """
class Scaler:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cpu")
    def state_dict(self):
        return self.scaler.state_dict()
def save(model, scaler, path):
    if scaler is not None:
        torch.save((model.module.state_dict(), scaler.state_dict()), path)
    else:
        model.save_checkpoint(path)
if rank == 0:
    save(model, Scaler(), "a.pt")
""",
    "helper of the project": """
def smart_ddp(module):
    return DDP(module, find_unused_parameters=True)
net = smart_ddp(torch.nn.Linear(4, 1))
loss = net.module(torch.randn(8, 4)).mean()
loss.backward()  # DDP101
optimizer.step()
""",
    "conditional wrap, raw name for saving": """
net = torch.nn.Linear(4, 1)
without_ddp = net
if world_size > 1:
    net = DDP(net)
    without_ddp = net.module
loss = net(torch.randn(8, 4)).mean()
loss.backward()
if rank == 0:
    torch.save(without_ddp.state_dict(), "net.pt")
""",
    "raw model for the loss": """
net = torch.nn.Linear(4, 1)
if world_size > 1:
    net = DDP(net)
raw_model = net.module if world_size > 1 else net
loss = raw_model(torch.randn(8, 4)).mean()
loss.backward()  # DDP101
optimizer.step()
""",
    "diffusion": """
class Diffusion:
    def training_losses(self, net, x):
        return (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
diffusion = Diffusion()
loss = diffusion.training_losses(model, torch.randn(8, 4))
loss.backward()
optimizer.step()
""",
    "partial": """
compute = functools.partial(lambda net, x: net(x).mean(), model)
compute(torch.randn(8, 4)).backward()
optimizer.step()
""",
    "rank 0 evaluates with BatchNorm, then all meet": """
net = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
net(torch.randn(8, 4)).mean().backward()
optimizer.step()
if rank == 0:
    with torch.no_grad():
        net(torch.randn(8, 4))  # DDP401
dist.barrier()
""",
    "rank 0 evaluates without buffers": """
net = DDP(torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 1)))
for step in range(3):
    net(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if rank == 0:
        net.eval()
        net(torch.randn(8, 4))
        net.train()
    dist.barrier()
""",
    "method on the wrapper": """
class Net(torch.nn.Module):
    def forward(self, x):
        return x
    def describe(self):
        return "net"
net = DDP(Net())
if rank == 0:
    print(net.describe())  # DDP115
print(net.module.describe())
""",
    "method of what may be inside": """
class Net(torch.nn.Module):
    def forward(self, x):
        return x
    def describe(self):
        return "net"
net = Net()
args = argparse.Namespace(n_gpus=int(sys.argv[1]))
if args.n_gpus > 1:
    net = DDP(net)
inner = net if args.n_gpus == 1 else net.module
print(inner.describe())
if args.n_gpus == 1:
    print(net.describe())
""",
}

# ---- arithmetic of the accumulation

ARITHMETIC = {
    "rounded down": "accumulation_steps = 6 // world_size  # DDP502\n",
    "checked": "accumulation_steps = 6\nassert accumulation_steps % world_size == 0\naccumulation_steps //= world_size\n",
    "start of a search": "global_batch_size = 6\nbatch_avg = global_batch_size // world_size\nprint(range(batch_avg - 2, batch_avg + 2))\n",
}

# ---- devices

DEVICES = {
    "rank": "torch.cuda.set_device(rank)  # DDP601\n",
    "local rank": "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n",
    "remainder": "torch.cuda.set_device(rank % torch.cuda.device_count())\n",
    "SLURM": "torch.cuda.set_device(int(os.environ['SLURM_LOCALID']))\n",
    "SLURM rank": "torch.cuda.set_device(int(os.environ['SLURM_PROCID']))  # DDP601\n",
    "device object": "device = torch.device('cuda', dist.get_rank())  # DDP601\nmodel.to(device)\n",
    "helper": """
def device_of(r):
    return f"cuda:{r}"
torch.cuda.set_device(device_of(dist.get_rank()))  # DDP601
""",
    "node rank times devices": """
def worker(local, ngpus, node_rank):
    r = node_rank * ngpus + local
    torch.cuda.set_device(local)
    DDP(torch.nn.Linear(4, 1).cuda(local), device_ids=[local])
worker(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count(), int(os.environ["GROUP_RANK"]))
""",
    "own view of each process": "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\ntorch.cuda.set_device(0)\n",
}
