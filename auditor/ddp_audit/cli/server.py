"""`ddp-audit server`: a language server over standard input and output, for editors."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

from ddp_audit.cli.parser import Subparsers, Usage, add_rules_option


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "server",
        help="a language server, for editors",
        description="Speaks the language server protocol over standard input and output: findings as diagnostics with the places "
        "related to them, the rule's page on hover, quick fixes. Needs the extra [lsp].",
    )
    parser.add_argument(
        "--stdio", action="store_true", help="accepted, since many clients pass it; standard input and output are the only way"
    )
    add_rules_option(parser)


def run(args: argparse.Namespace) -> int:
    """Serves until the client ends, and ends the process: with 0 where the client asked for that first. Raises Usage."""
    if find_spec("pygls") is None:
        raise Usage("server needs pygls: pip install 'ddp-audit[lsp]'")
    from ddp_audit.server.protocol import serve

    code = serve(allow_rules=args.allow_project_rules)
    # The interpreter would end the threads that still audit or parse wherever they are, and inside libcst's parser that aborts.
    sys.stderr.flush()
    os._exit(code)
