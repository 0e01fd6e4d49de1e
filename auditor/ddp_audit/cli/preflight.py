"""`ddp-audit preflight -- COMMAND`: checks machines, network, source and data of a job before it starts."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Subparsers, Usage

if TYPE_CHECKING:
    from ddp_audit.preflight.report import Report

_WAIT = 12.0

_EPILOG = """\
COMMAND: the launch command of the job: torchrun, python -m torch.distributed.run, srun, mpirun, accelerate launch, deepspeed, or \
python. On several nodes, start the same on each of them. The script is read, and neither run nor imported.

examples:
  ddp-audit preflight -- torchrun --standalone --nproc-per-node 8 train.py
  ddp-audit preflight --data data/train.bin --shared out -- torchrun --nnodes 2 --node-rank 0 --master-addr node0 train.py

exit codes: 0 all is well, 1 a problem was found, 2 the checks could not be made
"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    from ddp_audit.preflight.settings import DEFAULT_DIRECTORY, DEFAULT_TIMEOUT

    parser = subparsers.add_parser(
        "preflight",
        help="check a job before it starts",
        usage="ddp-audit preflight [options] -- COMMAND",
        description="Starts COMMAND with a probe in place of the script. Every rank reports its device and versions, the ranks "
        "form their process group and communicate, and source, settings, data and shared folders are compared.",
        epilog=_EPILOG,
    )
    parser.add_argument("--data", action="append", default=[], metavar="PATH", help="data that all nodes must have alike")
    parser.add_argument("--shared", action="append", default=[], metavar="PATH", help="a folder that all nodes must share")
    parser.add_argument("--quick", action="store_true", help="no all-reduce of more than 1 Mi elements")
    parser.add_argument("--backend", metavar="NAME", help="the backend of the group (default: the script's)")
    parser.add_argument(
        "--wait", type=_seconds, default=_WAIT, metavar="SECONDS", help=f"for the other nodes to come (default: {_WAIT:.0f})"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=DEFAULT_TIMEOUT, metavar="SECONDS", help="for the ranks' checks (default: 30)"
    )
    parser.add_argument(
        "--dir",
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help=f"where launchers and ranks write (default: {DEFAULT_DIRECTORY})",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)


def _seconds(text: str) -> float:
    from ddp_audit.preflight.settings import seconds

    try:
        return seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of seconds") from None


def run(args: argparse.Namespace) -> int:
    """Checks and reports. Raises Usage."""
    command = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command:
        raise Usage("preflight needs a COMMAND after -- ('ddp-audit preflight --help' lists the options)")
    from ddp_audit.cli.traced import need_torch
    from ddp_audit.preflight.report import as_object, lines
    from ddp_audit.report.columns import say

    need_torch()
    report = _report(args, command)
    if args.format == "json":
        print(json.dumps(as_object(report), indent=2, ensure_ascii=False))
    else:
        say(lines(report))
    return report.exit_code


def _report(args: argparse.Namespace, command: list[str]) -> Report:
    from ddp_audit.cli.traced import find_script
    from ddp_audit.launch import LaunchError
    from ddp_audit.preflight.command import read_launch
    from ddp_audit.preflight.launcher import run_preflight
    from ddp_audit.preflight.report import report_of
    from ddp_audit.preflight.settings import Settings
    from ddp_audit.source.paths import display_path
    from ddp_audit.trace.launcher import LaunchError as NotStarted

    try:
        launch = read_launch(command)
        script = find_script(launch)
        if script is None:
            raise Usage(f"{launch.script}: no such script" if launch.script else "the command names no script")
        settings = Settings(
            directory=args.dir,
            timeout=args.timeout,
            quick=args.quick,
            backend=args.backend,
            script=display_path(script),
            data=tuple(args.data),
            shared=tuple(args.shared),
        )
        return report_of(run_preflight(command, launch, script, settings, args.wait, _tell))
    except (LaunchError, NotStarted) as error:
        raise Usage(str(error)) from None
    except OSError as error:
        raise Usage(f"{error.filename or args.dir}: {error.strerror or error}") from None


def _tell(line: str) -> None:
    """What is done now, for whoever waits."""
    print(f"ddp-audit: {line}", file=sys.stderr, flush=True)
