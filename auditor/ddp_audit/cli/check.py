"""`ddp-audit check`: audits scripts and folders."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ddp_audit.cache import reports
from ddp_audit.cli import explained, fixing, known, reporting
from ddp_audit.cli.parser import Subparsers, Usage, add_rules_option
from ddp_audit.cli.progress import Auditing
from ddp_audit.findings import CONFIDENCES, SEVERITIES
from ddp_audit.outcome import AuditResult, Options, UsageError
from ddp_audit.report.console import is_coloured
from ddp_audit.source.config import Config, ConfigError, find_config, settings_paths

if TYPE_CHECKING:
    from ddp_audit.source.freshness import Fingerprints


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "check",
        help="audit scripts or folders",
        description="Audits scripts or folders; a script with the project files that it imports. Nothing audited is executed.",
        epilog="exit codes: 0 nothing to report, 1 findings of level error (with --strict also warning), 2 the work could not "
        "be done",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a script, a folder whose scripts are audited, or - for standard input"
    )
    report = parser.add_argument_group("report")
    reporting.add_options(report)
    explained.add_options(report)
    report.add_argument("--strict", action="store_true", default=None, help="warnings fail too")
    report.add_argument("--exit-zero", action="store_true", help="findings do not fail; what could not be read still does")
    rules = parser.add_argument_group("which findings")
    rules.add_argument("--select", action="append", metavar="RULES", help="only these: codes, names or prefixes, by commas")
    rules.add_argument("--ignore", action="append", metavar="RULES", help="not these")
    rules.add_argument("--min-confidence", choices=CONFIDENCES, help="default: likely")
    rules.add_argument("--min-severity", choices=SEVERITIES, help="default: info")
    rules.add_argument(
        "--show-imported",
        action="store_true",
        help="of folders: findings in files that are imported from outside of them too",
    )
    rules.add_argument("--exclude", action="append", metavar="PATTERN", help="files and folders to skip in folders")
    rules.add_argument(
        "--respect-gitignore",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="leave out files of folders that git ignores (default: yes)",
    )
    rules.add_argument("--force-exclude", action="store_true", help="apply --exclude to files given by name too")
    rules.add_argument(
        "--preview",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run preview rules too, which are new and can still change (default: no)",
    )
    add_rules_option(rules)
    rules.add_argument("--stdin-filename", metavar="NAME", help="the name of standard input, for reports and imports")
    rules.add_argument("--trace", metavar="DIR", help="give verdicts from an earlier trace")
    known.add_options(parser)
    fixing.add_options(parser)
    parser.add_argument("--jobs", type=_processes, metavar="N", help="processes of the audit (default: one a processor)")
    parser.add_argument("--no-cache", action="store_true", help="audit afresh, and keep nothing for the next time")
    add_job_options(parser)


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Options that say what job the script will be."""
    job = parser.add_argument_group("the job")
    job.add_argument("--world-size", type=_processes, metavar="N", help="the number of processes")
    job.add_argument("--launch", metavar="COMMAND", help="the launch command, as one argument; its arguments override defaults")
    job.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="override a value of the config"
    )
    job.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        dest="config_files",
        help="a config file of the script's own, read as the script would exec it (.py), or .json, .toml",
    )


def _processes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of processes")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Audits and reports. Raises Usage."""
    began = time.time_ns()
    fingerprints: Fingerprints = {}
    fixing.check_options(args)
    paths, overlay = _inputs(args)
    explained.check_options(args)
    try:
        config = find_config(Path(paths[0]))
        options = options_for(args, config)
        if options.withheld_rules:
            _check_names(args)
        baseline = known.Known(args, config)
        recorded = None
        if args.trace is not None:
            from ddp_audit.cli.recorded import read_run

            recorded = read_run(args.trace)

        def audited(texts: Mapping[str, bytes]) -> AuditResult:
            with Auditing() as tell:
                if texts or args.no_cache or fixes or os.environ.get("DDP_AUDIT_DEBUG"):
                    from ddp_audit.audit import audit

                    result = audit(paths, options, overlay=texts, tell=tell)
                else:
                    from ddp_audit.cache.entries import cached_audit

                    result = cached_audit(paths, options, tell, fingerprints)
            baseline.hold(result)
            result.notes += config.unread
            return result

        fixes = args.fix or args.diff
        with explained.one_budget(args):
            outcome = fixing.fix_findings(args, audited, overlay) if fixes else None
            result = audited(overlay) if outcome is None else outcome.result
            run = explained.explained(paths, options, overlay, result, result.rules) if args.explain_run else None
    except (UsageError, ConfigError) as error:
        raise Usage(str(error)) from None
    if outcome is not None and args.diff:
        _write(args.output, lambda stream: stream.write(fixing.diff_of(outcome)))
        return 2 if result.errors else int(bool(outcome.changed) and not args.exit_zero)
    baseline.write(result)
    if recorded is not None:
        from ddp_audit.compare.judging import judge

        judge(result.findings, recorded, result.rules)
    _drop_below(result, args.min_severity or config.min_severity)
    chosen = reporting.chosen_form(args, config.format)
    if chosen == "github":
        reporting.add_summary(result)
    strict = bool(config.strict) if args.strict is None else args.strict
    explained.check_format(args, chosen)
    code = result.exit_code(strict)
    code = 0 if code == 1 and args.exit_zero else code
    ways = reporting.ways_of(args, strict)
    if fingerprints and args.output is None and _is_the_same_again(args, chosen, baseline):
        text = io.StringIO()
        reporting.write_report(result, chosen, text, ways)
        sys.stdout.write(text.getvalue())
        looked_at = map(str, (*settings_paths(Path(paths[0])), *config.stub_files))
        reports.keep(args.command_line, fingerprints, looked_at, options.rule_folders, text.getvalue(), code, began)
    else:
        _write(args.output, lambda stream: reporting.write_report(result, chosen, stream, ways, run=run))
    return code


