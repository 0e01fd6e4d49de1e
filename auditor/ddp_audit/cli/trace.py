"""`ddp-audit trace -- COMMAND`: runs a launch command with every rank traced."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ddp_audit.cli import exports
from ddp_audit.cli.parser import Subparsers, Usage, add_rules_option

if TYPE_CHECKING:
    from ddp_audit.compare.logs import LogNote
    from ddp_audit.compare.verdict import Comparison


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "trace",
        help="run a launch command with every rank traced",
        usage="ddp-audit trace [options] -- COMMAND",
        description="Audits the script that COMMAND starts, runs COMMAND with every rank traced, prints where the ranks diverge "
        "as soon as they do, and at the end the verdict of the run on each finding.",
        epilog="COMMAND: torchrun, python -m torch.distributed.run, srun, accelerate launch, or plain python.\n"
        "exit codes: 0 the ranks agree, 1 a divergence, a stall or a silent fault, 2 no whole trace; else COMMAND's own",
    )
    parser.add_argument("--stall-after", type=_seconds, default=30.0, metavar="SECONDS", help="default: 30; 0 for never")
    parser.add_argument("--on-stall", choices=("report", "kill"), default="report", help="default: report")
    parser.add_argument("--dir", default="ddp-trace", metavar="DIR", help="where the trace goes (default: ddp-trace)")
    parser.add_argument(
        "--native",
        choices=("auto", "on", "off"),
        help="the kernel that records: auto the native one where it is built, else the Python one while "
        "it is built in the background for later runs (default), on builds it first, off the Python one",
    )
    parser.add_argument(
        "--format", choices=("text", "json", "html"), default="text", help="json and html: COMMAND's output goes to stderr"
    )
    exports.add_argument(parser)
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="also explain known error texts in this log, or folder of logs, at the end; COMMAND's standard error is read anyway",
    )
    parser.add_argument("--no-check", action="store_true", help="do not audit the script first, and predict nothing")
    add_rules_option(parser)
    parser.add_argument(
        "--prediction",
        choices=("folded", "full", "off"),
        default="folded",
        help="show the predicted and the recorded sequences side by side where they disagree (default), always, or never",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Audits, runs, compares. Raises Usage."""
    command = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command:
        raise Usage("trace needs a COMMAND after -- ('ddp-audit trace --help' lists the options)")
    from ddp_audit.cli.traced import need_torch, output_to_stderr

    need_torch()
    exports.check(args.export)
    if args.format != "text":
        with output_to_stderr() as stream:
            return _trace(args, command, sys.stderr, stream)
    return _trace(args, command, sys.stdout, None)


def _trace(args: argparse.Namespace, command: list[str], stream: IO[str], document: IO[str] | None) -> int:
    from ddp_audit.cli import prediction_check, traced
    from ddp_audit.cli.recorded import read_notes
    from ddp_audit.report import concise, log_lines, trace_json, trace_text

    kernel = traced.choose_kernel(args.native, stream)
    audited = None
    if not args.no_check:
        audited, about = traced.audit_command(command, allow_rules=args.allow_project_rules)
        if audited is None:
            traced.tell(stream, f"ddp-audit: no audit: {about}")
        else:
            traced.tell(stream, f"ddp-audit: audit of {about}", *concise.render(audited).splitlines(), "")
    traced.tell(stream, f"ddp-audit: {shlex.join(command)} (trace in {args.dir})", "")
    result = traced.trace_command(
        command,
        audited,
        stream,
        directory=args.dir,
        stall_after=args.stall_after,
        on_stall=args.on_stall,
        native=kernel,
    )
    findings = result.findings.findings
    notes = read_notes(args.dir, args.log)
    if result.comparison is None or result.run is None:
        _tell_notes(stream, notes, None)
        if document is not None and args.format == "json":
            out: dict[str, Any] = {
                "version": trace_json.VERSION,
                "verdict": None,
                "error": result.reason,
                "command_code": result.command_code,
            }
            out["findings"] = [finding.to_json() for finding in findings]
            document.write(json.dumps(out, indent=2, ensure_ascii=False) + "\n")
    else:
        traced.tell(stream, "")
        trace_text.show(result.comparison, stream, root=Path.cwd(), findings=findings, reported=result.reported)
        _tell_notes(stream, notes, result.comparison)
        predicts, full = audited is not None and args.prediction != "off", args.prediction == "full"
        prediction = prediction_check.check_prediction(command, result.run) if predicts else None
        if prediction is not None:
            traced.tell(stream, "", *prediction_check.lines_of(prediction, full=full))
            prediction_check.keep(prediction, args.dir, full=full)
        traced.tell(stream, *exports.write(args.export, result.run, result.comparison))
        if document is not None and args.format == "html":
            log = _note_lines(notes, result.comparison)
            document.write(exports.page(result.run, result.comparison, Path.cwd(), findings=findings, log=log))
        elif document is not None:
            out = trace_json.as_object(result.comparison)
            out["command_code"] = result.command_code
            if prediction is not None:
                out["prediction"] = prediction_check.as_object(prediction, full=full)
            if notes:
                out["log"] = log_lines.as_objects(notes)
            out |= {"version": trace_json.WITH_FINDINGS, "findings": [finding.to_json() for finding in findings]}
            document.write(json.dumps(out, indent=2, ensure_ascii=False) + "\n")
    return result.exit_code


def _tell_notes(stream: IO[str], notes: list[LogNote], comparison: Comparison | None) -> None:
    from ddp_audit.cli.traced import tell

    if notes:
        tell(stream, "", *_note_lines(notes, comparison))


def _note_lines(notes: list[LogNote], comparison: Comparison | None) -> list[str]:
    """The known error texts of the command's standard error and of logs, with what the comparison found."""
    from ddp_audit.compare.logs import with_diff
    from ddp_audit.report import log_lines

    if not notes:
        return []
    together = [] if comparison is None else with_diff(notes, comparison.parted_ever, comparison.ranks_of_parted)
    return list(log_lines.lines(notes, together))
