"""The schedule of a well-known small GPT trainer: flag before forward, evaluation by rank 0 through the wrapper, a mask buffer."""

import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

eval_interval = 4
eval_iters = 3
max_iters = 5
gradient_accumulation_steps = 4
batch_size = 2
block_size = 8
vocab_size = 12
n_embd = 16
flash = False
for setting in os.environ.get("SCHEDULE", "").split():
    name, text = setting.split("=")
    globals()[name] = int(text)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.out = nn.Linear(n_embd, n_embd)
        if not flash:
            mask = torch.tril(torch.ones(block_size, block_size)).view(1, block_size, block_size)
            self.register_buffer("bias", mask)

    def forward(self, x):
        q, k, v = self.qkv(x).split(n_embd, dim=2)
        scores = q @ k.transpose(-2, -1)
        scores = scores.masked_fill(self.bias[:, : x.size(1), : x.size(1)] == 0, float("-inf"))
        return self.out(F.softmax(scores, dim=-1) @ v)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.h = nn.ModuleList([Attention() for _ in range(2)])
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.h:
            x = x + block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="gloo")
    ddp_rank = int(os.environ["RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    master_process = ddp_rank == 0
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process = True
    ddp_rank = 0
torch.manual_seed(1337 + ddp_rank)
ctx = nullcontext()


def get_batch(split):
    data = torch.randint(vocab_size, (batch_size, block_size + 1))
    return data[:, :-1], data[:, 1:]


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if ddp:
    model = DDP(model)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                _logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


X, Y = get_batch("train")
iter_num = 0
best_val_loss = 1e9
raw_model = model.module if ddp else model
while True:
    if iter_num % eval_interval == 0 and master_process:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > max_iters:
        break

if ddp:
    destroy_process_group()
