"""What is wrong with the ranks of a job, from what they wrote: who is missing or stopped, devices, versions, files, data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ddp_audit.preflight.problems import ERROR, INFO, WARNING, Problem, listed, plain, rank_list
from ddp_audit.preflight.settings import backend_names

_LATE = 5.0  # seconds that a rank comes after the one before it
_SHOWN = 5  # files of one node that a problem names

# Variables that may differ between nodes: names of a node's devices, what it logs, where it keeps files.
_LOCAL_VARIABLES = (
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"),
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_TRACE"),
)
# With DETAIL a group has further collectives of its own, which ranks of another level never join (distributed_c10d, torch 2.13).
_VARIABLES = {**dict.fromkeys(_LOCAL_VARIABLES, INFO), "TORCH_DISTRIBUTED_DEBUG": ERROR}
_VERSIONS = {"python": WARNING, "torch": ERROR, "cuda": ERROR, "nccl": ERROR, "driver": WARNING}


@dataclass(frozen=True, slots=True)
class Known:
    """The states of ranks, by rank, and the plan of rank 0; both empty as far as nothing is known."""

    states: Mapping[int, dict[str, Any]]
    plan: Mapping[str, Any]
    came: Mapping[int, float]

    @property
    def facts(self) -> dict[int, dict[str, Any]]:
        """The facts of the ranks that came so far."""
        return {rank: state["facts"] for rank, state in self.states.items() if "facts" in state}

    @property
    def leaders(self) -> dict[int, dict[str, Any]]:
        """The states of the ranks that read what their node shares."""
        return {rank: state for rank, state in self.states.items() if state.get("files") is not None}

    def node(self, rank: int) -> str:
        """`node 1 (gpu02)`."""
        state = self.states.get(rank, {})
        node, host = str(state.get("node", "?")), state.get("facts", {}).get("host")
        return plain(node if host in (None, node) else f"{node} ({host})", 80)


def known_of(job: Mapping[str, Any] | None, ranks: Mapping[int, dict[str, Any]]) -> Known:
    """What rank 0 gathered, with what the ranks of this node wrote themselves where that is newer."""
    states: dict[int, dict[str, Any]] = {}
    if job is not None:
        states = {int(rank): state for rank, state in job["ranks"].items()}
    for rank, state in ranks.items():
        if rank not in states or state["at"] > states[rank]["at"] or "facts" not in states[rank]:
            states[rank] = state
    came = {int(rank): after for rank, after in job["came"].items()} if job is not None else {}
    return Known(dict(sorted(states.items())), {} if job is None else job["plan"], came)


def rank_problems(known: Known) -> Iterator[Problem]:
    """Everything that the ranks' states show, apart from what they measured."""
    yield from _standing(known)
    yield from _backend(known)
    yield from _devices(known)
    yield from _differences(known)
    yield from _files(known)
    yield from _data(known)
    yield from _shared(known)


# -- who is there -------------------------------------------------------------------------------------------------------


def _standing(known: Known) -> Iterator[Problem]:
    missing = known.plan.get("missing", [])
    for rank in missing:
        state = known.states.get(rank)
        waited = f"after {known.plan['waited']:.0f} s"
        where = f"; it is in {state['phase']}" if state is not None else ""
        yield Problem(
            "rank-missing",
            ERROR,
            f"Rank {rank} has not come to the store {waited}{where}.",
            "Look at the output of that rank, and check that its node reaches the address and port of rank 0.",
            (rank,),
        )
    yield from _ended_early(known, missing)
    unnamed = [rank for rank, state in known.states.items() if state.get("address_named") is False]
    if unnamed:
        yield Problem(
            "address-missing",
            INFO,
            f"The launcher does not set MASTER_ADDR and MASTER_PORT for {rank_list(unnamed)}.",
            "Set both before the launch, unless the script derives them itself.",
            tuple(unnamed),
        )
    order = sorted(known.came.items(), key=lambda item: item[1])
    for (_, before), (_, after) in pairwise(order):
        if after - before > _LATE:
            late = [one for one, time in order if time >= after]
            yield Problem(
                "rank-late",
                INFO,
                f"{rank_list(late).capitalize()} came {after - before:.0f} s after the others.",
                "Check what is slow there before the script starts: imports, the file system, the scheduler.",
                tuple(late),
            )
            break


