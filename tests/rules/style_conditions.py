"""Conditions as real code writes them: who is rank 0, what is the same on all ranks, when a batch is left out."""

from __future__ import annotations

from style_parts import MODEL

# ---- who is rank 0: each source of the rank guards a collective of one rank

RANK_SOURCES = {
    "environment": "if int(os.environ['RANK']) == 0:\n    dist.barrier()  # DDP201\n",
    "environment with a default": "r = int(os.environ.get('RANK', '0'))\nif not r:\n    dist.barrier()  # DDP201\n",
    "getenv compared as text": "if os.getenv('RANK') == '0':\n    dist.barrier()  # DDP201\n",
    "SLURM": "proc_id = int(os.environ['SLURM_PROCID'])\nif proc_id == 0:\n    dist.barrier()  # DDP201\n",
    "OMPI": "r = int(os.environ['OMPI_COMM_WORLD_RANK'])\nif r < 1:\n    dist.barrier()  # DDP201\n",
    "argparse": """
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
args = parser.parse_args()
args.rank = dist.get_rank()
if args.rank == 0:
    dist.barrier()  # DDP201
""",
    "legacy argument": """
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
if args.local_rank in [-1, 0]:
    dist.barrier()  # DDP201
""",
    "helper with a fallback": """
def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()
def is_main_process():
    return get_rank() == 0
if is_main_process():
    dist.barrier()  # DDP201
""",
    "helper with arguments": """
def is_primary(args, local=False):
    return args.local_rank == 0 if local else args.rank == 0
args = argparse.Namespace(rank=dist.get_rank(), local_rank=int(os.environ["LOCAL_RANK"]))
if is_primary(args):
    dist.barrier()  # DDP201
""",
    "property of a class": """
class State:
    def __init__(self):
        self.process_index = dist.get_rank()
    @property
    def is_main_process(self):
        return self.process_index == 0
state = State()
if state.is_main_process:
    dist.barrier()  # DDP201
""",
    "dictionary": """
setup = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
if setup["rank"] == 0:
    dist.barrier()  # DDP201
""",
    "returned with others": """
def init():
    return dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
r, w, local = init()
if r == 0:
    dist.barrier()  # DDP201
""",
    "device mesh": """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
if mesh.get_rank() == 0:
    dist.barrier()  # DDP201
""",
    "context manager that yields it": """
@contextlib.contextmanager
def sync_workers():
    yield dist.get_rank()
with sync_workers() as worker:
    if worker == 0:
        dist.barrier()  # DDP201
""",
    "compound": "args = argparse.Namespace(save=True)\nif rank == 0 and args.save:\n    dist.barrier()  # DDP201\n",
    "compound by or": "if rank == 0 or rank == 1 and world_size > 2:\n    dist.barrier()  # DDP201\n",
    "membership": "if rank in {-1, 0}:\n    dist.barrier()  # DDP201\n",
    "at most": "if rank <= 0:\n    dist.barrier()  # DDP201\n",
    "remainder": "if rank % 2 == 0:\n    dist.barrier()  # DDP201\n",
    "is": "if rank is 0:\n    dist.barrier()  # DDP201\n",
    "object of rank 0 that a library made": """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs") if rank == 0 else None
if writer is not None:
    dist.barrier()  # DDP201
""",
    "object of rank 0 by an if": """
class Saver:
    pass
saver = None
if rank == 0:
    saver = Saver()
if saver:
    dist.barrier()  # DDP201
""",
    "flag of a configuration object": """
from dataclasses import dataclass
@dataclass
class Config:
    rank: int
    save: bool = True
    @property
    def master(self):
        return self.rank == 0
config = Config(rank=dist.get_rank())
if config.master and config.save:
    dist.barrier()  # DDP201
""",
    "decorator with arguments": """
def on_rank(number):
    def decorate(function):
        @functools.wraps(function)
        def inner(*args):
            if dist.get_rank() == number:
                return function(*args)
        return inner
    return decorate
@on_rank(0)
def report():
    dist.barrier()
report()  # DDP201
""",
    "continue in a loop": """
for step in range(3):
    if rank != 0:
        continue
    dist.barrier()  # DDP201
""",
    "lambda": "main = lambda: dist.get_rank() == 0\nif main():\n    dist.barrier()  # DDP201\n",
    "match": "match rank:\n    case 0:\n        print('first')\n    case _:\n        print('other')\ndist.barrier()\n",
}

# ---- conditions that are the same on all ranks

