"""The example of the documentation with one thing changed at a time, and what is right to say of each."""

from __future__ import annotations

from dataclasses import dataclass

WRAP = "model = DDP(torch.nn.Embedding(50_000, 64).cuda())\n"
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)\n"
BACKWARD = "        (model(rows).square().mean() / gradient_accumulation_steps).backward()\n"
STEP = "    optimizer.step()\n"
ZERO = "    optimizer.zero_grad()\n"
END = "dist.destroy_process_group()"
DRAWN = "        starts = torch.randint(len(data) - block_size, (batch_size,))\n"
ASSERT = "assert gradient_accumulation_steps % world_size == 0\n"
DIVIDED = "gradient_accumulation_steps //= world_size\n"
SEED = "torch.manual_seed(1337 + dist.get_rank())\n"
DEVICE = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
MICRO = "    for micro_step in range(gradient_accumulation_steps):\n"
SGD = (OPTIMIZER, "optimizer = torch.optim.SGD(model.parameters(), lr=6e-4)\n")
LOSS = "        loss = model(rows).square().mean() / gradient_accumulation_steps\n"


@dataclass(frozen=True)
class Variation:
    """Edits of `train.py` as pairs of texts, and the errors and warnings that they bring: codes with the text of their lines."""

    name: str
    edits: tuple[tuple[str, str], ...]
    brings: tuple[tuple[str, str], ...] = ()
    takes: tuple[str, ...] = ()  # codes of the example that are right no more


def one(name: str, old: str, new: str, *brings: tuple[str, str], takes: tuple[str, ...] = ()) -> Variation:
    return Variation(name, ((old, new),), brings, takes)


