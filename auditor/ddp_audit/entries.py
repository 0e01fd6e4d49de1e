"""The audit of entries one by one: lowering and rules, in this process or spread over several with the same outcome."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit import budget
from ddp_audit.carried import as_object, carry
from ddp_audit.findings import Finding
from ddp_audit.source import dependency_log
from ddp_audit.source.deep_stack import run_with_deep_stack
from ddp_audit.source.dependency_log import DependencyLog
from ddp_audit.source.files import SourceError, SourceFile
from ddp_audit.source.problems import said_of
from ddp_audit.source.project import Project, Tell
from ddp_audit.source.project_hints import ProjectHints
from ddp_audit.source.suppress import MARK

if TYPE_CHECKING:
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.launch import Launch
    from ddp_audit.launch.overrides import Override
    from ddp_audit.outcome import Coverage
    from ddp_audit.program.model import Program
    from ddp_audit.program.observation import Observer
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
    hints: ProjectHints = field(default_factory=ProjectHints)
    every: Callable[[], Sequence[Rule]] | None = None  # all rules, those that do not run too


@dataclass(slots=True)
class EntryResult:
    """What one entry came to. `coverage` says how far it was followed, `paths` which files were read (absolute).

    `documents` are the texts of documents (README, shell scripts, manifests) that start the entry, by path: those with a finding
    or a suppression comment. `predicted` is the outcome of the predicted run, where a rule asked for it. `seen` is all that the
    result rests on.
    """

    findings: list[Finding] = field(default_factory=list)
    failures: list[SourceError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    predicted: dict[str, Any] | None = None
    coverage: Coverage | None = None
    seen: DependencyLog | None = None  # where something is being noted


def audit_entries(
    job: Job, processes: int = 1, known: Mapping[str, EntryResult] | None = None, tell: Tell | None = None
) -> list[EntryResult]:
    """The results of the project's entries, in their order, whatever the number of processes.

    `known` has those that need no audit, by absolute path.
    """
    known = known or {}
    entries = job.project.entries
    fresh = [number for number, entry in enumerate(entries) if entry.abspath not in known]
    results = {number: known[entry.abspath] for number, entry in enumerate(entries) if entry.abspath in known}
    done = len(results)

    def advance(number: int) -> None:
        if tell is not None:
            tell("auditing", done, len(entries), entries[number].path)

    processes = min(processes, len(fresh))
    if processes < 2 or len(fresh) < _WORTH_PROCESSES or not hasattr(os, "fork"):
        for number in fresh:
            advance(number)
            results[number] = _noted(job, entries[number])
            done += 1
    else:
        global _forked
        _forked = job  # forked children have it without a copy being sent
        try:
            tried: list[EntryResult | None] = []
            for number, result in zip(fresh, _in_processes(fresh, processes), strict=True):
                tried.append(result)
                done += 1
                advance(number)
            # A process that ends takes others' work with it: what is missing is tried again one by one, to name the right entry.
            for number, result in zip(fresh, tried, strict=True):
                results[number] = result or _alone(number) or _lost(entries[number])
        finally:
            _forked = None
    for number in range(len(entries)):  # what other processes read is read here too: reports and suppressions need its text
        result = results[number]
        if result.seen is not None:
            dependency_log.add(result.seen)
        for path in result.paths:
            job.project.load(path)
    return [results[number] for number in range(len(entries))]


_forked: Job | None = None


def _in_processes(numbers: Sequence[int], processes: int) -> Iterator[EntryResult | None]:
    """The results of some entries, in order; None where the process ended before there was one."""
    from concurrent.futures import ProcessPoolExecutor  # 20 ms that the audit of one script does not need
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, get_context("fork"), initializer=_end_quietly_when_interrupted) as pool:
        for future in [pool.submit(_audit_number, number) for number in numbers]:
            try:
                yield future.result()
            except (BrokenProcessPool, MemoryError, RecursionError):  # the last two: in what the process sends
                yield None


def _alone(number: int) -> EntryResult | None:
    (result,) = _in_processes([number], 1)
    return result


def _lost(entry: SourceFile) -> EntryResult:
    text = "the process that audited it was ended from outside, as by a lack of memory (--jobs 1 audits in one process)"
    return EntryResult(failures=[SourceError(entry.path, None, text)])


def _end_quietly_when_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent reports it


def _audit_number(number: int) -> EntryResult:
    assert _forked is not None
    return _noted(_forked, _forked.project.entries[number])


def _noted(job: Job, entry: SourceFile) -> EntryResult:
    """The result of an entry, with all that it rests on where that is being noted."""
    if not dependency_log.is_recording():
        return _audit_entry(job, entry)
    with dependency_log.recording() as noted:
        result = _audit_entry(job, entry)
    result.seen = noted
    return result


def _audit_entry(job: Job, entry: SourceFile) -> EntryResult:
    """The audit of an entry, or what kept it from one."""
    try:
        with budget.bounded_memory(), budget.bounded_time():
            return run_with_deep_stack(lambda: _audited(job, entry))
    except RecursionError:
        why = "is nested too deeply to be audited"
    except MemoryError:
        why = budget.TOO_MUCH_MEMORY
    except budget.GaveUp:
        why = budget.too_slow()
    gc.collect()  # what it was given up for lies in circles; the next audits in this process have their own bounds in addition
    return EntryResult(failures=[SourceError(entry.path, None, why)], paths=job.project.read_paths)


def _audited(job: Job, entry: SourceFile) -> EntryResult:
    result = EntryResult()
    job.project.begin(entry)
    context = context_of(job, entry, result.failures)
    if context is not None:
        for rule in job.rules:
            try:
                result.findings += rule.check(context)
            except (RecursionError, MemoryError):
                raise
            except Exception as error:
                result.failures.append(_internal(entry, f"rule {rule.code} {rule.name}", error))
        every = list(job.rules) if job.every is None else job.every()
        result.findings, resting = carry(result.findings, job.rules, every, context)
        if (predicted := context.was_predicted) is not None:
            result.predicted = as_object(predicted, entry.path, resting)
        result.coverage = _coverage_of(context)
        if job.launch is not None:
            from ddp_audit.launch.notes import launch_notes

            result.notes = launch_notes(context)
        found = {finding.span.path for finding in result.findings}
        result.documents = {path: text for path, text in context.texts.items() if path in found or MARK in text}
    result.paths = job.project.read_paths
    return result


def _coverage_of(context: Context) -> Coverage | None:
    from ddp_audit.covered import coverage_of

    return coverage_of(context.program, context.was_predicted)


def context_of(job: Job, entry: SourceFile, failures: list[SourceError]) -> Context | None:
    """What the rules ask; None where reading the program failed, which `failures` then says. Raises RecursionError."""
    from ddp_audit.launch.beside import documents_beside
    from ddp_audit.rule import Context

    lower = job.lower
    overrides = {**launch_overrides(job.launch, entry), **job.explicit}
    try:
        if lower is None:
            from ddp_audit.program import lower as installed

            lower = installed
        hints: dict[str, Any] = {} if job.hints == ProjectHints() else {"hints": job.hints}
        lowered = functools.partial(
            lower,
            job.project,
            entry,
            overrides=overrides,
            world_size=None if job.launch is None else job.launch.world_size,
            defaults_hold=job.defaults_hold,
            **hints,
        )
        program = lowered()
    except (RecursionError, MemoryError):
        raise
    except Exception as error:
        failures.append(_internal(entry, "reading the program", error))
        return None
    texts = program.documents or {entry.path: entry.text}
    documented = list(_launches_in(job.project, texts))
    documented += spawned_launches(program)
    beside = documents_beside(entry.abspath, frozenset(job.project.read_paths))
    launches = [*documented, *beside.launches]
    predict = functools.partial(_predicted, job, entry, overrides)
    return Context(program, job.launch, launches, beside.texts, predict, lambda: _observed(lowered, program))


def _observed(lowered: Lower, program: Program) -> Observer:
    """What is seen at each place of a program that is lowered once more. What its observer cannot reach is unknown there."""
    from ddp_audit.program.observation import Observer

    observer = Observer(program.world_size)
    lowered(observer=observer)
    return observer


def _predicted(job: Job, entry: SourceFile, overrides: Mapping[str, Override]) -> Predicted:
    from ddp_audit.explore.proof import job_of_script, predicted

    return predicted(job_of_script(job.project, entry, job.launch, overrides, hints=job.hints))


def documented_of(project: Project, entry: SourceFile, program: Program) -> tuple[list[Launch], dict[str, str]]:
    """The launches that a script's own files and the documents next to it describe, and the texts of those documents by path."""
    from ddp_audit.launch.beside import documents_beside, with_config

    texts = program.documents or {entry.path: entry.text}
    found = list(_launches_in(project, texts))
    found = [with_config(launch, str(Path(launch.path or "").absolute()), str(Path.cwd())) for launch in found]
    beside = documents_beside(entry.abspath, frozenset(project.read_paths))
    return [*found, *spawned_launches(program), *beside.launches], beside.texts