def _ended_early(known: Known, missing: list[int]) -> Iterator[Problem]:
    """Ranks that stopped or failed. Where some came less far than others, the others wait or fail because of them."""
    stopped = [rank for rank, state in known.states.items() if not state["ended"] and rank not in missing]
    failed: dict[tuple[str, str], list[int]] = {}
    for rank, state in known.states.items():
        if state["error"]:
            failed.setdefault((state["phase"], state["error"]), []).append(rank)
    first = min((state["step"] for rank, state in known.states.items() if rank in stopped or state["error"]), default=0)
    causes = [rank for rank in stopped if known.states[rank]["step"] == first]
    for rank in stopped:
        state = known.states[rank]
        yield Problem(
            "rank-stopped",
            ERROR if rank in causes else INFO,
            f"Rank {rank} ({known.node(rank)}) did not come out of {state['phase']}, which it entered after {state['at']:.1f} s.",
            "Check that its process lives, its device and its network; the other ranks wait for it."
            if rank in causes
            else "This follows from what another rank did before.",
            (rank,),
        )
    own = any(state["error"] and state["step"] == first and not state.get("timed_out") for state in known.states.values())
    for (phase, error), ranks in failed.items():
        state = known.states[ranks[0]]
        follows = bool(causes) or state["step"] > first or (own and bool(state.get("timed_out")))
        yield Problem(
            "rank-failed",
            INFO if follows else ERROR,
            f"{rank_list(ranks).capitalize()} failed in {phase}: {plain(error, 400)}.",
            "This follows from what another rank did before." if follows else _fix_of(state),
            tuple(ranks),
        )


def _fix_of(state: Mapping[str, Any]) -> str:
    if state["error"].startswith(("ModuleNotFoundError", "ImportError")):
        return f"Start the job with a Python that has it; the rank ran {plain(state.get('executable'))}."
    if ("group_seconds" not in state and state["phase"] == "the process group") or state["phase"] == "the first all-reduce":
        return (
            "The ranks reach the store and not each other: check the firewall for all ports, and the interface "
            "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, what the host's name resolves to)."
        )
    return "Look at the output of that rank."


# -- devices ------------------------------------------------------------------------------------------------------------


def _backend(known: Known) -> Iterator[Problem]:
    wanted, used = known.plan.get("wanted"), known.plan.get("backend")
    names = backend_names(wanted)
    if not names or not used or used in names:
        return
    if not {"nccl", "mpi"} & set(names):
        yield Problem(
            "backend-unknown",
            INFO,
            f"The script asks for the backend {plain(wanted, 60)}, which this check does not know; it went on with {used}.",
            "Check that backend with the tests of its vendor.",
        )
        return
    without = [rank for rank, facts in known.facts.items() if facts["device"]["index"] is None or facts["device"]["error"]]
    why = (
        f"{rank_list(without)} {'has' if len(without) == 1 else 'have'} no usable GPU"
        if without
        else "this torch is built without it"
    )
    yield Problem(
        "backend-unavailable",
        ERROR,
        f"The script asks for the backend {plain(wanted, 60)}, but {why}; the check went on with {used}.",
        "Start the job where every rank has a GPU, or give the script another backend.",
        tuple(without),
    )


def _devices(known: Known) -> Iterator[Problem]:
    used: dict[tuple[str, str], list[int]] = {}
    for rank, facts in known.facts.items():
        device, local = facts["device"], facts["local_rank"]
        if device["count"] and device["index"] is None:
            yield Problem(
                "device-missing",
                ERROR,
                f"Rank {rank} has LOCAL_RANK {local}, and its node ({known.node(rank)}) shows {device['count']} GPUs.",
                "Start no more processes on a node than it has GPUs, or make all of them visible.",
                (rank,),
            )
        elif device["count"] and device["error"]:
            yield Problem(
                "device-fails",
                ERROR,
                f"GPU {device['index']} of rank {rank} ({known.node(rank)}) cannot be used: {plain(device['error'])}.",
                "Check the GPU with nvidia-smi, and take the node out of the job.",
                (rank,),
            )
        elif device["count"]:
            if device["uuid"]:
                used.setdefault((facts["host"], device["uuid"]), []).append(rank)
            if device["index"] != local:
                yield Problem(
                    "device-index",
                    INFO,
                    f"Rank {rank} has LOCAL_RANK {local} and sees one GPU, which is number 0 there.",
                    "Let the script take device 0 on such ranks, or make all GPUs visible to each.",
                    (rank,),
                )
            if device["free"] < device["total"] / 2:
                yield Problem(
                    "memory-taken",
                    WARNING,
                    f"GPU {device['index']} of rank {rank} has {_gib(device['free'])} of {_gib(device['total'])} free.",
                    "End what else runs there.",
                    (rank,),
                )
    for (host, _), ranks in used.items():
        if len(ranks) > 1:
            yield Problem(
                "device-shared",
                ERROR,
                f"{rank_list(ranks).capitalize()} have one GPU of {host}; NCCL refuses two ranks on one device.",
                "Give every rank a GPU of its own: check CUDA_VISIBLE_DEVICES and the processes a node.",
                tuple(ranks),
            )


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


