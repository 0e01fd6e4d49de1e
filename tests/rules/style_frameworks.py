"""Programs under frameworks that wrap, shard, accumulate and wait by themselves."""

from __future__ import annotations

from style_parts import INIT

# ---- frameworks: whole programs

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
LIGHTNING = """
import lightning as L
class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
FABRIC = """
from lightning.fabric import Fabric
fabric = Fabric(devices=2)
fabric.launch()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True))
"""
FSDP2 = (
    INIT
    + """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)
FRAMEWORKS = {
    "Accelerate": ACCELERATE
    + """
for epoch in range(3):
    for (x,) in loader:
        with accelerator.accumulate(model):
            loss = model(x).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "net.pt")
""",
    "Accelerate, rank 0 waits": ACCELERATE
    + """
if accelerator.is_main_process:
    accelerator.wait_for_everyone()  # DDP202
""",
    "Accelerate, rank 0 gathers": ACCELERATE
    + """
def report(accelerator, loss):
    if accelerator.is_local_main_process:
        print(accelerator.gather(loss))  # DDP202
report(accelerator, torch.ones(1))
""",
    "Accelerate, rank 0 gathers metrics": ACCELERATE
    + """
if not accelerator.is_main_process:
    sys.exit(1)
print(accelerator.gather_for_metrics(torch.ones(1)))  # DDP202
""",
    "Accelerate, main process first": ACCELERATE
    + """
with accelerator.main_process_first():
    rows = list(range(4))
if accelerator.is_main_process:
    accelerator.print(rows)
""",
    "Accelerate, mean of all": ACCELERATE
    + """
for (x,) in loader:
    loss = model(x).mean()
    mean = accelerator.gather(loss).mean().item()
    if not math.isfinite(mean):
        break
    accelerator.backward(loss)
    optimizer.step()
""",
    "gather of a tensor is no collective": INIT
    + """
if rank == 0:
    print(torch.ones(4).gather(0, torch.tensor([0])))
""",
    "Lightning": LIGHTNING
    + """
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).mean()
        self.log("loss", loss, sync_dist=True)
        if self.global_rank == 0:
            self.print(loss)
        return loss
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(64, 4)), shuffle=True)
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, logged on rank 0": LIGHTNING
    + """
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).mean()
        if self.trainer.is_global_zero:
            self.log("loss", loss, on_epoch=True, sync_dist=True)  # DDP202
        return loss
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, early return": LIGHTNING
    + """
    def on_validation_epoch_end(self):
        if self.global_rank != 0:
            return
        self.log_dict({"x": 1.0}, sync_dist=True)  # DDP202
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, gathers on rank 0": LIGHTNING
    + """
    def on_validation_epoch_end(self):
        if self.global_rank == 0:
            self.all_gather(torch.ones(1))  # DDP202
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, rank_zero_only": LIGHTNING
    + """
    @L.pytorch.utilities.rank_zero_only
    def report(self, value):
        self.log("x", value, rank_zero_only=True)
        print(value)
    def training_step(self, batch, index):
        self.report(1.0)
        return self.layer(batch[0]).mean()
L.Trainer(devices=2).fit(Line())
""",
    "log of another class": INIT
    + """
class Writer:
    def log(self, name, value, sync_dist=False):
        print(name, value)
if rank == 0:
    Writer().log("loss", 1.0, sync_dist=True)
""",
    "Fabric": FABRIC
    + """
for epoch in range(3):
    for index, (x,) in enumerate(loader):
        accumulating = (index + 1) % 4 != 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            fabric.backward(model(x).mean())
        if not accumulating:
            optimizer.step()
            optimizer.zero_grad()
    fabric.barrier()
    if fabric.is_global_zero:
        print(epoch)
""",
    "Fabric, rank 0 waits": FABRIC
    + """
if fabric.global_rank == 0:
    fabric.barrier()  # DDP202
""",
    "HF Trainer": """
from transformers import Trainer, TrainingArguments
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss = model(**inputs).loss
        if self.is_world_process_zero():
            print(loss.item())
        return loss
trainer = Own(model=torch.nn.Linear(4, 1), args=TrainingArguments("out"), train_dataset=TensorDataset(torch.randn(64, 4)))
trainer.train()
if trainer.args.process_index == 0:
    trainer.save_state()
""",
    "DeepSpeed": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
