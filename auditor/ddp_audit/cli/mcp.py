"""`ddp-audit mcp`: a server of the Model Context Protocol over standard input and output, for agents."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from ddp_audit.cli.parser import Subparsers, Usage


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "mcp",
        help="a server of the Model Context Protocol, for agents",
        description="Speaks the Model Context Protocol over standard input and output, with the tools audit, explain, diff, "
        "trace_summary and batch. Nothing audited is executed, and rules of a project are not loaded. Needs the extra [mcp].",
    )
    parser.add_argument(
        "--root",
        action="append",
        type=Path,
        metavar="DIR",
        help="a folder whose files the tools may read (default: the working directory)",
    )
    parser.add_argument("--timeout", type=_seconds, default=120.0, metavar="SECONDS", help="limit of one tool (default: 120)")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds up to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Serves until the client closes the connection. Raises Usage."""
    if find_spec("mcp") is None:
        raise Usage("mcp needs the SDK of the Model Context Protocol: pip install 'ddp-audit[mcp]'")
    roots = tuple(args.root or [Path.cwd()])
    for root in roots:
        if not root.is_dir():
            raise Usage(f"--root: {root}: no such folder")
    from ddp_audit.agents.server import make_server

    make_server(roots, args.timeout).run("stdio")
    return 0
