"""Lowering: from the source of a script and the project files it imports to a tree of the things that matter."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddp_audit.knowledge.framework import answers_of, frameworks
from ddp_audit.program.model import BufferSite, Program
from ddp_audit.program.nodes import Backward, Init, Wrap
from ddp_audit.source.files import SourceFile

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.program.observation import Observer
    from ddp_audit.source.project import Project
    from ddp_audit.source.project_hints import ProjectHints


def lower(
    project: Project,
    entry: SourceFile,
    *,
    world_size: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    defaults_hold: bool = False,
    hints: ProjectHints | None = None,
    observer: Observer | None = None,
) -> Program:
    """Lowers one entry script with the project files that it imports.

    `overrides` are the configuration values of the job at hand (objects with `value`, `where`, `path`, `line`). `defaults_hold`
    says that options which it does not name keep their defaults, as they do in a launch that is about to run. `hints` is what the
    settings of the project say of its helpers and of its torch. `observer` notes what is seen at each place.
    """
    from ddp_audit.program.buffer_writes import buffer_writes
    from ddp_audit.program.contracts_random import contents, random_sites
    from ddp_audit.program.inside import look_inside
    from ddp_audit.program.leftovers import run_leftovers
    from ddp_audit.program.lowering import Lowering

    lowering = Lowering(project, world_size, overrides or {}, defaults_hold, hints, observer)
    program = lowering.program
    program.entry = entry.path
    lowering.run_module(entry, main=True)
    program.executed = any(isinstance(node, (Wrap, Init, Backward)) for node in program.nodes)
    run_leftovers(lowering, entry)
    look_inside(lowering)
    program.buffers = _buffers(lowering)
    program.random_sites = random_sites(lowering)
    program.contents = contents(lowering)
    program.buffer_writes = buffer_writes(lowering)
    program.frameworks = answers_of(
        lowering.libraries, lambda name: _uses(lowering, name), (*frameworks().values(), *lowering.hints.frameworks)
    )
    return program


def _uses(lowering: Lowering, name: str) -> bool:
    """Whether a file that was read uses a name; `*Trainer` is any that ends so."""
    found = (frame.source.fact("names", frame.source.tree, _names_in) for frame in lowering.modules.values())
    if name.startswith("*"):
        return any(one.endswith(name[1:]) for names in found for one in names)
    return any(name in names for names in found)


def _names_in(tree: ast.AST) -> frozenset[str]:
    """The names that a file reads, imports or takes attributes by."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.alias(name=name):
                found.add(name.rpartition(".")[2])
    return frozenset(found)


def _buffers(lowering: Lowering) -> dict[tuple[Any, ...], list[BufferSite]]:
    """Buffers of each module object with those of the modules inside it."""
    found: dict[tuple[Any, ...], list[BufferSite]] = {}
    for root in {*lowering.children, *lowering.own_buffers}:
        seen, queue = {root}, [root]
        sites: dict[Any, BufferSite] = {}
        while queue:
            key = queue.pop()
            sites.update(lowering.own_buffers.get(key, {}))
            for child in lowering.children.get(key, ()):
                if child not in seen:
                    seen.add(child)
                    queue.append(child)
        if sites:
            found[root] = [sites[span] for span in sorted(sites, key=lambda s: (s.path, s.line, s.column))]
    return found


__all__ = ["Program", "lower"]