def _drop_below(result: AuditResult, least: str | None) -> None:
    """Leave out the findings below --min-severity; they are counted nowhere."""
    if least is not None:
        kept = SEVERITIES[SEVERITIES.index(least) :]
        result.findings = [finding for finding in result.findings if finding.severity in kept]


def _check_names(args: argparse.Namespace) -> None:
    """Names in the settings may be those of rules that were not loaded; names on the command line must not. Raise UsageError."""
    from ddp_audit.audit import installed_rules, match_rules, rule_names

    try:
        match_rules([*(args.select or ()), *(args.ignore or ())], rule_names(installed_rules()))
    except UsageError as error:
        raise UsageError(f"{error}; rules of the project were not loaded (--allow-project-rules loads them)") from None


def _is_the_same_again(args: argparse.Namespace, form: str, baseline: known.Known) -> bool:
    """Whether a report depends on nothing but what its audit rests on, and all of it goes to standard output."""
    has_statistics = form in ("full", "text")
    plain = form in ("full", "concise", "text", "json", "sarif") and (has_statistics or not args.statistics)
    if form == "full" and is_coloured(sys.stdout):
        return False  # the width of the terminal, and what it can show
    return plain and not (args.trace or args.explain_run or baseline.is_used)


def _inputs(args: argparse.Namespace) -> tuple[list[str], dict[str, bytes]]:
    """The paths to audit, and the text of standard input by its absolute path where `-` was given. Raises Usage."""
    if "" in args.paths:
        raise Usage("an empty text is not a path (is a variable unset?)")
    if "-" not in args.paths:
        if args.stdin_filename is not None:
            raise Usage("--stdin-filename goes with - as the path")
        return args.paths, {}
    if len(args.paths) > 1:
        raise Usage("standard input (-) is audited alone, without other paths")
    name = args.stdin_filename or "<stdin>"
    return [name], {str(Path(name).absolute()): sys.stdin.buffer.read()}


def _write(path: str | None, write: Callable[[IO[str]], object]) -> None:
    """Writes to the file of --output, or to standard output. Raises Usage."""
    if path is None:
        write(sys.stdout)
        return
    try:
        with Path(path).open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            write(stream)
    except OSError as error:
        raise Usage(f"--output: {path}: {error.strerror or error}") from None


def options_for(args: argparse.Namespace, config: Config) -> Options:
    """What the command line asks for, over the settings of the project."""
    world_size = args.world_size
    if world_size is None and args.launch is None:
        world_size = config.world_size
    typed = {part.strip() for text in [*(args.select or []), *(args.ignore or [])] for part in text.split(",")}
    own = project_options(config, allow_rules=args.allow_project_rules)
    preview = getattr(args, "preview", None)
    if preview is not None:
        own["preview"] = preview
    own["origins"] = tuple(pair for pair in own["origins"] if pair[0] not in typed)
    return Options(
        select=args.select if args.select is not None else config.select,
        ignore=[*config.ignore, *(args.ignore or [])],
        exclude=[*config.exclude, *(args.exclude or [])],
        respect_gitignore=_respects_gitignore(args, config),
        force_exclude=args.force_exclude,
        show_imported=args.show_imported,
        min_confidence=args.min_confidence or config.min_confidence or "likely",
        world_size=world_size,
        launch=args.launch,
        settings=args.settings,
        config_files=args.config_files,
        jobs=args.jobs or os.cpu_count() or 1,
        **own,
    )


def _respects_gitignore(args: argparse.Namespace, config: Config) -> bool:
    given: bool | None = getattr(args, "respect_gitignore", None)
    given = config.respect_gitignore if given is None else given
    return given is not False


def project_options(config: Config, *, allow_rules: bool = False) -> dict[str, Any]:
    """What the settings say of the project itself, as keywords of Options.

    `allow_rules` loads the rules that they name. It comes from outside of the project: those rules are code, and a project that
    is audited may be anybody's.
    """
    return {
        "home": config.home,
        "per_file_ignores": tuple((pattern, tuple(rules)) for pattern, rules in config.per_file_ignores.items()),
        "levels": tuple(config.levels.items()),
        "origins": tuple(config.origins.items()),
        "target_torch": config.target_torch,
        "preview": bool(config.preview),
        "rule_folders": tuple(config.rule_folders) if allow_rules else (),
        "withheld_rules": () if allow_rules else tuple(config.rule_folders),
        "roots": tuple(str(config.folder / root) for root in config.roots),
        "stubs": config.stub_texts,
        "helpers": tuple((kind, tuple(names)) for kind, names in config.helpers.items()),
    }
