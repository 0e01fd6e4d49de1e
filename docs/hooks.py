"""Makes the pages of the rules and of the commands for the site, from the rules and the commands themselves (mkdocs hooks)."""

from __future__ import annotations

import importlib
import os

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ddp_audit.cli import COMMANDS
from ddp_audit.cli.parser import Parser
from ddp_audit.report.pages import Page, page_of, suppression_pages
from ddp_audit.rule import load_rules

GROUPS = {
    "DDP1": "Gradient synchronisation",
    "DDP2": "Collectives and control flow",
    "DDP3": "Data",
    "DDP4": "Buffers and evaluation",
    "DDP5": "Launch and arithmetic",
    "DDP6": "Device and initialisation",
    "DDP7": "Checkpoints and files",
    "DDP8": "Scale and numerics",
    "DDP9": "Suppression comments",
}


def rule_pages() -> list[Page]:
    """Every page, by code."""
    return sorted([*map(page_of, load_rules()), *suppression_pages()], key=lambda page: page.code)


def index_of(pages: list[Page]) -> str:
    """The catalogue as one page of tables."""
    lines = ["# Rules", "", "`ddp-audit explain CODE` prints the same pages; `ddp-audit rules` the catalogue."]
    for prefix, title in GROUPS.items():
        lines += ["", f"## {title}", "", "| code | name | severity | reports |", "|---|---|---|---|"]
        for page in pages:
            if page.code.startswith(prefix):
                what = " ".join(page.what.split()).replace("|", "\\|")
                lines.append(f"| [{page.code}]({page.code}.md) | {page.name} | {page.severity} | {what} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """The help of every command, as one page."""
    lines = ["# Commands", "", "This page is what `ddp-audit COMMAND --help` prints.", ""]
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"  # the width of the help
    try:
        for name in COMMANDS:
            parser = Parser(prog="ddp-audit")
            below = parser.add_subparsers(parser_class=Parser)
            importlib.import_module(f"ddp_audit.cli.{name.replace('-', '_')}").add_parser(below)
            lines += [f"## {name}", "", "```text", below.choices[name].format_help().rstrip(), "```", ""]
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return "\n".join(lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    files.append(File.generated(config, "commands.md", content=commands()))
    pages = rule_pages()
    files.append(File.generated(config, "rules/index.md", content=index_of(pages)))
    for page in pages:
        text = page.markdown().replace("\n\nSeverity: ", "\n\n[All rules](index.md). Severity: ", 1)
        files.append(File.generated(config, f"rules/{page.code}.md", content=text))
    return files
