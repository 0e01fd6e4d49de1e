"""The audit of entries one by one: lowering and rules, in this process or spread over several with the same outcome."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit.findings import Finding
from ddp_audit.launch import Launch, documented_launches
from ddp_audit.launch.overrides import Override, overrides_of
from ddp_audit.source.files import SourceError, SourceFile
from ddp_audit.source.project import Project

if TYPE_CHECKING:
    from ddp_audit.program.model import Program
    from ddp_audit.rule import Context, Rule

Lower = Callable[..., "Program"]

_WORTH_PROCESSES = 4  # entries from which on several processes are started


@dataclass(slots=True)
class Job:
    """What all entries share. `explicit` overrides come after those of the launch."""

    project: Project
    rules: Sequence[Rule]
    launch: Launch | None = None
    explicit: Mapping[str, Override] = field(default_factory=dict)
    defaults_hold: bool = False
    lower: Lower | None = None


@dataclass(slots=True)
class EntryResult:
    """What one entry came to. `limits` says what was given up on, `paths` which files were read (absolute)."""

    findings: list[Finding] = field(default_factory=list)
    failures: list[SourceError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


def audit_entries(job: Job, processes: int = 1) -> list[EntryResult]:
    """The results of the project's entries, in their order, whatever the number of processes."""
    entries = job.project.entries
    processes = min(processes, len(entries))
    if processes < 2 or len(entries) < _WORTH_PROCESSES or "fork" not in get_all_start_methods():
        return [_audit_entry(job, entry) for entry in entries]
    global _forked
    _forked = job  # forked children have it without a copy being sent
    try:
        with get_context("fork").Pool(processes, initializer=_leave_interrupts_to_the_parent) as pool:
            results = pool.map(_audit_number, range(len(entries)), chunksize=1)
    finally:
        _forked = None
    for result in results:  # what the children read is read here too: reports and suppressions need its text
        for path in result.paths:
            job.project.load(path)
    return results


_forked: Job | None = None


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _audit_number(number: int) -> EntryResult:
    assert _forked is not None
    return _audit_entry(_forked, _forked.project.entries[number])


def _audit_entry(job: Job, entry: SourceFile) -> EntryResult:
    result = EntryResult()
    context = _context(job, entry, result.failures)
    if context is not None:
        for rule in job.rules:
            try:
                result.findings += rule.check(context)
            except Exception as error:
                result.failures.append(_internal(entry, f"rule {rule.code} {rule.name}", error))
        if job.launch is not None:
            from ddp_audit.launch.notes import launch_notes

            result.notes = launch_notes(context)
        result.limits = list(context.program.limits)
    result.paths = job.project.read_paths
    return result


def _context(job: Job, entry: SourceFile, failures: list[SourceError]) -> Context | None:
    from ddp_audit.rule import Context

    lower = job.lower
    try:
        if lower is None:
            from ddp_audit.program import lower as installed

            lower = installed
        program = lower(
            job.project,
            entry,
            overrides={**_launch_overrides(job.launch, entry), **job.explicit},
            world_size=None if job.launch is None else job.launch.world_size,
            defaults_hold=job.defaults_hold,
        )
    except (RecursionError, MemoryError):
        failures.append(SourceError(entry.path, None, "is nested too deeply to be audited"))
        return None
    except Exception as error:
        failures.append(_internal(entry, "reading the program", error))
        return None
    texts = program.documents or {entry.path: entry.text}
    documented = [launch for path, text in texts.items() for launch in documented_launches(text, path)]
    return Context(program, job.launch, documented)


def _launch_overrides(launch: Launch | None, entry: SourceFile) -> dict[str, Override]:
    """What the launch's arguments set, where it is this entry that it starts."""
    from ddp_audit.launch.scaling import starts

    if launch is None or not starts(launch, entry.path):
        return {}
    return overrides_of(launch, [Path.cwd(), Path(entry.abspath).parent])


def _internal(entry: SourceFile, what: str, error: Exception) -> SourceError:
    if os.environ.get("DDP_AUDIT_DEBUG"):
        raise error
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return SourceError(entry.path, None, f"{what} failed: {text} (an error in ddp-audit; DDP_AUDIT_DEBUG=1 shows where)")
