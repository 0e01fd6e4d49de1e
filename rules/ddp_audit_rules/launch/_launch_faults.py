"""Faults of the launches of a job, and sentences that launches disagree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ddp_audit.launch.faults import launch_faults, local_rank_fault
from ddp_audit.launch.jobs import Fault, job_faults, jobs_of
from ddp_audit.launch.model import MPIRUN, SRUN, Launch, ProseClaim
from ddp_audit.launch.prose import disagreement
from ddp_audit.launch.scaling import starts
from ddp_audit.rule import Context
from ddp_audit.tree.nodes import ParseArguments, Program, Spawn


def faults_of(context: Context, launches: Sequence[Launch]) -> list[Fault]:
    """The faults of documented jobs, those of single launches, and those of --local_rank, in this order."""
    faults = [fault for job in jobs_of(context.documented, context.lines) for fault in job_faults(job, context.lines)]
    faults += _once(fault for launch in launches for fault in launch_faults(launch, context.lines))
    return faults + _once(_local_rank(context.program, launches))


def _once(faults: Iterable[Fault]) -> list[Fault]:
    """Faults of single launches, once a document and message: the commands of further nodes join the first one."""
    found: dict[tuple[str | None, str, str], Fault] = {}
    for fault in faults:
        key = (fault.launches[0].path, fault.kind, fault.message)
        known = found.get(key)
        found[key] = fault if known is None else replace(known, launches=(*known.launches, *fault.launches))
    return list(found.values())


def _local_rank(program: Program, launches: Iterable[Launch]) -> Iterator[Fault]:
    parses = [node for node in program.of(ParseArguments) if node.flags]
    for launch in launches:
        for node in parses[:1]:
            place = (node.span.path, node.span.line)
            if starts(launch, program.entry):
                fault = local_rank_fault(launch, node.flags, node.strict, place)
                if fault is not None:
                    yield fault


def starting_all(program: Program, documented: Iterable[Launch]) -> list[Launch]:
    """The launches that start every process of the job: MPI may start one on each node, which spawns the others."""
    return [launch for launch in documented if launch.kind not in (MPIRUN, SRUN) or not program.has(Spawn)]


def by_claim(documented: Iterable[Launch]) -> Iterator[tuple[ProseClaim, list[tuple[Launch, str]]]]:
    """The launches that disagree with their sentence, by sentence: those of one job share one."""
    groups: dict[tuple[str | None, int], list[tuple[Launch, str]]] = {}
    for launch in documented:
        reason = disagreement(launch)
        if reason is not None and launch.prose is not None:
            groups.setdefault((launch.path, launch.prose.line), []).append((launch, reason))
    for launches in groups.values():
        claim = launches[0][0].prose
        assert claim is not None
        yield claim, launches