def _launches_in(project: Project, texts: Mapping[str, str]) -> Iterator[Launch]:
    """The launches that texts of the project's files describe; in a notebook with lines that are written as those of cells."""
    from ddp_audit.launch.beside import launches_in

    notebooks = {file.path: file.notebook for file in project.files if file.path in texts and file.notebook is not None}
    for path, text in texts.items():
        for launch in launches_in(text, path):
            yield replace(launch, line=notebooks[path].line(launch.line)) if path in notebooks and launch.line else launch


def spawned_launches(program: Program) -> list[Launch]:
    """The processes that the script starts itself, one launch a place."""
    if not program.starts_ranks:
        return []
    from ddp_audit.launch.spawned import spawned_launches as read

    return read(program)


def launch_overrides(launch: Launch | None, entry: SourceFile) -> dict[str, Override]:
    """What the launch's arguments set, where it is this entry that it starts."""
    from ddp_audit.launch.scaling import starts

    if launch is None or not starts(launch, entry.path):
        return {}
    from ddp_audit.launch.overrides import overrides_of

    return overrides_of(launch, [Path.cwd(), Path(entry.abspath).parent])


def _internal(entry: SourceFile, what: str, error: Exception) -> SourceError:
    if os.environ.get("DDP_AUDIT_DEBUG"):
        raise error
    shown = f"{what} failed: {said_of(error)} (an error in ddp-audit; DDP_AUDIT_DEBUG=1 shows where)"
    return SourceError(entry.path, None, shown, is_internal=True)