# -- what differs -------------------------------------------------------------------------------------------------------


def _differences(known: Known) -> Iterator[Problem]:
    facts = known.facts
    for name, severity in _VERSIONS.items():
        values = {rank: one["versions"].get(name) for rank, one in facts.items()}
        if len(set(values.values())) > 1:
            yield Problem(
                "version-differs",
                severity,
                f"The version of {name} differs: {_by_value(values)}.",
                "Give all ranks one environment.",
                odd_ones(values),
            )
    for name in sorted({name for one in facts.values() for name in one["variables"]}):
        values = {rank: one["variables"].get(name) for rank, one in facts.items()}
        if len(set(values.values())) > 1:
            yield Problem(
                "variable-differs",
                _VARIABLES.get(name, WARNING),
                f"{name} differs: {_by_value(values)}.",
                "Set it alike on all nodes, in the job's script.",
                odd_ones(values),
            )
    if _arguments_differ(known):
        words = {rank: " ".join(state["arguments"]) or "none" for rank, state in known.states.items()}
        yield Problem(
            "arguments-differ",
            WARNING,
            f"The script's arguments differ: {_by_value(words)}.",
            "Give every node the same arguments.",
            odd_ones(words),
        )


def _arguments_differ(known: Known) -> bool:
    """Whether the ranks have other arguments, apart from words that are each rank's own place: `--rank $SLURM_PROCID`."""
    states = [state for state in known.states.values() if "facts" in state]
    if len({len(state["arguments"]) for state in states}) > 1:
        return True
    places = [
        [str(state["rank"]) for state in states],
        [str(state["facts"]["local_rank"]) for state in states],
        [str(state["node"]).removeprefix("node ") for state in states],
        [str(state["facts"]["host"]) for state in states],
    ]
    for words in zip(*(state["arguments"] for state in states), strict=True):
        parts = [word.partition("=") for word in words]
        values = [value if equals else name for name, equals, value in parts]
        named_alike = len({(name, equals) if equals else ("", "") for name, equals, _ in parts}) == 1
        if len(set(words)) > 1 and not (named_alike and values in places):
            return True
    return False


