"""`ddp-audit config`: the settings that hold for a path, and where each comes from."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from ddp_audit.cli.parser import Subparsers, Usage
from ddp_audit.report.columns import say, terminal_width
from ddp_audit.report.tables import table_lines
from ddp_audit.source.config import Config, ConfigError, find_config

# What holds where the file is silent, for the settings that are not empty then.
DEFAULTS: dict[str, Any] = {
    "select": ["ALL"],
    "min-confidence": "likely",
    "strict": False,
    "respect-gitignore": True,
    "preview": False,
    "min-severity": "info",
    "format": "full",
}


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "config",
        help="the settings that hold for a path",
        description="Shows every setting that holds for a path, and where it comes from.",
    )
    parser.add_argument("path", nargs="?", default=".", metavar="PATH", help="a script or folder (default: the working directory)")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Prints the settings. Raises Usage."""
    path = Path(args.path)
    if not path.exists():
        raise Usage(f"{args.path}: no such file or directory")
    try:
        config = find_config(path)
    except ConfigError as error:
        raise Usage(str(error)) from None
    settings = effective(config)
    if args.format == "json":
        document = {"version": 1, "path": config.path, "settings": settings}
        print(json.dumps(document, indent=2, ensure_ascii=False))
        print("".join(f"ddp-audit: {line}\n" for line in config.unread), end="", file=sys.stderr)
        return 0
    rows = [(name, f"{_shown(setting['value'])}  ({setting['from']})") for name, setting in settings.items()]
    lines = table_lines(rows, width=terminal_width())
    if config.rules:
        lines.append("The rules are code of the project: they are loaded with --allow-project-rules, and otherwise not.")
    say([f"settings for {args.path}: {config.path or 'no file; the defaults hold'}", *lines, *config.unread])
    return 0


def effective(config: Config) -> dict[str, dict[str, Any]]:
    """Each setting with its value and where it comes from: the file, or `default`."""
    settings = {}
    for item in fields(Config):
        if item.name in ("path", "unread", "stub_texts"):
            continue
        key, value = item.name.replace("_", "-"), getattr(config, item.name)
        given = value is not None and value not in ([], {})
        settings[key] = {"value": value if given else DEFAULTS.get(key, value), "from": config.path if given else "default"}
    return settings


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_shown(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
