"""More of the example with one thing changed at a time: who decides, who sends, who stops, in other words each time."""

from __future__ import annotations

from variations import BACKWARD, END, OPTIMIZER, SEED, SGD, STEP, WRAP, Variation, one

SET = "        model.require_backward_grad_sync = "
LAST = "micro_step + 1 == gradient_accumulation_steps"
BUFFERS = "model = DDP(torch.nn.Sequential(torch.nn.Embedding(50_000, 64), torch.nn.BatchNorm1d(block_size)).cuda())\n"
ONE = "torch.ones(1).cuda()"


def after_step(text: str) -> str:
    return STEP + "".join(f"    {line}\n" for line in text.split("\n"))


def before_wrap(text: str) -> str:
    return f"{text}\n{WRAP}"


MORE_VARIATIONS = [
    # Which micro-batches are reduced.
    one("the flag by rank", BACKWARD, f"{SET}{LAST} or dist.get_rank() > 0\n{BACKWARD}", ("DDP120", "require_backward")),
    one(
        "the flag of the last rank",
        BACKWARD,
        f"{SET}{LAST} if dist.get_rank() + 1 < world_size else True\n{BACKWARD}",
        ("DDP120", "require_backward"),
    ),
    one(
        "a block on even ranks",
        BACKWARD,
        f"        with model.no_sync() if not ({LAST}) and dist.get_rank() % 2 == 0 else contextlib.nullcontext():\n    {BACKWARD}",
        ("DDP120", "no_sync"),
    ),
    one("the flag by rank, equal on all", BACKWARD, f"{SET}{LAST} or dist.get_rank() < 0\n{BACKWARD}"),
    one("the flag on in each pass", BACKWARD, f"{SET}micro_step < gradient_accumulation_steps\n{BACKWARD}"),
    one(
        "the flag one ahead",
        BACKWARD,
        f"{BACKWARD}{SET}micro_step + 2 == gradient_accumulation_steps\n",
        ("DDP105", "optimizer.step()"),
    ),
    one("the flag one ahead, on before too", BACKWARD, f"{BACKWARD}{SET}micro_step + 2 >= gradient_accumulation_steps\n"),
    one(
        "a context that is chosen before",
        BACKWARD,
        f"        enter = contextlib.nullcontext if {LAST} else model.no_sync\n        with enter():\n    {BACKWARD}",
    ),
    one(
        "the static graph begins without reduction",
        WRAP,
        WRAP.replace(".cuda())", ".cuda(), static_graph=True)"),
    ),
    Variation(
        "a static graph whose first pass is not reduced",
        ((WRAP, WRAP.replace(".cuda())", ".cuda(), static_graph=True)")), (BACKWARD, f"{SET}{LAST}\n{BACKWARD}")),
        (("DDP107", "model(rows)"),),
    ),
    # Who sends.
    one(
        "the last rank sends",
        STEP,
        after_step(f"if dist.get_rank() == world_size - 1:\n    dist.broadcast({ONE}, world_size - 1)"),
        ("DDP201", "dist.broadcast"),
    ),
    one("a barrier behind an and", STEP, after_step("dist.get_rank() == 0 and dist.barrier()"), ("DDP201", "dist.barrier")),
    one(
        "a barrier in a conditional expression",
        STEP,
        after_step("dist.barrier() if dist.get_rank() else None"),
        ("DDP201", "dist.barrier"),
    ),
    one(
        "a barrier by the environment",
        STEP,
        after_step('if os.environ["RANK"] == "0":\n    dist.barrier()'),
        ("DDP201", "dist.barrier"),
    ),
    one(
        "a barrier of the first of each node",
        STEP,
        after_step('if int(os.environ["LOCAL_RANK"]) == 0:\n    dist.barrier()'),
        ("DDP201", "dist.barrier"),
    ),
    one("a barrier of all by the environment", STEP, after_step('if os.environ.get("RANK") is not None:\n    dist.barrier()')),
    one(
        "an early return",
        WRAP,
        before_wrap(f"def log():\n    if dist.get_rank():\n        return\n    dist.all_reduce({ONE})\nlog()"),
        ("DDP201", "dist.all_reduce"),
    ),
    one(
        "an early return of all",
        WRAP,
        before_wrap(f"def log():\n    if world_size == 1:\n        return\n    dist.all_reduce({ONE})\nlog()"),
    ),
    one(
        "in the opposite order",
        STEP,
        after_step(
            f"if dist.get_rank() == 0:\n    dist.barrier()\n    dist.all_reduce({ONE})\nelse:\n    dist.all_reduce({ONE})\n    dist.barrier()"
        ),
        ("DDP201", "dist.barrier"),
    ),
    one(
        "as many barriers as the rank",
        STEP,
        after_step("for _ in range(dist.get_rank()):\n    dist.barrier()"),
        ("DDP213", "for _"),
    ),
    one(
        "sizes by rank", STEP, after_step("dist.all_reduce(torch.ones(1 + dist.get_rank()).cuda())"), ("DDP207", "dist.all_reduce")
    ),
    one("values by rank", STEP, after_step("dist.all_reduce(torch.ones(1).cuda() * dist.get_rank())")),
    one(
        "a group of its members alone",
        WRAP,
        before_wrap("if dist.get_rank() < 2:\n    pair = dist.new_group([0, 1])"),
        ("DDP209", "new_group"),
    ),
    one("a group that all make", WRAP, before_wrap("pair = dist.new_group([0, 1])")),
    # Who stops.
    one("a break at a limit of each rank", STEP, after_step("if step > 50 + dist.get_rank():\n    break"), ("DDP203", "break")),
    one("a break at a limit of all ranks", STEP, after_step("if step > 50 + world_size:\n    break")),
    one(
        "a break that only rank 0 can take",
        STEP,
        after_step('if dist.get_rank() == 0 and os.path.exists("stop"):\n    break'),
        ("DDP203", "break"),
    ),
    one(
        "a break that rank 0 decides",
        STEP,
        after_step(
            'stop = torch.tensor(float(os.path.exists("stop"))).cuda()\ndist.broadcast(stop, 0)\nif stop.item():\n    break'
        ),
    ),
    one(
        "one rank ends in order",
        STEP,
        after_step("if dist.get_rank() == 1 and step == 50:\n    raise SystemExit"),
        ("DDP203", "SystemExit"),
    ),
    one(
        "one rank ends at once",
        STEP,
        after_step("if dist.get_rank() == 1 and step == 50:\n    os._exit(0)"),
        ("DDP203", "os._exit"),
    ),
    one("one rank fails", STEP, after_step('if dist.get_rank() == 1 and step == 50:\n    raise RuntimeError("full")')),
    one(
        "a micro-batch is left out for its content",
        BACKWARD,
        f"        if rows.float().mean() > 25_000:\n            continue\n{BACKWARD}",
        ("DDP203", "continue"),
    ),
    one(
        "a micro-batch is left out where all ranks say so",
        BACKWARD,
        f"        high = rows.float().mean()\n        dist.all_reduce(high)\n        if high > 25_000:\n            continue\n{BACKWARD}",
    ),
    # What the steps use.
    one(
        "clipped on rank 0",
        STEP,
        "    if dist.get_rank() == 0:\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + STEP,
        ("DDP116", "clip_grad_norm_"),
    ),
    one("clipped on all ranks", STEP, "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + STEP),
    one(
        "clipped alike in two arms",
        STEP,
        "    if dist.get_rank() == 0:\n        print(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))\n"
        "    else:\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + STEP,
    ),
    one(
        "weight decay by rank",
        OPTIMIZER,
        OPTIMIZER.replace("6e-4)", "6e-4, weight_decay=0.1 * dist.get_rank())"),
        ("DDP116", "AdamW"),
    ),
    one("weight decay by the number of ranks", OPTIMIZER, OPTIMIZER.replace("6e-4)", "6e-4, weight_decay=0.1 / world_size)")),
    Variation(
        "multiplied by the ranks",
        (SGD, (" / gradient_accumulation_steps)", " * world_size / gradient_accumulation_steps)")),
        (("DDP802", ".backward()"),),
    ),
    one("seeded by node", SEED, 'torch.manual_seed(1337 + int(os.environ["GROUP_RANK"]))\n', ("DDP309", "torch.randint(len(data)")),
    # What is evaluated and saved.
    Variation(
        "rank 0 evaluates, with buffers",
        (
            (WRAP, BUFFERS),
            (STEP, after_step("if dist.get_rank() == 0:\n    with torch.no_grad():\n        model(rows)\ndist.barrier()")),
        ),
        (("DDP401", "model(rows)"),),
    ),
    Variation(
        "rank 0 evaluates the module, with buffers",
        (
            (WRAP, BUFFERS),
            (STEP, after_step("if dist.get_rank() == 0:\n    with torch.no_grad():\n        model.module(rows)\ndist.barrier()")),
        ),
    ),
    one(
        "rank 0 evaluates, without buffers",
        STEP,
        after_step("if dist.get_rank() == 0:\n    with torch.no_grad():\n        model(rows)\ndist.barrier()"),
    ),
    one("a file for each rank", END, 'torch.save(model.module.state_dict(), f"last{dist.get_rank()}.pt")\n' + END),
    one("all ranks write a log", END, 'open("log.txt", "w").write(str(dist.get_rank()))\n' + END, ("DDP701", "log.txt")),
    one(
        "read while rank 0 writes",
        END,
        'if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), "last.pt")\n'
        'model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))\n' + END,
        ("DDP702", "torch.load"),
    ),
    one(
        "read when rank 0 has written",
        END,
        'if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), "last.pt")\ndist.barrier()\n'
        'model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))\n' + END,
    ),
    # How the model and the job are made.
    one(
        "compiled inside",
        WRAP,
        WRAP.replace("DDP(torch.nn.Embedding(50_000, 64).cuda())", "DDP(torch.compile(torch.nn.Embedding(50_000, 64).cuda()))"),
    ),
    one("a model of a size by rank", WRAP, WRAP.replace("64)", "64 + dist.get_rank())"), ("DDP213", "DDP(")),
    one(
        "wrapped on all ranks but one",
        WRAP,
        "model = torch.nn.Embedding(50_000, 64).cuda()\nif dist.get_rank():\n    model = DDP(model)\n",
        ("DDP201", "DDP(model)"),
    ),
    one(
        "wrapped where there are several",
        WRAP,
        "model = torch.nn.Embedding(50_000, 64).cuda()\nif world_size > 1:\n    model = DDP(model)\n",
    ),
    one("destroyed on rank 0", END, f"if dist.get_rank() == 0:\n    {END}"),
]