UNIFORM = {
    "return of the others where it is not sharded": """
def evaluate(args):
    sharded = len(args) > 1 and args[0]
    main = rank == 0
    if not sharded and not main:
        return
    signal = torch.zeros(1)
    while True:
        if sharded:
            dist.broadcast(signal, src=0)
            if signal.item() == 0:
                break
evaluate(sys.argv)
""",
    "flag by environment": "if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n    dist.barrier()\n",
    "flag by rank": "ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    dist.barrier()\n",
    "flag by local rank": "if int(os.environ.get('LOCAL_RANK', -1)) >= 0:\n    dist.barrier()\n",
    "flag by size": "if int(os.environ.get('WORLD_SIZE', 1)) > 1:\n    dist.barrier()\n",
    "flag of an option": """
parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
parser.add_argument("--num_gpus", type=int, default=2)
args = parser.parse_args()
if args.distributed or args.num_gpus > 1:
    dist.barrier()
""",
    "flag of a nested setting": """
hparams = {"distributed_run": True}
if hparams["distributed_run"]:
    dist.barrier()
""",
    "always": "if True:  # args.distributed\n    dist.barrier()\n",
    "helper": """
def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True
if is_dist_avail_and_initialized():
    dist.barrier()
""",
    "early return of a helper": """
def synchronize():
    if not dist.is_available():
        return
    if not dist.is_initialized():
        return
    if dist.get_world_size() == 1:
        return
    dist.barrier()
synchronize()
""",
    "both arms": "if rank == 0:\n    print('first')\n    dist.barrier()\nelse:\n    dist.barrier()\n",
    "first and then the others": """
def first(function):
    if rank != 0:
        dist.barrier()
    result = function()
    if rank == 0:
        dist.barrier()
    return result
first(int)
""",
    "same function in both arms": """
def evaluate(loud):
    value = torch.ones(1)
    dist.all_reduce(value)
    return value
if rank == 0:
    evaluate(True)
else:
    evaluate(False)
""",
    "conditional expression, then broadcast": """
name = [time.strftime("%H%M") if rank == 0 else None]
dist.broadcast_object_list(name, src=0)
if name[0] == "0000":
    dist.barrier()
""",
    "world of one": "if rank == 0 and world_size == 1:\n    dist.barrier()\n",
    "group of the ranks": """
group = dist.new_group([0, 1])
if rank in (0, 1):
    dist.barrier(group)
""",
    "seed and device by rank": "torch.manual_seed(rank)\nbackend = 'gloo' if rank >= 0 else 'mpi'\nif backend == 'gloo':\n    dist.barrier()\n",
    "rank of a matrix": """
class Adapter(torch.nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        self.rank = rank
        if rank > 0:
            dist.barrier()
Adapter(8)
""",
    "reduced flag": """
stop = torch.tensor(float(random.random() > 0.9))
dist.all_reduce(stop, op=dist.ReduceOp.MAX)
if stop.item() > 0:
    dist.barrier()
""",
    "gathered": """
counts = [None] * world_size
dist.all_gather_object(counts, random.random())
if max(counts) > 0.5:
    dist.barrier()
""",
    "help of a library that reduces": """
def reduce_tensor(tensor, n):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= n
    return rt
value = reduce_tensor(torch.rand(1), world_size)
if value.item() > 0.5:
    dist.barrier()
""",
    "kind of the data": """
def send(data):
    if isinstance(data, dict):
        return {k: send(v) for k, v in data.items()}
    dist.all_reduce(data)
    return data
for x in DataLoader(torch.randn(8, 4), batch_size=2):
    send(x)
""",
}

# ---- batches left out, loops left

EXITS = {
    "nan": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if torch.isnan(loss):
        continue  # DDP203
    loss.backward()
    optimizer.step()
""",
    "nan after a reduce": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    if torch.isnan(shown):
        continue
    loss.backward()
    optimizer.step()
""",
    "nan through a function that reduces": MODEL
    + """
def average(value):
    value = value.clone().detach()
    dist.all_reduce(value)
    return value.item() / world_size
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(average(loss)):
        sys.exit(0)
    loss.backward()
    optimizer.step()
""",
    "not finite by a float": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss_value = loss.item()
    if not math.isfinite(loss_value):
        continue  # DDP203
    loss.backward()
    optimizer.step()
""",
    "raise ends the job": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(loss.item()):
        raise RuntimeError("loss")
    loss.backward()
    optimizer.step()
""",
    "exit with a failure ends the job": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(loss.item()):
        sys.exit(1)
    loss.backward()
    optimizer.step()
""",
    "reduced by map": MODEL
    + """
def reduce_tensor(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total / world_size
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    first, second = map(reduce_tensor, (loss.detach(), loss.detach() + 1))
    best = max(map(lambda value: value.item(), [first, second]))
    if best < 0.1:
        break
    loss.backward()
    optimizer.step()
""",
    "reduced by a library": MODEL
    + """
from elsewhere import reduce_dict
for step in range(9):
    losses = {"square": model(torch.randn(8, 4)).pow(2).mean()}
    if not math.isfinite(sum(reduce_dict(losses).values())):
        break
    losses["square"].backward()
    optimizer.step()
""",
    "whether there is a value": MODEL
    + """
class Timer:
    measured = None
    def click(self):
        self.measured = time.time()
timer = Timer()
for step in range(9):
    if timer.measured is None:
        timer.click()
        continue
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    timer.click()
""",
    "scaler": MODEL
    + """
scaler = torch.amp.GradScaler("cpu")
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        optimizer.zero_grad()
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "steps": MODEL
    + """
args = argparse.Namespace(max_steps=5, start=1)
global_step = 0
while True:
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    global_step += 1
    if global_step < args.start:
        continue
    if global_step >= args.max_steps:
        break
""",
    "wall clock": MODEL
    + """
start = time.time()
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if time.time() - start > 60:
        break  # DDP203
""",
    "flag file": MODEL
    + """
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if rank == 0 and os.path.exists("stop"):
        break  # DDP203
""",
    "lr": MODEL
    + """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    scheduler.step()
    lr = optimizer.param_groups[0]["lr"]
    if lr < 1e-6:
        break
""",
    "empty batch": MODEL
    + """
for batch in DataLoader(torch.randn(64, 4), batch_size=8, sampler=DistributedSampler(range(64))):
    if (batch > 3).sum() == 0:
        continue  # DDP203
    model(batch).mean().backward()
    optimizer.step()
""",
}