engine, optimizer, _, scheduler = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
loader = DataLoader(TensorDataset(torch.randn(64, 4)), sampler=DistributedSampler(range(64)))
for (x,) in loader:
    loss = engine(x).mean()
    engine.backward(loss)
    engine.step()
print(engine.module.weight, engine.global_steps)
""",
    "FSDP2, switch after the forward": FSDP2
    + """
for i in range(8):
    loss = model(torch.randn(8, 4)).mean()
    model.set_requires_gradient_sync((i + 1) % 4 == 0)
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "FSDP2, whole tensors on rank 0": FSDP2
    + """
if rank == 0:
    state = {name: p.full_tensor() for name, p in model.named_parameters()}  # DDP202
""",
    "FSDP2, whole tensors on all": FSDP2
    + """
state = {name: p.full_tensor() for name, p in model.named_parameters()}
if rank == 0:
    torch.save(state, "net.pt")
""",
    "FSDP1": INIT
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        model.clip_grad_norm_(1.0)
        optimizer.step()
""",
    "FSDP1, state on rank 0": INIT
    + """
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
    if rank == 0:
        state = model.state_dict()  # DDP202
""",
    "FSDP1, state on all": INIT
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
state = model.state_dict()
if rank == 0:
    torch.save(state, "net.pt")
""",
    "FSDP2, state on rank 0": FSDP2
    + """
from torch.distributed.checkpoint.state_dict import get_model_state_dict
if rank == 0:
    torch.save(get_model_state_dict(model), "net.pt")  # DDP202
""",
    "metric on rank 0": INIT
    + """
import torchmetrics
accuracy = torchmetrics.Accuracy(task="binary")
accuracy.update(torch.ones(4), torch.ones(4))
if rank == 0:
    print(accuracy.compute())  # DDP202
""",
    "metric that does not sync": INIT
    + """
from torchmetrics.classification import BinaryAccuracy
accuracy = BinaryAccuracy(sync_on_compute=False)
if rank == 0:
    print(accuracy.compute())
""",
    "metric on a device, on rank 0": INIT
    + """
import torchmetrics
accuracy = torchmetrics.Accuracy(task="binary").to("cpu")
accuracy.update(torch.ones(4), torch.ones(4))
if rank == 0:
    print(f"{accuracy.compute():.3f}")  # DDP202
""",
    "metrics on a device that do not sync": INIT
    + """
import torchmetrics
accuracy = torchmetrics.Accuracy(task="binary", sync_on_compute=False).to("cpu")
both = torchmetrics.MetricCollection([torchmetrics.MeanMetric(sync_on_compute=False)]).to("cpu")
if rank == 0:
    print(accuracy.compute(), both.compute())
""",
    "metric of the project": INIT
    + """
class Accuracy:
    def compute(self):
        return 1.0
if rank == 0:
    print(Accuracy().compute())
""",
    "DeepSpeed, rank 0 saves": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
if dist.get_rank() == 0:
    model_engine.save_checkpoint("out")  # DDP202
""",
    "DeepSpeed, all save": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
model_engine.save_checkpoint("out")
if dist.get_rank() == 0:
    torch.save(net.state_dict(), "net.pt")
""",
    "composable replicate": INIT
    + """
from torch.distributed._composable.replicate import replicate
model = replicate(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    model.set_requires_gradient_sync((i + 1) % 4 == 0)
    model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
print(model.weight, model.in_features)
""",
    "apex": INIT
    + """
from apex.parallel import DistributedDataParallel as ApexDDP
from apex import amp
net, optimizer = amp.initialize(torch.nn.Linear(4, 1), torch.optim.SGD([torch.zeros(1)], lr=0.1), opt_level="O1")
net = ApexDDP(net, delay_allreduce=True)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), sampler=DistributedSampler(range(64)))
for (x,) in loader:
    loss = net(x).mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
""",
    "DGL": INIT
    + """
import dgl
graph = dgl.rand_graph(64, 128)
sampler = dgl.dataloading.NeighborSampler([4])
loader = dgl.dataloading.DataLoader(graph, torch.arange(64), sampler, batch_size=8, shuffle=True, use_ddp=True)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for nodes, _, blocks in loader:
        model(blocks[0].srcdata["x"]).mean().backward()
        optimizer.step()
""",
}
