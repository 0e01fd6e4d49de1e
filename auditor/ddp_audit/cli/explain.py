"""`ddp-audit explain`: the page of a rule."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from ddp_audit.cli.parser import Subparsers, Usage, add_rules_option, project_rules


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("explain", help="the page of a rule", description="Prints the page of a rule.")
    parser.add_argument("rules", nargs="+", metavar="RULE", help="a code, a name, or a prefix of codes")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    add_rules_option(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the pages. Raises Usage for an unknown rule."""
    from ddp_audit.audit import UsageError, match_rules, rule_names
    from ddp_audit.report.pages import page_of, suppression_pages

    rules = project_rules(args.allow_project_rules)
    try:
        codes = match_rules(args.rules, rule_names(rules))
    except UsageError as error:
        raise Usage(str(error)) from None
    pages = [page for page in (*map(page_of, rules), *suppression_pages()) if page.code in codes]
    if args.format == "json":
        shown = [page.to_json() for page in pages]
        print(json.dumps({"version": 2, "rules": shown}, indent=2, ensure_ascii=False))
        return 0
    width = min(100, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 100
    print("\n".join(page.text(width) for page in pages), end="")
    return 0
