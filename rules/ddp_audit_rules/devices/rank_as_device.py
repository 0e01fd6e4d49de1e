"""DDP601: the global rank chooses the device, or the local rank the seed: both hold on one node only."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import DEVICE, EXCEPTION, START
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import DeviceChoice, Init, Program, Seed, Spawn
from ddp_audit.tree.values import Value, evaluate
from ddp_audit_rules.devices._device_numbers import device_number, on_accelerator, ranks_past_the_end
from ddp_audit_rules.devices._rank_devices import assigned, devices_by_rank, has_local_rank, seeds_by_local_rank, unused_local_ranks
from ddp_audit_rules.facts.one_node import TWO_NODES, one_node_only, starts_one_node

_WHAT = {
    "set_device": "as the current device",
    "device_ids": "in device_ids",
    "to": "as the device that tensors move to",
    "cuda": "as the device that tensors move to",
    "torch.device": "as the index of a torch.device",
}


class RankAsDevice(Rule):
    code = "DDP601"
    name = "rank-as-device"
    level = "error"
    summary = (
        "A device index that is the global rank (in `set_device`, `device_ids`, `.to`, `torch.device` or `cuda:N`), and, as a "
        "note, a seed that is made of the local rank."
    )
    rationale = (
        "Devices are numbered on each node from 0, ranks over all nodes. On one node the two agree. On the second node of "
        "a job the rank is past the last device: CUDA answers `invalid device ordinal` there, and the ranks of the first "
        "node wait for peers that are gone. A seed made of the local rank is the other way round: ranks in the same place "
        "of different nodes draw equal numbers."
    )
    exceptions = (
        "An index that comes out below the number of processes of a node on two nodes of two (the local rank, rank % "
        "device_count, what mp.spawn passes); scripts that run on one node only (a local address as the rendezvous, a process "
        "group with as many ranks as the node has devices, a CUDA_VISIBLE_DEVICES of each process's own); unknown indices."
    )
    trace_evidence = (
        "A rank of a second host takes its global rank as a device index, or fails to. A run on one host cannot show it."
    )
    source = (
        "torchrun numbers RANK over the job and LOCAL_RANK on the node (torch 2.13, distributed/elastic/agent/server/"
        "local_elastic_agent.py). The index is evaluated for each rank of two nodes of two. Without an accelerator the fault "
        "cannot show itself; the example falls back to the CPU."
    )
    fix_hint = (
        "choose the device by the local rank (`int(os.environ['LOCAL_RANK'])`) and keep the global rank for saving and logging"
    )
    outcome = "clean"
    bad = '''"""Trains a line. Each process uses the accelerator that has its rank as number, or the CPU without one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["RANK"])
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
try:
    model = torch.nn.Linear(4, 1)
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        model = model.cuda()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(8, 4, device=next(model.parameters()).device)
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace("has its rank as number", "has its local rank as number")
        .replace('rank = int(os.environ["RANK"])', 'local_rank = int(os.environ["LOCAL_RANK"])')
        .replace("set_device(rank)", "set_device(local_rank)")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if one_node_only(program):
            return
        found = devices_by_rank(program)
        for nodes in found:
            yield self._device(context, nodes)
        for path in sorted({nodes[0].span.path for nodes in found}):
            for name, span in unused_local_ranks(program, path):
                message = f"`{name}` is read here and never used; the devices of this file are chosen by the global rank instead."
                yield self.finding(span, message, "The local rank is the number that a device index wants.", severity="warning")
        for seeds in seeds_by_local_rank(program):
            yield self._seed(seeds)

    def _device(self, context: Context, nodes: list[DeviceChoice]) -> Finding:
        node = nodes[0]
        index = node.index
        rank = ranks_past_the_end(index)[0]
        number = device_number(on_accelerator(index), TWO_NODES[rank])
        name = index.text or "the index"
        message = (
            f"`{name}` is the global rank, used {_WHAT.get(node.via, 'as a device')}: on a second node of two "
            f"GPUs rank {rank} asks for device {number}."
        )
        explanation = (
            "On one node global and local rank agree, so the script runs there. On every further node each rank asks for a device "
            "that does not exist and ends with `invalid device ordinal`, while the ranks of the first node wait for it."
        )
        related = [Related(path, line, "rank", text) for path, line, text in assigned(context.program, node, name)]
        related += [*(Related(n.span.path, n.span.line, "device", n.text) for n in nodes[1:]), *guard_relations(node)]
        one_node = starts_one_node(context.launch)
        if one_node:
            explanation += " The launch at hand has one node, where it works."
        # Who starts the ranks, and on how many nodes, is not seen where no group is made.
        known = node.is_called and context.program.has(Init, Spawn)
        return self.finding(
            node.span, message, explanation, related=related, confidence="likely" if known else "possible",
            severity="info" if one_node else None, fix=self._local_rank(context.program, index),
        )  # fmt: skip

    def _local_rank(self, program: Program, index: Value) -> Fix | None:
        numbers = all(isinstance(evaluate(index, world), int) for world in TWO_NODES)
        return Fix("unsafe", self.fix_hint, "" if numbers else "text") if has_local_rank(program) else None

    def _seed(self, nodes: list[Seed]) -> Finding:
        node = nodes[0]
        shown = ", ".join(f"rank {world.rank}: {evaluate(node.seed, world)}" for world in TWO_NODES)
        message = (
            f"The seed `{node.seed.text or node.text}` is made of the local rank, so on several nodes the ranks in "
            f"the same place of each node draw equal random numbers ({shown} on two nodes of two)."
        )
        explanation = (
            "On one node every rank has its own seed. Equal streams matter where noise, dropout, augmentation or the order of the "
            "data come from them; they do not matter where the stream is only used before the weights are made equal."
        )
        related = [Related(n.span.path, n.span.line, "seed", n.text) for n in nodes[1:]] + guard_relations(node)
        return self.finding(node.span, message, explanation, related=related, severity="info")

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed on a host whose ranks do not begin at 0, where they took their global ranks as indices, or failed to.

        On the first host both numbers are equal, so that a run on one host cannot show it.
        """
        hosts: dict[object, list[int]] = {}
        for rank, event in run.events_of(START):
            hosts.setdefault(event.detail.get("host"), []).append(rank)
        later = {rank for ranks in hosts.values() if min(ranks) > 0 for rank in ranks}
        own = finding.span
        at = [(rank, event) for rank, event in run.events_at(own.path, own.line, own.end_line) if rank in later]
        known = [(rank, e.detail.get("index")) for rank, e in at if e.kind == DEVICE and isinstance(e.detail.get("index"), int)]
        failed = any(event.kind == EXCEPTION and "invalid device ordinal" in str(event.detail.get("text")) for _, event in at)
        if failed or (known and all(index == rank for rank, index in known)):
            return "confirmed"
        return "not-observed" if known else "not-exercised"
