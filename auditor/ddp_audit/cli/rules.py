"""`ddp-audit rules`: the catalogue."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ddp_audit.cli.parser import Subparsers, add_rules_option, project_rules
from ddp_audit.report.columns import say, terminal_width
from ddp_audit.report.tables import table_lines

if TYPE_CHECKING:
    from ddp_audit.report.pages import Page


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("rules", help="the catalogue of rules", description="Lists every rule.")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    add_rules_option(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the catalogue."""
    from ddp_audit.report.pages import page_of, suppression_pages

    pages = [*map(page_of, project_rules(args.allow_project_rules)), *suppression_pages()]
    if args.format == "json":
        print(json.dumps({"version": 2, "rules": [page.to_json() for page in pages]}, indent=2, ensure_ascii=False))
        return 0
    rows = [(page.code, page.severity, page.name, f"{_mark(page)}{page.to_json()['what']}") for page in pages]
    say(table_lines(rows, width=terminal_width()))
    return 0


def _mark(page: Page) -> str:
    return "(preview) " if page.preview else ""
