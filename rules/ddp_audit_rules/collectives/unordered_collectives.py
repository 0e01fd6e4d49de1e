"""DDP206: collectives in a loop whose elements come in another order on another rank."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, POINT_TO_POINT
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Collective, Loop, NewGroup, Node
from ddp_audit.tree.questions import HASHES, LISTING, Unordered, comes_from, first_of_each_place, unordered
from ddp_audit.tree.values import Const, Items


class UnorderedCollectives(Rule):
    code = "DDP206"
    name = "unordered-collectives"
    level = "error"
    summary = (
        "A loop over a set of texts or objects, or over a directory listing, that issues a collective (or makes a process group) "
        "for each element."
    )
    rationale = (
        "Python salts the hashes of texts in each process, so a set comes in another order on each rank: the third all_reduce of "
        "one rank is about another name than that of the others. Equal shapes are mixed in silence, other shapes abort. File "
        "systems list in any order."
    )
    exceptions = (
        "sorted() and .sort(), dicts (they keep the order of insertion), sets of numbers and of one element, barriers, a launch "
        "with PYTHONHASHSEED."
    )
    trace_evidence = "The sizes that the ranks bring to the collectives of this loop come in different orders."
    source = (
        "Python's documentation of PYTHONHASHSEED; seen in runs: torchrun's workers iterate one set of five names in different "
        "orders, and the all-reduced values are those of other names."
    )
    fix_hint = "iterate over `sorted(..)`, or pack all values into one tensor"
    outcome = "shows mixed up"
    bad = '''"""Sums statistics by name over the ranks; each rank takes the names in an order of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
names = {"loss", "accuracy", "recall", "precision", "norm", "speed", "tokens", "memory"}
stats = {name: torch.tensor([float(place)]) for place, name in enumerate(sorted(names))}
for name in names:
    dist.all_reduce(stats[name])
right = all(stats[name].item() == 2 * place for place, name in enumerate(sorted(names)))
print("as they should be" if right else "mixed up", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("each rank takes the names in an order of its own", "all ranks take the names in one order").replace(
        "for name in names:", "for name in sorted(names):"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        launch = context.launch
        salted = launch is None or launch.env.get("PYTHONHASHSEED", "random") == "random"
        nodes = [
            n for n in context.program.of(Collective, NewGroup) if n.loops and not (isinstance(n, Collective) and n.op == "barrier")
        ]
        for node in first_of_each_place(nodes):
            for loop in node.loops:
                why = unordered(loop.over) if loop.kind == "for" else None
                if why is not None and (salted or why.reason != HASHES):
                    yield self._finding(node, loop, why)
                    break

    def _finding(self, node: Collective | NewGroup, loop: Loop, why: Unordered) -> Finding:
        what = "new_group" if isinstance(node, NewGroup) else node.op
        effect = "create different groups" if isinstance(node, NewGroup) else f"pair the {what}s of different elements"
        message = (
            f"The loop over {loop.text} follows the order of {_short(why)}, which can differ between ranks: they then {effect}."
        )
        explanation = (
            f"The elements come by {why.reason}. Where the tensors have equal shapes the values are mixed without an error, "
            "otherwise a rank aborts or waits. It does no harm where every process happens to see one order."
        )
        span = _place(node, loop)
        related = [Related(loop.span.path, loop.span.line, "loop", f"for .. in {loop.text}"), *guard_relations(node)]
        confidence = "likely" if why.sure else "possible"
        severity = "warning" if why.reason == LISTING else None
        return self.finding(
            span, message, explanation, related=related, confidence=confidence, severity=severity, guards=node.guards,
            fix=self._sorted(loop, why),
        )  # fmt: skip

    def _sorted(self, loop: Loop, why: Unordered) -> Fix | None:
        """The loop over the elements in order, where they can have one: objects cannot."""
        if why.reason not in (HASHES, LISTING) or comes_from(loop.over, "scans-folder"):
            return None
        elements = loop.over.items if isinstance(loop.over, Items) and not loop.over.many else ()
        texts = bool(elements) and all(isinstance(item, Const) and isinstance(item.value, str) for item in elements)
        return Fix("safe" if texts else "unsafe", "iterate over `sorted(..)`")

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the sizes come in different orders, as far as all ranks came; equal sizes tell nothing."""
        sizes: dict[tuple[str, int], list[int | None]] = {}
        for rank, event in run.events_at(finding.span.path, finding.span.line, finding.span.end_line):
            if event.kind == COLLECTIVE and event.op not in POINT_TO_POINT:
                sizes.setdefault((event.group, rank), []).append(event.numel)
        varied = False
        for (group, _), one in sizes.items():
            for other in (found for (name, _), found in sizes.items() if name == group and found is not one):
                both = list(zip(one, other, strict=False))
                if any(a != b for a, b in both):
                    return "confirmed"
                varied = varied or len({a for a, _ in both}) > 1
        return "not-observed" if varied else "not-exercised"


def _short(why: Unordered) -> str:
    return "a directory listing" if why.reason == LISTING else "a set"


def _place(node: Node, loop: Loop) -> Span:
    """The line of the loop's body that issues the collective: the node's, or that of the call that leads to it."""
    inside = [c for c in node.calls if c.path == loop.span.path and loop.span.line <= c.line <= loop.span.end_line]
    return inside[0] if inside else node.span
