"""Programs that nobody wrote: training scripts put together from what such scripts are made of, in any order and any nesting.

`program(random)` draws one. It can be parsed always, and makes sense seldom: names may be bound later, in another scope or never.
"""

from __future__ import annotations

import random

_HEAD = """\
import argparse, os, random, asyncio, functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
"""
_SETUP = (
    "dist.init_process_group('gloo')",
    "rank, world = dist.get_rank(), dist.get_world_size()",
    "data = TensorDataset(torch.randn(64, 4), torch.zeros(64))",
    "sampler = DistributedSampler(data)",
    "loader = DataLoader(data, batch_size=4, sampler=sampler)",
    "model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))",
    "ddp = DDP(model)",
    "opt = torch.optim.SGD(ddp.parameters(), lr=0.1)",
)
_NAMES = (
    "model",
    "ddp",
    "loss",
    "opt",
    "rank",
    "world",
    "loader",
    "sampler",
    "data",
    "x",
    "y",
    "step",
    "cfg",
    "group",
    "helper",
    "Net",
)
_ATOMS = (
    "rank", "world", "dist.get_rank()", "dist.get_world_size()", "int(os.environ['RANK'])", "os.environ.get('LOCAL_RANK', 0)", "x", "y",
    "loss.item()", "torch.ones(4)", "torch.zeros(rank + 1)", "model", "ddp", "ddp.module", "None", "True", "0", "1", "-3", "'gloo'", "[]",
    "random.random()", "data", "step", "step % 4 == 0", "torch.cuda.is_available()", "cfg.accum", "cfg['lr']", "self.inner", "args", "kwargs",
    "nn.Linear(4, 4)", "nn.BatchNorm1d(4)", "Net()", "helper", "float('nan')", "1e300 * 1e300", "''", "{}", "...", "__name__",
)  # fmt: skip
_CALLS = (
    "dist.barrier()", "dist.all_reduce({0})", "dist.all_reduce({0}, op=dist.ReduceOp.SUM, group={1})", "dist.broadcast({0}, src={1})",
    "dist.all_gather([{0}, {1}], {0})", "dist.reduce({0}, dst={1}, async_op=True).wait()", "dist.send({0}, {1})", "dist.recv({0}, src={1})",
    "dist.broadcast_object_list([{0}], src={1})", "dist.new_group([{0}, {1}])", "dist.init_process_group({0}, rank={1})",
    "dist.destroy_process_group()", "DDP({0})", "DDP({0}, device_ids=[{1}], find_unused_parameters={1})", "ddp({0})", "{0}({1})",
    "{0}.backward()", "opt.step()", "opt.zero_grad(set_to_none={0})", "torch.optim.SGD({0}.parameters(), lr={1})", "helper({0}, *{1})",
    "helper(**{0})", "DataLoader({0}, sampler={1}, shuffle=True)", "DistributedSampler({0}, num_replicas={1})", "sampler.set_epoch({0})",
    "torch.save({0}.state_dict(), {1})", "{0}.load_state_dict(torch.load({1}))", "torch.manual_seed({0})", "torch.cuda.set_device({0})",
    "{0}.to({1})", "{0}.cuda()", "print({0}, {1})", "setattr({0}, 'require_backward_grad_sync', {1})", "getattr({0}, {1})()",
    "nn.utils.clip_grad_norm_({0}.parameters(), {1})", "super().__init__({0})", "range({0})", "enumerate({0})", "zip({0}, {1})",
    "functools.partial(helper, {0})({1})", "asyncio.run(helper({0}))", "torch.multiprocessing.spawn({0}, nprocs={1})", "len({0})",
    "map(helper, {0})", "next(iter({0}))", "exec({0})", "sorted({0}, key={1})", "int({0})", "str({0}).format({1})", "exit({0})",
)  # fmt: skip
_TARGETS = (
    "{n}",
    "{n}",
    "{n}",
    "{n}.attr",
    "{n}['k']",
    "{n}, {m}",
    "({n}, *{m})",
    "[{n}, [{m}]]",
    "{n}.requires_grad",
    "self.{n}",
    "{n}[{m}:]",
)
_HEADS = (
    "if {e}:", "if rank == 0:", "if {e} and {e}:", "if (y := {e}):", "for {t} in {e}:", "for step in range({e}):", "while {e}:", "while True:",
    "with ddp.no_sync():", "with {e} as {t}, {e}:", "with torch.no_grad():", "with ddp.join():", "for x, y in loader:",
)  # fmt: skip
_PARAMETERS = ("", "x", "x, y=None", "*args", "x, /, y, *, step=rank", "*args, **kwargs", "model, rank: int = 0, *rest", "self, x")
_DECORATORS = (
    "@torch.no_grad()",
    "@functools.lru_cache",
    "@helper",
    "@helper(rank)",
    "@property",
    "@staticmethod",
    "@(lambda f: f)",
)
_PATTERNS = ("0", "[x, *_]", "{'a': y, **rest}", "Net(x=1)", "None | True", "(x, y) if rank", "str() as cfg", "-1", "_")


