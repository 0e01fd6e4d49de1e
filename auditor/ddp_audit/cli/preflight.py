"""`ddp-audit preflight -- COMMAND`: checks machines, network, source and data of a job before it starts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
    inner = _on_each_node(args, command)
    if inner is not None:
        return _passed_on(inner, is_json=args.format == "json")
    report = _report(args, command)
    if args.format == "json":
        print(json.dumps(as_object(report), indent=2, ensure_ascii=False))
    else:
        say(lines(report))
    return report.exit_code


def _on_each_node(args: argparse.Namespace, command: list[str]) -> list[str] | None:
    """The command that makes the checks on every node, where srun or mpirun starts a launcher there; else None."""
    from ddp_audit.launch import LaunchError
    from ddp_audit.preflight.command import on_each_node, read_launch, wrapped_at

    try:
        at = wrapped_at(command, read_launch(command))
    except LaunchError:
        return None  # said where the command is read for its own sake
    if at is None:
        return None
    options = [word for name in ("data", "shared") for value in getattr(args, name) for word in (f"--{name}", value)]
    options += ["--quick"] * args.quick + (["--backend", args.backend] if args.backend else [])
    numbers = ["--wait", f"{args.wait:g}", "--timeout", f"{args.timeout:g}"]
    return on_each_node(command, at, [*options, *numbers, "--dir", args.dir, "--format", args.format])


def _passed_on(command: list[str], *, is_json: bool) -> int:
    """Runs the preflights of all nodes. As JSON the report of the node of rank 0 stands for all, where there is one."""
    from ddp_audit.trace.launcher import LaunchError, resolve

    try:
        words = resolve(command)
    except LaunchError as error:
        raise Usage(str(error)) from None
    sys.stdout.flush()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if is_json else None, text=True, check=False)
    reports = list(_objects(done.stdout)) if is_json else []
    if reports:
        print(json.dumps(next((one for one in reports if one.get("whole")), reports[0]), indent=2, ensure_ascii=False))
    return done.returncode if done.returncode in (0, 1) and (reports or not is_json) else 2


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand one after the other in a text."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except ValueError:
            return
        if isinstance(found, dict):
            yield found
        at = text.find("{", end)


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
    """What is done now, for those who wait."""
    print(f"ddp-audit: {line}", file=sys.stderr, flush=True)
