"""`ddp-audit debug`: what the auditor read, found, followed and gave up on, for a finding that is missing or wrong."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit import budget
from ddp_audit.audit import UsageError, explicit_overrides, hints_of, installed_rules, launch_of
from ddp_audit.cli.check import add_job_options, options_for
from ddp_audit.cli.parser import Subparsers, Usage, add_rules_option
from ddp_audit.entries import Job, context_of
from ddp_audit.graphs import lines_of
from ddp_audit.program.model import Branch, CallItem, Item, LoopItem, Program, TryItem
from ddp_audit.report.columns import say
from ddp_audit.report.summary import count
from ddp_audit.selection import withheld_note
from ddp_audit.source.config import ConfigError, find_config
from ddp_audit.source.deep_stack import run_with_deep_stack
from ddp_audit.source.files import SourceError, display_path
from ddp_audit.source.paths import place_of
from ddp_audit.source.project import Project

if TYPE_CHECKING:
    import networkx

    from ddp_audit.rule import Context, Rule

_MOST = 12  # places listed of one kind


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "debug", help="what was read, found, followed and given up on", description="Shows what the auditor makes of one script."
    )
    parser.add_argument("path", metavar="FILE", help="a script")
    parser.add_argument(
        "--graph", choices=("imports", "calls"), help="only a graph: which files import which, or which functions call which"
    )
    parser.add_argument("--all", action="store_true", help="every place, where otherwise the first ones of each kind are shown")
    parser.set_defaults(
        select=None, ignore=None, exclude=None, force_exclude=False, min_confidence=None, show_imported=False, jobs=1
    )
    add_rules_option(parser)
    add_job_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints what was made of a script. Raises Usage."""
    if not Path(args.path).is_file():
        raise Usage(f"{args.path}: no such file")
    project, context, rules, errors = _lowered(args)
    if context is None:
        say(["nothing could be read"])
    elif args.graph is not None:
        say(lines_of(_import_graph(project) if args.graph == "imports" else _call_graph(context.program)))
    else:
        read = sorted(display_path(Path(path)) for path in project.read_paths)
        say(_report(context, rules, read, None if args.all else _MOST))
    if errors:
        say(f"error: {error}" for error in errors)
    return 2 if errors or context is None else 0


def _lowered(args: argparse.Namespace) -> tuple[Project, Context | None, list[Rule], list[str]]:
    """The files that were read, the script as the rules are given it, and what went wrong. Raises Usage."""
    try:
        options = options_for(args, find_config(Path(args.path)))
        launch, explicit, hints = launch_of(options), explicit_overrides(options), hints_of(options)
        rules = installed_rules(options.rule_folders)
        if options.withheld_rules:
            print(withheld_note(options.withheld_rules))
    except (UsageError, ConfigError) as error:
        raise Usage(str(error)) from None
    project = Project([args.path], roots=options.roots)
    failures: list[SourceError] = []
    context = None
    if project.entries:
        job = Job(project, rules, launch, explicit, hints=hints)
        try:
            with budget.bounded_memory(), budget.bounded_time():
                context = run_with_deep_stack(lambda: context_of(job, project.entries[0], failures))
        except RecursionError:
            failures.append(SourceError(project.entries[0].path, None, "is nested too deeply to be audited"))
        except MemoryError:
            failures.append(SourceError(project.entries[0].path, None, budget.TOO_MUCH_MEMORY))
        except budget.GaveUp:
            failures.append(SourceError(project.entries[0].path, None, budget.too_slow()))
    errors = [f"{place_of(e.path, e.line or 1, cell=e.cell)}: {e.message}" for e in [*project.errors, *failures]]
    return project, context, rules, errors


def _report(context: Context, rules: list[Rule], read: list[str], most: int | None) -> Iterator[str]:
    program = context.program
    yield f"read: {count(len(read), 'file')}"
    yield from (f"  {path}" for path in read)
    yield f"frameworks: {', '.join(sorted(program.frameworks.names)) or 'none'}"
    yield f"lowered: {count(len(program.nodes), 'node')}" + (
        "" if program.executed else "; no script: its functions were read one by one"
    )
    yield from _nodes(program, most)
    yield "buffers of wrapped modules:"
    sites = [site for wrap in program.wraps().values() for site in program.buffers_of(wrap)]
    yield from [f"  {site.span.place}: {site.name or site.layer}" for site in sites] or ["  none seen"]
    yield "configuration values:"
    values = [f"  {name} = {c.value!r} ({c.origin}, {place_of(c.path, c.line)})" for name, c in sorted(program.config.items())]
    yield from values[:most] or ["  none seen"]
    if most is not None and len(values) > most:
        yield f"  and {len(values) - most} more"
    yield "launches in documents:"
    yield from [f"  {launch.where()}: {launch.describe_world()}" for launch in context.documented] or ["  none seen"]
    yield "given up on:"
    yield from [f"  {limit}" for limit in program.limits] or ["  nothing"]
    yield "findings of each rule, at any confidence:"
    counts = Counter(f"{f.code} {f.name} ({f.confidence})" for rule in rules for f in rule.check(context))
    yield from [f"  {name}: {number}" for name, number in sorted(counts.items())] or ["  none"]


def _nodes(program: Program, most: int | None) -> Iterator[str]:
    for kind in sorted({node.kind for node in program.nodes}):
        nodes = [node for node in program.nodes if node.kind == kind]
        yield f"  {kind}: {len(nodes)}"
        for node in nodes[:most]:
            guards = "".join(f" [{guard.describe()}]" for guard in node.guards if guard.taint)
            calls = "".join(f" < {Path(c.path).name}:{c.line}" for c in reversed(node.calls))
            yield f"    {node.place}: {node.text}{guards}{calls}"
        if most is not None and len(nodes) > most:
            yield f"    and {len(nodes) - most} more"


# ---- graphs


def _import_graph(project: Project) -> networkx.DiGraph:
    """Which of the files that were read import which, by the paths that reports show."""
    import networkx

    shown = {file.abspath: file.path for file in project.files}
    graph = networkx.DiGraph()
    graph.add_nodes_from(shown.values())
    for file in project.files:
        graph.add_edges_from((file.path, shown[path]) for path in project.imports_of(file) if path in shown)
    return graph


def _call_graph(program: Program) -> networkx.DiGraph:
    """Which functions of the project call which, as far as calls were followed, from the script (`<module>`) on.

    The attribute `places` of an edge holds the places of the calls.
    """
    import networkx

    graph = networkx.DiGraph()
    graph.add_node("<module>")
    for caller, called, place in _calls(program.tree, "<module>"):
        if not graph.has_edge(caller, called):
            graph.add_edge(caller, called, places=[])
        if place not in graph.edges[caller, called]["places"]:
            graph.edges[caller, called]["places"].append(place)
    return graph


def _calls(items: Iterable[Item], caller: str) -> Iterator[tuple[str, str, str]]:
    """(caller, called, place) of each call below some items of a program's tree."""
    for item in items:
        match item:
            case CallItem(span=span, function=function, body=body):
                yield caller, function, span.place
                yield from _calls(body, function)
            case Branch(then=then, orelse=orelse):
                yield from _calls([*then, *orelse], caller)
            case LoopItem(body=body):
                yield from _calls(body, caller)
            case TryItem(body=body, handlers=handlers, final=final):
                yield from _calls([*body, *(inner for handler in handlers for inner in handler), *final], caller)