VARIATIONS = [
    one("one seed for all ranks", SEED, "torch.manual_seed(1337)\n", ("DDP309", "torch.randint(len(data)")),
    one(
        "a generator with one seed",
        DRAWN,
        DRAWN.replace(")\n", ", generator=own)\n").replace(
            "        starts", "        own = torch.Generator().manual_seed(step)\n        starts"
        ),
    ),
    one("seed by the world size", SEED, "torch.manual_seed(1337 + world_size)\n", ("DDP309", "torch.randint(len(data)")),
    one("check with modulo and raise", ASSERT, "if gradient_accumulation_steps % world_size > 0:\n    raise SystemExit('no')\n"),
    one("no check", ASSERT, "", ("DDP502", "//= world_size"), takes=("DDP505",)),
    one(
        "rounded up",
        ASSERT + DIVIDED,
        "gradient_accumulation_steps = -(-gradient_accumulation_steps // world_size)\n",
        takes=("DDP505",),
    ),
    one(
        "optimizer before the wrap",
        WRAP + OPTIMIZER,
        "net = torch.nn.Embedding(50_000, 64).cuda()\noptimizer = torch.optim.AdamW(net.parameters(), lr=6e-4)\nmodel = DDP(net)\n",
    ),
    one("moved after the wrap", WRAP, "model = DDP(torch.nn.Embedding(50_000, 64))\nmodel.cuda()\n", ("DDP103", "model.cuda()")),
    one("the inner module trains", "model(rows).square", "model.module(rows).square", ("DDP101", ".backward()")),
    one("the rank as device", DEVICE, "torch.cuda.set_device(dist.get_rank())\n", ("DDP601", "set_device")),
    one("the rank modulo the devices", DEVICE, "torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())\n"),
    one(
        "reduced on rank 0",
        STEP,
        STEP + "    if dist.get_rank() == 0:\n        dist.all_reduce(torch.ones(1).cuda())\n",
        ("DDP201", "dist.all_reduce"),
    ),
    one(
        "a barrier now and then on one rank",
        STEP,
        STEP + "    if step % 10 == 0 and not dist.get_rank():\n        dist.barrier()\n",
        ("DDP201", "dist.barrier()"),
    ),
    one(
        "both arms reduce", STEP, STEP + "    if dist.get_rank() == 0:\n        dist.barrier()\n    else:\n        dist.barrier()\n"
    ),
    one(
        "leaves on its own loss",
        BACKWARD + STEP,
        LOSS + "        loss.backward()\n    if loss.item() < 0.1:\n        break\n" + STEP,
        ("DDP203", "break"),
    ),
    one(
        "leaves on the loss of all",
        BACKWARD + STEP,
        LOSS
        + "        loss.backward()\n    mean = loss.detach().clone()\n    dist.all_reduce(mean)\n    if mean.item() < 0.1:\n        break\n"
        + STEP,
    ),
    one("steps by rank", "range(100)", "range(100 - dist.get_rank())", ("DDP213", "for step in")),
    one("all ranks save", END, 'torch.save(model.module.state_dict(), "last.pt")\n' + END, ("DDP701", "torch.save")),
    one("rank 0 saves", END, 'if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), "last.pt")\n' + END),
    one(
        "no_sync on all but the first",
        BACKWARD,
        f"        with model.no_sync() if micro_step else contextlib.nullcontext():\n    {BACKWARD}",
        ("DDP105", "optimizer.step()"),
    ),
    one(
        "no_sync on all but the last",
        BACKWARD,
        f"        last = micro_step + 1 == gradient_accumulation_steps\n        with contextlib.nullcontext() if last else model.no_sync():\n    {BACKWARD}",
    ),
    one(
        "no_sync around the backward alone",
        BACKWARD,
        f"{LOSS}        with model.no_sync():\n            loss.backward()\n",
        ("DDP113", "no_sync"),
    ),
    one(
        "flag between forward and backward",
        BACKWARD,
        f"{LOSS}        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1\n        loss.backward()\n",
        ("DDP112", "require_backward"),
    ),
    one(
        "flag switched off for good",
        BACKWARD,
        f"{BACKWARD}        model.require_backward_grad_sync = False\n",
        ("DDP105", "optimizer.step()"),
    ),
    Variation("SGD, not divided", (SGD, (" / gradient_accumulation_steps)", ")")), (("DDP802", ".backward()"),)),
    Variation(
        "SGD, divided by the ranks too",
        (SGD, (" / gradient_accumulation_steps)", " / (gradient_accumulation_steps * world_size))")),
        (("DDP802", ".backward()"),),
    ),
    Variation(
        "SGD, divided by the total",
        (SGD, ("assert ", "total = gradient_accumulation_steps\nassert "), (" / gradient_accumulation_steps)", " / total)")),
        (("DDP802", ".backward()"),),
    ),
    one("weights drawn after the wrap", OPTIMIZER, "model.module.reset_parameters()\n" + OPTIMIZER, ("DDP111", "reset_parameters")),
    one(
        "weights loaded on rank 0",
        OPTIMIZER,
        'if dist.get_rank() == 0:\n    model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))\n' + OPTIMIZER,
        ("DDP111", "load_state_dict"),
    ),
    one(
        "weights loaded on all ranks",
        OPTIMIZER,
        'model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))\n' + OPTIMIZER,
    ),
    one(
        "a failing batch is skipped",
        BACKWARD,
        f"        try:\n    {BACKWARD}        except RuntimeError:\n            continue\n",
        ("DDP204", "except"),
    ),
    one("frozen after the wrap", OPTIMIZER, "model.module.weight.requires_grad = False\n" + OPTIMIZER, ("DDP104", "requires_grad")),
    one(
        "a head outside of the wrapper",
        OPTIMIZER,
        "head = torch.nn.Linear(64, 1).cuda()\noptimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=6e-4)\n",
        ("DDP102", "Linear(64, 1)"),
    ),
    one(
        "clipped in each micro-step",
        BACKWARD,
        f"{BACKWARD}        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        ("DDP804", "clip_grad_norm_"),
    ),
]
