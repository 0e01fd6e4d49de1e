"""Ask both interpreters what a drawn program does, and say where CPython did otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_audit.events import BACKWARD, COLLECTIVE, FORWARD, STEP, USER, Event
from ddp_audit.explore.exact import Job, Run, predict
from ddp_audit.machine.matching import COMPLETES
from ddp_audit.program import lower
from ddp_audit.program.differing import differs
from ddp_audit.program.model import Node, Program
from ddp_audit.program.nodes import Seed
from ddp_audit.program.values import World, evaluate, worlds
from ddp_audit.source.project import Project
from oracle.standin import COMPLETED, EXITED, PROGRAM, RAISED, WAITING, Execution, RankRun

AGREES = "agrees"
SHORT = "ends early"  # and says why
WRONG = "disagrees"

_KINDS = {FORWARD: "forward", BACKWARD: "backward", STEP: "step"}
Seen = tuple[str, Any, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one engine said of one program: `verdict` is one of the constants above, `why` says where and how."""

    engine: str
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A program with what CPython did, in one world."""

    source: str
    world_size: int
    execution: Execution
    project: Project = field(repr=False)

    @classmethod
    def of(cls, source: str, world_size: int, execution: Execution) -> Question:
        """A question about a program that is in no file."""
        path = str(Path(PROGRAM).resolve())
        return cls(source, world_size, execution, Project([path], overlay={path: source.encode()}))


def ask(question: Question) -> list[Answer]:
    """The answers of the predicted run and of the program that the rules read."""
    return [_ask_run(question), _ask_program(question)]


# ---- the predicted run


def _ask_run(question: Question) -> Answer:
    if not question.project.entries:
        return Answer("run", SHORT, "not parsed")
    run = predict(Job(question.project, question.project.entries[0], question.world_size))
    early = next(iter([*run.bounds, *run.cut.values(), *(assumption.text for assumption in run.assumptions)]), "")
    problem = next(filter(None, (_apart(run, rank, question.execution.ranks[rank]) for rank in sorted(run.sequences))), "")
    if problem:
        return Answer("run", SHORT if early else WRONG, f"{problem} {early}")
    if early or run.certain or run.cut:
        return Answer("run", SHORT, early or "uncertain")
    actual = question.execution
    said = run.outcome.kind  # of the events alone: whether a process group or a step was reached is not asked here
    if (said == COMPLETES) == actual.parted and not any(rank.end == RAISED for rank in actual.ranks.values()):
        return Answer("run", WRONG, f"predicted {said}, the ranks {'parted' if actual.parted else 'met'}")
    return Answer("run", AGREES)


def _apart(run: Run, rank: int, actual: RankRun) -> str:
    """Where the predicted events of a rank, or its end, are not those that it had."""
    stop = run.stops.get(rank)
    events = run.sequences[rank] if stop is None else run.sequences[rank][: stop + 1]
    certain = run.certain.get(rank)
    # The predicted run emits nothing for a seed: its values are asked through the branches and loops that rest on them.
    issued = [event for event in actual.events if event[0] != "seed"]
    predicted = _seen(events)
    sure = predicted if certain is None else _seen(events[:certain])
    for number, (one, other) in enumerate(zip(sure, issued, strict=False)):
        if one != other:
            return f"rank {rank} event {number}: predicted {one}, was {other}"
    followed = rank not in run.cut and certain is None
    if len(sure) > len(issued) or (len(predicted) < len(issued) and followed):
        return f"rank {rank}: predicted {len(predicted)} events, were {len(issued)}"
    raised = run.raised.get(rank, "")
    if bool(raised) != (actual.end == RAISED) and actual.end != WAITING and followed:
        return f"rank {rank}: predicted end {raised or 'no error'}, was {actual.error or actual.end}"
    return ""


def _seen(events: Sequence[Event]) -> list[Seen]:
    """The events that the stand-in records, in its words."""
    out: list[Seen] = []
    for event in events:
        line = event.site.line if event.site else 0
        if event.kind == COLLECTIVE and event.origin == USER:
            out.append(("collective", event.op, line))
        elif event.kind in _KINDS:
            out.append((_KINDS[event.kind], "", line))
    return out


# ---- the program that the rules read


_NODES = {"collective": "collective", "forward": "forward", "backward": "backward", "step": "step", "seed": "seed"}


def _ask_program(question: Question) -> Answer:
    project = question.project
    program = lower(project, project.entries[0], world_size=question.world_size, defaults_hold=True)
    ranks = {world.rank: world for world in worlds(question.world_size) if world.world_size == question.world_size}
    by_place: dict[tuple[str, int], list[Node]] = {}
    for node in program.nodes:
        if node.kind in _NODES:
            by_place.setdefault((_NODES[node.kind], node.span.line), []).append(node)
    limits = next(iter(program.limits), "")
    for rank, world in ranks.items():
        for kind, _, line in question.execution.ranks[rank].events:
            nodes = by_place.get((kind, line), [])
            if not any(node.reached_by(world) is not False for node in nodes):
                verdict = SHORT if limits else WRONG
                cause = "excluded by a guard" if nodes else "no node"
                return Answer("program", verdict, f"rank {rank} issues {kind} in line {line}: {cause} {limits}")
    problem = _values(question, by_place) or _never(question, program, ranks)
    return Answer("program", SHORT if limits and problem else WRONG, problem) if problem else Answer("program", AGREES)


def _values(question: Question, by_place: Mapping[tuple[str, int], Sequence[Node]]) -> str:
    """A probe whose value differs between ranks and has no reason to; or whose computed value is another."""
    said: dict[int, dict[int, list[Any]]] = {}
    for rank, run in question.execution.ranks.items():
        for kind, what, line in run.events:
            if kind == "seed":
                said.setdefault(line, {}).setdefault(rank, []).append(what)
    for line, by_rank in sorted(said.items()):
        nodes = by_place.get(("seed", line), [])
        values = [node.seed for node in nodes if isinstance(node, Seed)]
        if not values or len(by_rank) < question.world_size:
            continue
        whole = {rank: tuple(v) for rank, v in by_rank.items()}
        if len({len(v) for v in whole.values()}) == 1 and len(set(whole.values())) > 1:
            jobs = worlds(question.world_size)
            if not any(differs(value, jobs) for value in values):
                return f"line {line}: the value differs ({dict(sorted(whole.items()))}) and has no reason to"
        if len(nodes) == 1 and not nodes[0].loops and all(len(v) == 1 for v in whole.values()):
            for world in worlds(question.world_size):
                known = evaluate(values[0], world)
                if world.world_size == question.world_size and isinstance(known, int) and known != whole[world.rank][0]:
                    return f"line {line}: {known} is predicted for rank {world.rank}, {whole[world.rank][0]} it was"
    return ""


def _never(question: Question, program: Program, ranks: Mapping[int, World]) -> str:
    """A collective that all conditions admit a rank to and that it never issued, though it ended in order."""
    for node in program.nodes:
        if node.kind != "collective" or node.loops or node.calls or node.tries:
            continue
        if node.function != "<module>":
            continue  # of a function that nothing calls, which is read by itself
        for rank, world in ranks.items():
            run = question.execution.ranks[rank]
            if run.end not in (COMPLETED, EXITED) or any(line == node.span.line for _, _, line in run.events):
                continue
            if all(guard.admits(world) is True for guard in node.guards):
                return f"line {node.span.line}: rank {rank} is said to come there and did not"
    return ""


def rid_of_cause(answer: Answer) -> Answer:
    """The answer without numbers and names, to count kinds of disagreement."""
    kind = "".join(" " if letter.isdigit() else letter for letter in answer.why.split("(")[0])
    return replace(answer, why=" ".join(kind.split())[:90])
