"""Whole programs in the manner of well-known projects."""

from __future__ import annotations

from style_parts import DATA, INIT, MODEL

PROJECTS = {
    "collective in a forward": INIT
    + """
@torch.no_grad()
def concat_all_gather(tensor):
    out = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(out, tensor, async_op=False)
    return torch.cat(out, dim=0)
class MoCo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(4, 4)
        self.register_buffer("queue", torch.randn(4, 16))
    def forward(self, x):
        k = concat_all_gather(self.q(x))
        if k.shape[0] % 2 == 0:
            self.queue[:, :k.shape[0]] = k.T
        return self.q(x) @ self.queue
model = DDP(MoCo())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    model(torch.randn(2, 4)).mean().backward()
    optimizer.step()
""",
    "helpers of the MAE family": INIT
    + MODEL
    + """
import builtins
def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True
def get_world_size():
    if not is_dist_avail_and_initialized():
        return 1
    return dist.get_world_size()
def get_rank():
    if not is_dist_avail_and_initialized():
        return 0
    return dist.get_rank()
def is_main_process():
    return get_rank() == 0
def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)
def setup_for_distributed(is_master):
    builtin_print = builtins.print
    def print(*args, **kwargs):
        force = kwargs.pop('force', False)
        force = force or (get_world_size() > 8)
        if is_master or force:
            builtin_print(*args, **kwargs)
    builtins.print = print
setup_for_distributed(get_rank() == 0)
class SmoothedValue:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def synchronize_between_processes(self):
        if not is_dist_avail_and_initialized():
            return
        t = torch.tensor([self.count, self.total])
        dist.barrier()
        dist.all_reduce(t)
        t = t.tolist()
        self.count, self.total = int(t[0]), t[1]
def all_reduce_mean(x):
    world_size = get_world_size()
    if world_size > 1:
        x_reduce = torch.tensor(x)
        dist.all_reduce(x_reduce)
        x_reduce /= world_size
        return x_reduce.item()
    else:
        return x
meter = SmoothedValue()
for step in range(4):
    loss = model(torch.randn(8, 4)).mean()
    loss_value = loss.item()
    loss.backward()
    optimizer.step()
    loss_value_reduce = all_reduce_mean(loss_value)
    if not math.isfinite(loss_value_reduce):
        print("Loss is {}, stopping training".format(loss_value_reduce))
        break
    meter.total += loss_value
meter.synchronize_between_processes()
print("Averaged stats:", meter.total)
save_on_master({"model": model.module.state_dict()}, "x.pt")
""",
    "first on the local rank": INIT
    + """
LOCAL_RANK = int(os.getenv('LOCAL_RANK', -1))
RANK = int(os.getenv('RANK', -1))
@contextlib.contextmanager
def torch_distributed_zero_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier(device_ids=[local_rank])
    yield
    if local_rank == 0:
        dist.barrier(device_ids=[0])
with torch_distributed_zero_first(LOCAL_RANK):
    data = list(range(4))
with torch_distributed_zero_first(RANK):
    data = list(range(4))
""",
    "stop of rank 0 that is broadcast": INIT
    + MODEL
    + """
RANK = int(os.getenv('RANK', -1))
class EarlyStopping:
    def __init__(self, patience=30):
        self.best_fitness, self.best_epoch, self.patience = 0.0, 0, patience or float('inf')
    def __call__(self, epoch, fitness):
        if fitness >= self.best_fitness:
            self.best_epoch = epoch
            self.best_fitness = fitness
        return (epoch - self.best_epoch) >= self.patience
stopper, stop = EarlyStopping(), False
for epoch in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    if RANK in {-1, 0}:
        fi = loss.item()
        stop = stopper(epoch=epoch, fitness=fi)
    if RANK != -1:
        broadcast_list = [stop if RANK == 0 else None]
        dist.broadcast_object_list(broadcast_list, 0)
        if RANK != 0:
            stop = broadcast_list[0]
    if stop:
        break
""",
    "stop of rank 0 that is not": INIT
    + MODEL
    + """
RANK = int(os.getenv('RANK', -1))
stop = False
for epoch in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    if RANK in {-1, 0}:
        stop = loss.item() < 0.1
    if stop:
        break  # DDP203
""",
    "barriers around a cache": INIT
    + """
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
def load_and_cache(args, evaluate=False):
    if args.local_rank not in [-1, 0] and not evaluate:
        torch.distributed.barrier()
    features = [1, 2]
    if args.local_rank in [-1, 0]:
        torch.save(features, "cached")
    if args.local_rank == 0 and not evaluate:
        torch.distributed.barrier()
    return features
load_and_cache(args)
if args.local_rank not in [-1, 0]:
    torch.distributed.barrier()
model = torch.nn.Linear(4, 1)
if args.local_rank == 0:
    torch.distributed.barrier()
""",
    "helpers of a library": INIT
    + """
import detectron2.utils.comm as comm
comm.synchronize()
if comm.is_main_process():
    print("x")
results = comm.gather([1])
if not comm.is_main_process():
    sys.exit(0)
""",
    "stop as a tensor": INIT
    + MODEL
    + """
best = 0.0
for epoch in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    stop = torch.zeros(1)
    if rank == 0:
        val = loss.item()
        if val > best:
            best = val
        else:
            stop += 1
    dist.broadcast(stop, src=0)
    if stop.item() == 1:
        break
""",
    "progress bar on rank 0": INIT
    + DATA
    + MODEL
    + """
from tqdm import tqdm
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    pbar = tqdm(loader) if rank == 0 else loader
    for (x,) in pbar:
        model(x).mean().backward()
        optimizer.step()
""",
    "progress bar on rank 0, no epoch": INIT
    + DATA
    + MODEL
    + """
from tqdm import tqdm
sampler = DistributedSampler(dataset)  # DDP302
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    if rank == 0:
        loop = tqdm(enumerate(loader), total=len(loader))
    else:
        loop = enumerate(loader)
    for i, (x,) in loop:
        model(x).mean().backward()
        optimizer.step()
""",
    "evaluation in a conditional expression": INIT
    + """
net = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def validate(m):
    with torch.no_grad():
        return m(torch.randn(8, 4)).mean()  # DDP401
net(torch.randn(8, 4)).mean().backward()
optimizer.step()
acc = validate(net) if rank == 0 else None
dist.barrier()
""",
    "the ImageNet example": """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--world-size', default=-1, type=int)
    parser.add_argument('--rank', default=-1, type=int)
    parser.add_argument('--dist-url', default='tcp://224.66.41.62:23456', type=str)
    parser.add_argument('--gpu', default=None, type=int)
    parser.add_argument('--multiprocessing-distributed', action='store_true')
    args = parser.parse_args()
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    ngpus_per_node = torch.cuda.device_count()
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * args.world_size
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        main_worker(args.gpu, ngpus_per_node, args)
def main_worker(gpu, ngpus_per_node, args):
    args.gpu = gpu
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        if args.multiprocessing_distributed:
            args.rank = args.rank * ngpus_per_node + gpu
        dist.init_process_group(backend="nccl", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    model = torch.nn.Linear(4, 1)
    if args.distributed:
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
            model.cuda(args.gpu)
            args.batch_size = int(64 / ngpus_per_node)
            model = DDP(model, device_ids=[args.gpu])
        else:
            model.cuda()
            model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dataset = TensorDataset(torch.randn(64, 4))
    if args.distributed:
        train_sampler = DistributedSampler(dataset)
    else:
        train_sampler = None
    loader = DataLoader(dataset, batch_size=8, shuffle=(train_sampler is None), sampler=train_sampler)
    for epoch in range(3):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        for i, (x,) in enumerate(loader):
            loss = model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not args.multiprocessing_distributed or (args.multiprocessing_distributed and args.rank % ngpus_per_node == 0):
            torch.save(model.state_dict(), "x.pt")
if __name__ == '__main__':
    main()
""",
    "local rank by one of several launchers": INIT
    + """
args = argparse.Namespace()
if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:
    args.rank = int(os.environ["RANK"])
    args.world_size = int(os.environ['WORLD_SIZE'])
    args.gpu = int(os.environ['LOCAL_RANK'])
elif 'SLURM_PROCID' in os.environ:
    args.rank = int(os.environ['SLURM_PROCID'])
    args.gpu = args.rank % torch.cuda.device_count()
else:
    print('Not using distributed mode')
    sys.exit(0)
torch.cuda.set_device(args.gpu)
""",
    "join": INIT
    + MODEL
    + """
from torch.distributed.algorithms.join import Join
with Join([model]):
    for x in torch.randn(5 + rank, 8, 4):
        model(x).mean().backward()
        optimizer.step()
""",
    "closure of the step": INIT
    + MODEL
    + """
def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    return loss
for i in range(4):
    optimizer.step(closure)
""",
    "collective in a loss": INIT
    + MODEL
    + """
class DINOLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 1))
    def forward(self, s, t):
        self.update_center(t)
        return (s - self.center).pow(2).mean()
    @torch.no_grad()
    def update_center(self, t):
        c = torch.sum(t, dim=0, keepdim=True)
        dist.all_reduce(c)
        self.center = self.center * 0.9 + c * 0.1
loss_fn = DINOLoss()
student, teacher = model, torch.nn.Linear(4, 1)
teacher_without_ddp = teacher
for p in teacher.parameters():
    p.requires_grad = False
for it in range(4):
    x = torch.randn(8, 4)
    loss = loss_fn(student(x), teacher(x))
    if not math.isfinite(loss.item()):
        print("stopping", force=True)
        sys.exit(1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for q, k in zip(student.module.parameters(), teacher_without_ddp.parameters()):
            k.data.mul_(0.9).add_(q.detach().data, alpha=0.1)
""",
    "two networks": INIT
    + """
G, Dn = DDP(torch.nn.Linear(2, 4)), DDP(torch.nn.Linear(4, 1))
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(Dn.parameters())
for step in range(4):
    z = torch.randn(8, 2)
    fake = G(z)
    od.zero_grad()
    d_loss = Dn(torch.randn(8, 4)).mean() - Dn(fake.detach()).mean()
    d_loss.backward()
    od.step()
    og.zero_grad()
    g_loss = Dn(fake).mean()
    g_loss.backward()
    og.step()
""",
    "ranks in turn": INIT
    + """
for r in range(world_size):
    if r == rank:
        print("rank", r)
    dist.barrier()
""",
    "ranks in turn, barrier of one": INIT
    + """
for r in range(world_size):
    if r == rank:
        print("rank", r)
        dist.barrier()  # DDP201
""",
    "rank 0 downloads": INIT
    + """
if rank == 0:
    torch.hub.download_url_to_file("u", "f")
dist.barrier()
state = torch.load("f")
""",
    "value of rank 0 that is broadcast": INIT
    + MODEL
    + """
def evaluate():
    return torch.tensor(1.0)
score = evaluate() if rank == 0 else torch.zeros(())
dist.broadcast(score, src=0)
if score.item() > 0.5:
    dist.barrier()
""",
    "logger of rank 0": INIT
    + MODEL
    + """
class Logger:
    def log(self, d):
        print(d)
logger = Logger() if rank == 0 else None
for i in range(4):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    if logger:
        logger.log({"loss": loss.item()})
""",
    "logger of rank 0 that reduces": INIT
    + MODEL
    + """
class Logger:
    def log(self, loss):
        dist.all_reduce(loss)
        print(loss)
class Trainer:
    def __init__(self):
        self.logger = Logger() if rank == 0 else None
    def fit(self):
        for i in range(4):
            loss = model(torch.randn(8, 4)).mean()
            loss.backward()
            optimizer.step()
            if self.logger is not None:
                self.logger.log(loss.detach())  # DDP201
Trainer().fit()
""",
    "saver of rank 0, the others leave": INIT
    + MODEL
    + """
class Saver:
    pass
def make_saver():
    if rank != 0:
        return None
    return Saver()
saver = make_saver()
if saver is None:
    sys.exit(0)
dist.barrier()  # DDP201
""",
}