class Writer:
    """Draws a program line by line."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.left = random.randint(5, 45)  # statements

    def expression(self, depth: int = 0) -> str:
        """Any expression."""
        kind = self.random.randrange(16) if depth < 3 else 0
        inner = [self.expression(depth + 1) for _ in range(2)] if kind > 9 else []
        if kind <= 5:
            return self.random.choice(_ATOMS)
        if kind <= 9:
            return self.call(depth + 1)
        first, second = inner
        return self.random.choice(
            [
                f"({first} {self.random.choice(['+', '//', '%', '==', 'and', 'or', 'is not', 'in', '@', '**', '<'])} {second})",
                f"({first} if {second} else None)",
                f"[x for x in {first} if {second}]",
                f"{{x: y for x, y in {first}}}",
                f"(lambda x, *y: {first})",
                f"f'{{{self.random.choice(_NAMES)}!r:>{{world}}}}'",
                f"({first})[{second}]",
                f"({first}).attr",
                f"(y := {first})",
                f"(not {first})",
                f"any(x in {second} for x in {first})",
                f"[*({first}), {second}]",
            ]
        )

    def call(self, depth: int = 2) -> str:
        """A call of what training scripts call."""
        arguments = [f"({self.expression(depth)})" for _ in range(2)]
        return self.random.choice(_CALLS).format(*arguments)

    def target(self) -> str:
        """Something to bind."""
        return self.random.choice(_TARGETS).format(n=self.random.choice(_NAMES), m=self.random.choice(_NAMES))

    def simple(self, inside: frozenset[str]) -> str:
        """A statement of one line. `inside` tells what may stand here: loop, def, async."""
        choices = [
            self.expression(),
            self.call(),
            f"{self.target()} = {self.expression()}",
            f"{self.random.choice(_NAMES)} = {self.call()}",
            f"{self.random.choice(_NAMES)} {self.random.choice(['+=', '//=', '*=', '@='])} {self.expression()}",
            f"{self.random.choice(_NAMES)}: int = {self.expression()}",
            f"del {self.random.choice(_NAMES)}",
            f"assert {self.expression()}, {self.expression()}",
            "raise RuntimeError(rank) from None",
            "pass",
            f"from {self.random.choice(['.', '..pkg', 'train', 'helper'])} import {self.random.choice(_NAMES)}",
            *(["break", "continue"] if "loop" in inside else []),
            *([f"return {self.expression()}", f"yield {self.expression()}"] if "def" in inside else []),
            *([f"await {self.expression()}"] if "async" in inside else []),
        ]
        return self.random.choice(choices)

    def block(self, indent: str, inside: frozenset[str], depth: int) -> list[str]:
        """The lines of one to four statements."""
        lines: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            self.left -= 1
            deep = depth > 4 or self.left < 0
            kind = 0 if deep else self.random.randrange(14)
            lines += [indent + line for line in self.statement(kind, inside, depth)]
        return lines

    def statement(self, kind: int, inside: frozenset[str], depth: int) -> list[str]:
        """The lines of one statement."""
        name = self.random.choice(_NAMES)
        if kind <= 6:
            return [self.simple(inside)]
        if kind <= 9:
            head = self.random.choice(_HEADS).replace("{t}", self.target())
            while "{e}" in head:
                head = head.replace("{e}", self.expression(), 1)
            looped = inside | {"loop"} if head.startswith(("for", "while")) else inside
            lines = [head, *self.block("    ", looped, depth + 1)]
            if head.startswith("if") and self.random.random() < 0.3:
                lines += [f"elif {self.expression()}:", *self.block("    ", inside, depth + 1)]
            if not head.startswith("with") and self.random.random() < 0.4:
                lines += ["else:", *self.block("    ", inside, depth + 1)]
            return lines
        if kind == 10:
            lines = ["try:", *self.block("    ", inside, depth + 1)]
            handler = self.random.choice(["except Exception as error:", "except (RuntimeError, ValueError):", "except:"])
            ends = [handler, *self.block("    ", inside, depth + 1)] if self.random.random() < 0.8 else []
            if not ends or self.random.random() < 0.3:
                ends += ["finally:", *self.block("    ", inside - {"loop"}, depth + 1)]
            return lines + ends
        if kind == 11:
            cases = [f"    case {self.random.choice(_PATTERNS[:-1])}:", *self.block("        ", inside, depth + 1)]
            return [f"match {self.expression()}:", *cases, "    case _:", *self.block("        ", inside, depth + 1)]
        decorators = [self.random.choice(_DECORATORS)] if self.random.random() < 0.25 else []
        if kind == 12:
            base = self.random.choice(["nn.Module", "object", "DDP", "Net", "*kwargs", "torch.autograd.Function, metaclass=helper"])
            method = [f"    def {self.random.choice(['__init__', 'forward', '__call__', name])}(self, *args):"]
            return [*decorators, f"class {name}({base}):", *method, *self.block("        ", frozenset({"def"}), depth + 2)]
        is_async = self.random.random() < 0.2
        scope = [f"    {self.random.choice(['global', 'nonlocal'] if 'def' in inside else ['global'])} counter"]
        return [
            *decorators,
            f"{'async ' * is_async}def {name}({self.random.choice(_PARAMETERS)}):",
            *(scope if self.random.random() < 0.2 and "def" not in inside else []),
            *self.block("    ", frozenset({"def", "async"} if is_async else {"def"}), depth + 1),
        ]


def program(random: random.Random) -> str:
    """A program that can be parsed."""
    writer = Writer(random)
    lines = [line for line in _SETUP if random.random() < 0.85]
    while writer.left > 0:
        lines += writer.block("", frozenset(), 0)
    if random.random() < 0.3:
        lines += ["if __name__ == '__main__':", *writer.block("    ", frozenset(), 1)]
    return _HEAD + "\n".join(lines) + "\n"
