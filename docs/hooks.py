"""Makes the pages of the rules for the site, from the text in the rules themselves (mkdocs hooks)."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    pages = rule_pages()
    files.append(File.generated(config, "rules/index.md", content=index_of(pages)))
    for page in pages:
        text = page.markdown().replace("\n\nSeverity: ", "\n\n[All rules](index.md). Severity: ", 1)
        files.append(File.generated(config, f"rules/{page.code}.md", content=text))
    return files
