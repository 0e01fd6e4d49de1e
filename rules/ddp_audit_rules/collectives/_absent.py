"""Names and attributes that only some ranks have, used by others too: a part of what DDP204 reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_audit.findings import Related
from ddp_audit.rule import guard_relations
from ddp_audit.tree.nodes import AbsentName, AttributeOfNone, Node, Program
from ddp_audit.tree.questions import comes_from, first_name, worlds_by_size
from ddp_audit.tree.values import World, truth
from ddp_audit_rules.collectives._failures import Failure


def absent(program: Program) -> Iterator[Failure]:
    """Uses of names and attributes on ranks that do not have them, or have None there."""
    for node in program.of(AbsentName, AttributeOfNone):
        by_job = [[w for w in job if _lacks(node, w) and _comes(node, w)] for job in worlds_by_size(program.world_size)]
        if not all(by_job) or any(comes_from(g.test, "asks-for-attribute") for g in node.guards):
            continue
        name, ranks = node.text or node.name, _ranks(by_job[0])
        if isinstance(node, AbsentName):
            site = node.binding.sites[0][-1]
            kind = "AttributeError" if node.of_object else "NameError"
            message = f"`{name}` is assigned under a rank test only, and {ranks} use it here too: {kind} there."
            related = [Related(site.span.path, site.span.line, "guard", f"it is assigned under: {site.describe()}")]
        else:
            choice = node.choice
            name, attribute = node.name, node.attribute
            message = f"`{name}` is None on {ranks}, which read its `{attribute}` here too: AttributeError there."
            related = [Related(node.span.path, node.span.line, "guard", f"decided by: {choice.text or 'a rank test'}")]
        yield Failure(
            node.span,
            message,
            "The exception ends those ranks, and the launcher ends the others, which are in a collective or wait in the next. It "
            "does no harm where the name is made otherwise before, on all ranks.",
            [*related, *guard_relations(node)],
            node,
            "likely" if _is_reached(node) else "possible",
        )


def _is_reached(node: Node) -> bool:
    """Whether the use is in code that is seen to run, or of an attribute of the object itself.

    A function that nothing here calls may be called by rank 0 alone.
    """
    return node.is_called or first_name(node.text) == "self"


def _comes(node: Node, world: World) -> bool:
    """Whether a rank surely gets here: no condition keeps it away, and of those that ask for the rank none is unknown."""
    return bool(node.reached_by(world)) and all(guard.admits(world) is not False for guard in node.guards)


def _lacks(node: AbsentName | AttributeOfNone, world: World) -> bool:
    """Whether a rank surely has not got the name, or has None."""
    if isinstance(node, AbsentName):
        binding = node.binding
        return not binding.plain and all(any(g.admits(world) is False for g in site) for site in binding.sites)
    said = truth(node.choice, world)
    return said is not None and said != node.polarity


def _ranks(without: Sequence[World]) -> str:
    return "rank 0" if {w.rank for w in without} == {0} else "the other ranks" if all(w.rank for w in without) else "some ranks"
