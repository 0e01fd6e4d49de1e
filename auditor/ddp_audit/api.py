"""The public interface. Rules of your own and programs that use ddp-audit import from this module and no other.

What a rule asks of a program, the kinds of its nodes first, is in `ddp_audit.tree`, under the same promise.

A name here stays with its meaning for at least two minor releases after the release whose changelog calls it deprecated; using it
then warns with DeprecationWarning. Every other module can change in any release. Names are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from ddp_audit.audit import audit
    from ddp_audit.compare.run import RankRun, RecordedRun
    from ddp_audit.compare.sequence import Divergence
    from ddp_audit.compare.verdict import Comparison
    from ddp_audit.cst_rule import CstRule, leaving, visiting
    from ddp_audit.findings import (
        CONFIRMED,
        NOT_COVERED,
        NOT_EXERCISED,
        NOT_OBSERVED,
        Finding,
        Fix,
        Option,
        Place,
        Related,
        Span,
    )
    from ddp_audit.outcome import AuditResult, Options, UsageError
    from ddp_audit.rule import Context, Rule, guard_relations
    from ddp_audit.rule_testing import check_examples, findings_in
    from ddp_audit.trace.store import TraceError
    from ddp_audit.tree.nodes import Branch, CallItem, Guard, Loop, LoopItem, Node, NoSync, Program, TryItem
    from ddp_audit.tree.questions import first_of_each_place

# Name to the module that has it.
_HOMES = {
    **dict.fromkeys(["audit"], "ddp_audit.audit"),
    **dict.fromkeys(["AuditResult", "Options", "UsageError"], "ddp_audit.outcome"),
    **dict.fromkeys(["Finding", "Fix", "Option", "Place", "Related", "Span"], "ddp_audit.findings"),
    **dict.fromkeys(["CONFIRMED", "NOT_OBSERVED", "NOT_EXERCISED", "NOT_COVERED"], "ddp_audit.findings"),
    **dict.fromkeys(["Context", "Rule", "guard_relations"], "ddp_audit.rule"),
    **dict.fromkeys(["CstRule", "leaving", "visiting"], "ddp_audit.cst_rule"),
    **dict.fromkeys(["check_examples", "findings_in"], "ddp_audit.rule_testing"),
    **dict.fromkeys(["Branch", "CallItem", "Guard", "Loop", "LoopItem"], "ddp_audit.tree.nodes"),
    **dict.fromkeys(["Node", "NoSync", "Program", "TryItem"], "ddp_audit.tree.nodes"),
    "first_of_each_place": "ddp_audit.tree.questions",
    **dict.fromkeys(["RankRun", "RecordedRun"], "ddp_audit.compare.run"),
    "Divergence": "ddp_audit.compare.sequence",
    "Comparison": "ddp_audit.compare.verdict",
    "TraceError": "ddp_audit.trace.store",
}

__all__ = [
    "CONFIRMED", "NOT_COVERED", "NOT_EXERCISED", "NOT_OBSERVED",
    "AuditResult", "Branch", "CallItem", "Comparison", "Context", "CstRule", "Divergence", "Finding", "Fix", "Guard", "Loop",
    "LoopItem", "NoSync", "Node", "Option", "Options", "Place", "Program", "RankRun", "RecordedRun", "Related", "Rule", "Span",
    "TraceError", "TryItem", "UsageError",
    "audit", "check_examples", "compare", "findings_in", "first_of_each_place", "guard_relations", "leaving", "open_trace",
    "visiting",
]  # fmt: skip


def open_trace(folder: str | os.PathLike[str]) -> RecordedRun:
    """Return the run that a trace folder, or a folder of the Flight Recorder's dumps, holds. Raise TraceError."""
    from ddp_audit.trace import flight_recorder
    from ddp_audit.trace.store import load_run

    if flight_recorder.is_dump_folder(folder):
        return flight_recorder.run_of(flight_recorder.load_dumps(folder))
    return load_run(folder)


def compare(run: RecordedRun) -> Comparison:
    """Return where the ranks of a run diverge, where each stands, and which faults no error shows."""
    from ddp_audit.compare.verdict import compare_run

    return compare_run(run)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
