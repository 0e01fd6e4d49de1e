"""`ddp-audit demo`: one hazard of the reference trainer, from finding to confirmed diff, on two CPU ranks."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Subparsers, Usage
from ddp_audit.report.columns import say, terminal_width
from ddp_audit.report.tables import table_lines

if TYPE_CHECKING:
    from ddp_audit.cli.traced import Traced
    from ddp_audit.outcome import AuditResult
    from ddp_audit_trainer.hazards import Hazard

_DEFAULT = "rank0-eval-barrier"
_STALL_AFTER = 8.0  # the demo's steps take milliseconds


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "demo",
        help="show one hazard of the reference trainer, from finding to confirmed diff",
        description="Audits the reference trainer with a hazard switched on, then trains it on two CPU ranks with the tracer "
        "and shows what the run says of the finding.",
        epilog="exit codes: 0 the hazard showed itself as promised, 1 it did not, 2 the demo could not run",
    )
    parser.add_argument("hazard", nargs="?", default=_DEFAULT, metavar="HAZARD", help=f"default: {_DEFAULT}")
    parser.add_argument("--list", action="store_true", help="list the hazards")
    parser.add_argument("--dir", metavar="DIR", help="keep the trace in DIR")


def run(args: argparse.Namespace) -> int:
    """Shows one hazard, or lists them. Raises Usage."""
    from ddp_audit_trainer.hazards import HAZARDS

    if args.list:
        rows = [(one.name, ", ".join(one.codes) or "trace only", one.outcome, one.what) for one in HAZARDS.values()]
        say(table_lines(rows, width=terminal_width()))
        return 0
    if args.hazard not in HAZARDS:
        import difflib

        near = difflib.get_close_matches(args.hazard, HAZARDS, 1)
        raise Usage(f"no hazard is called '{args.hazard}'{f'; did you mean {near[0]}?' if near else ''} (--list names them)")
    from ddp_audit.cli.traced import need_torch

    need_torch()
    if args.dir is not None:
        return _demo(HAZARDS[args.hazard], args.dir)
    with tempfile.TemporaryDirectory(prefix="ddp-audit-demo-") as folder:
        return _demo(HAZARDS[args.hazard], folder)


def _demo(hazard: Hazard, folder: str) -> int:
    from ddp_audit.cli.reporting import Ways, write_report
    from ddp_audit.cli.traced import audit_command, tell, trace_command
    from ddp_audit.report import trace_text

    arguments = ["-m", "ddp_audit_trainer.train", "--device", "cpu", "--hazard", hazard.name, *hazard.arguments]
    launch = ["--standalone", "--nproc-per-node", "2", *arguments]
    shown = shlex.join(["torchrun", *launch])
    tell(sys.stdout, f"The hazard: {hazard.what}", "", f"1. The audit of what `{shown}` starts; nothing of it is executed.", "")
    audited, about = audit_command(["torchrun", *launch])
    if audited is None:
        raise Usage(about)
    write_report(audited, "full", sys.stdout, Ways())
    tell(sys.stdout, "", f"2. The run, with the tracer in both ranks: ddp-audit trace --on-stall kill -- {shown}", "")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result = trace_command(
        [sys.executable, "-m", "torch.distributed.run", *launch],
        audited,
        sys.stdout,
        directory=folder,
        stall_after=_STALL_AFTER,
        on_stall="kill",
    )
    if result.comparison is None:
        raise Usage("the traced run left no trace")
    tell(sys.stdout, "", "3. What the run says.", "")
    trace_text.show(result.comparison, sys.stdout, root=Path.cwd(), findings=audited.findings, reported=result.reported)
    lacking = _lacking(hazard, audited, result)
    if lacking:
        tell(sys.stdout, "", "The demo did not show all it promised: " + "; ".join(lacking) + ".")
        return 1
    found = (
        f"{', '.join(hazard.codes)} found in the source and confirmed by the run" if hazard.codes else "found by the trace alone"
    )
    tell(sys.stdout, "", f"As promised: {hazard.name}, {found}.")
    tell(sys.stdout, "Before a job on several machines, check them: ddp-audit preflight -- torchrun ... train.py")
    return 0


def _lacking(hazard: Hazard, audited: AuditResult, result: Traced) -> list[str]:
    """What was promised of a hazard and did not show."""
    lacking = []
    for code in hazard.codes:
        verdicts = {finding.verdict for finding in audited.findings if finding.code == code}
        if not verdicts:
            lacking.append(f"the audit did not find {code}")
        elif "confirmed" not in verdicts:
            lacking.append(f"the run did not confirm {code}")
    comparison = result.comparison
    assert comparison is not None
    kinds = {divergence.kind for divergence in comparison.divergences} | {fault.kind for fault in comparison.silent}
    if not _shows(hazard.evidence, kinds, bool(comparison.parted)):
        lacking.append(f"the trace does not show {hazard.evidence}")
    return lacking


def _shows(evidence: str, kinds: set[str], parted: bool) -> bool:
    from ddp_audit_trainer import hazards

    if evidence == hazards.OPERATION:
        return parted
    if evidence in (
        hazards.CROSSED,
        hazards.REDUCE_OP,
        hazards.PARAMETERS_DIFFER,
        hazards.GRADIENTS_DIFFER,
        hazards.SAME_SAMPLES,
    ):
        return evidence in kinds
    return not parted  # extra traffic, or one order for all epochs: the verdict alone tells