def _by_value(values: Mapping[int, Any]) -> str:
    groups: dict[Any, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return ", ".join(f"{'not set' if value is None else plain(value, 80)} on {rank_list(ranks)}" for value, ranks in groups.items())


def odd_ones(values: Mapping[int, Any]) -> tuple[int, ...]:
    """The ranks whose value is not that of most; where two values are as frequent, those that differ from the lowest rank's."""
    counts: dict[Any, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    usual = max(counts, key=lambda value: counts[value])
    return tuple(rank for rank, value in values.items() if value != usual)


def _files(known: Known) -> Iterator[Problem]:
    leaders = known.leaders
    differing: dict[tuple[int, ...], list[str]] = {}
    missing: dict[tuple[int, ...], list[str]] = {}
    for name in sorted({name for state in leaders.values() for name in state["files"]}):
        values = {rank: state["files"].get(name) for rank, state in leaders.items()}
        absent = tuple(rank for rank, value in values.items() if value is None)
        if absent:
            missing.setdefault(absent, []).append(name)
        there = {rank: value for rank, value in values.items() if value is not None}
        if len(set(there.values())) > 1:
            differing.setdefault(odd_ones(there), []).append(name)
    for groups, verb in ((differing, "has another"), (missing, "does not have")):
        for ranks, names in groups.items():
            nodes = [known.node(rank) for rank in ranks]
            shown = listed([plain(name, 120) for name in names[:_SHOWN]])
            more = f" and {len(names) - _SHOWN} more files" if len(names) > _SHOWN else ""
            yield Problem(
                "file-differs" if groups is differing else "file-missing",
                ERROR,
                f"{_capital(listed(nodes))} {verb if len(nodes) == 1 else verb.replace('has', 'have').replace('does', 'do')} "
                f"{shown}{more}.",
                "Bring all nodes to one state of the source: one commit, or one shared folder.",
                ranks,
                tuple(nodes),
            )


def _data(known: Known) -> Iterator[Problem]:
    leaders = {rank: state for rank, state in known.states.items() if state.get("data")}
    for path in dict.fromkeys(path for state in leaders.values() for path in state["data"]):
        facts = {rank: state["data"].get(path, {"error": "not asked for"}) for rank, state in leaders.items()}
        bad = {rank: one["error"] for rank, one in facts.items() if "error" in one}
        for rank, error in bad.items():
            yield Problem(
                "data-missing",
                ERROR,
                f"{_capital(known.node(rank))} does not have the data {plain(path)}: {plain(error)}.",
                "Copy the data to every node, or name a path that all nodes share.",
                (rank,),
                (known.node(rank),),
            )
        good = {rank: one for rank, one in facts.items() if rank not in bad}
        for field, what in (("kind", "kind"), ("size", "size"), ("files", "number of files"), ("names", "names or sizes of files")):
            values = {rank: one.get(field) for rank, one in good.items()}
            if len(set(values.values())) > 1:
                shown = f": {_by_value(values)}" if field != "names" else f" on {rank_list(odd_ones(values))}"
                yield _other_data(known, path, f"{what}{shown}", odd_ones(values))
                break
        else:
            for field, what in (("head", "the first MiB"), ("tail", "the last MiB"), ("samples", "the samples")):
                values = {rank: one.get(field) for rank, one in good.items()}
                if len(set(values.values())) > 1:
                    yield _other_data(known, path, f"{what}, and not in size", odd_ones(values))
                    break


def _other_data(known: Known, path: str, how: str, ranks: Sequence[int]) -> Problem:
    nodes = tuple(known.node(rank) for rank in ranks)
    return Problem(
        "data-differs",
        ERROR,
        f"The data {plain(path)} of {listed(nodes)} differs from that of the other nodes in {how}.",
        "Copy the data again, or name a path that all nodes share.",
        tuple(ranks),
        nodes,
    )


def _shared(known: Known) -> Iterator[Problem]:
    looks = [(rank, look) for rank, state in known.states.items() for look in state.get("shared", ())]
    for path in dict.fromkeys(look["path"] for _, look in looks):
        mine = {rank: look for rank, look in looks if look["path"] == path}
        for rank, look in mine.items():
            if look["error"]:
                yield Problem(
                    "not-writable",
                    ERROR if rank == 0 else WARNING,
                    f"Rank {rank} ({known.node(rank)}) cannot write to {plain(path)}: {plain(look['error'])}.",
                    "Make the folder on all nodes, writable for the job.",
                    (rank,),
                    (known.node(rank),),
                )
        blind: dict[tuple[int, ...], list[int]] = {}
        for rank, look in mine.items():
            unseen = tuple(writer for writer in look["expected"] if writer not in look["seen"])
            if unseen:
                blind.setdefault(unseen, []).append(rank)
        for unseen, ranks in blind.items():
            alone = len(mine) > 1 and all(look["seen"] == [rank] for rank, look in mine.items() if rank in look["expected"])
            yield Problem(
                "not-shared",
                ERROR,
                f"{plain(path)} is not shared: {rank_list(ranks)} ({_places(known, ranks)}) "
                f"{'does' if len(ranks) == 1 else 'do'} not see what {rank_list(unseen)} wrote"
                f"{'; every node sees its own file alone' if alone else ''}.",
                "Name a folder of a file system that all nodes mount, by its absolute path.",
                tuple(ranks),
                tuple(dict.fromkeys(known.node(rank) for rank in ranks)),
            )


def _places(known: Known, ranks: Iterable[int]) -> str:
    return listed(list(dict.fromkeys(known.node(rank) for rank in ranks)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
