"""The rendezvous that a script writes into its own environment: an address or a port that cannot be, or differs by process."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddp_audit.findings import Span
from ddp_audit.launch.model import Launch
from ddp_audit.launch.scaling import starts
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.program.model import Node, Program, first_of_each_place
from ddp_audit.program.nodes import EnvironmentSet, Spawn
from ddp_audit.program.values import CLOCK, FILES, RANDOM, Const, Value, constant
from ddp_audit.source.paths import place_of

# A port that the statement itself looks for, and not one that was found before and handed on.
_DRAWN_HERE = lazy_compile(r"\b\w*(?:rand|port|sock|choice|sample)\w*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    """A finding about one assignment, as the rule reports it."""

    span: Span
    message: str
    why: str
    remedy: str
    severity: str = "warning"
    confidence: str = "likely"


def environment_faults(program: Program) -> Iterator[Setting]:
    """The settings of the rendezvous in the code of a program that do not describe a job."""
    spawns = {node.span for node in program.of(Spawn)}
    for node in first_of_each_place(program.of(EnvironmentSet)):
        value = node.value
        if node.name == "MASTER_PORT":
            text = program.line(node.span.path, node.span.line)
            drawn = bool(_DRAWN_HERE.search(text)) and bool(value.taint & {RANDOM, CLOCK, FILES})
            yield from _port(node, value, drawn, inside=any(call in spawns for call in node.calls), spawns=bool(spawns))
        elif node.name == "MASTER_ADDR":
            yield from _address(node, value, "setdefault" in program.line(node.span.path, node.span.line))


def local_addresses(program: Program, launches: Iterable[Launch]) -> Iterator[Setting]:
    """Where a script sets MASTER_ADDR to the machine that it runs on, though a launch starts it on several."""
    several = next((one for one in launches if _nodes(one) > 1 and starts(one, program.entry)), None)
    if several is None:
        return
    for node in first_of_each_place(program.of(EnvironmentSet)):
        address = constant(node.value)
        fixed = isinstance(node.value, Const) and node.value.default is None and not node.guards
        if node.name != "MASTER_ADDR" or not fixed or "setdefault" in program.line(node.span.path, node.span.line):
            continue
        if isinstance(address, str) and (address == "localhost" or _is_loopback(address)):
            where = f" ({place_of(several.path, several.line or 1)})" if several.path is not None else ""
            yield Setting(
                node.span,
                f"MASTER_ADDR is set to {address}, and a launch starts this script on {_nodes(several)} nodes{where}.",
                "The ranks of every node look for the rendezvous on their own machine, so those of the other nodes wait until it "
                "times out. What the launcher has set is overwritten.",
                "leave MASTER_ADDR to the launcher",
            )


def _nodes(launch: Launch) -> int:
    return launch.nnodes if isinstance(launch.nnodes, int) else 1


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _port(node: Node, value: Value, drawn: bool, inside: bool, spawns: bool) -> Iterator[Setting]:
    number = value.value if isinstance(value, Const) else None
    if isinstance(number, str) and number.isdigit():
        number = int(number)
    if type(number) is int and not 0 <= number <= 65_535:
        yield Setting(
            node.span,
            f"MASTER_PORT is set to {number}, and a port is at most 65535.",
            "init_process_group refuses it on every rank before anything else happens.",
            "take a free port between 1024 and 65535",
        )
    elif drawn and (inside or not spawns):
        yield Setting(
            node.span,
            "Every process sets a MASTER_PORT of its own here, so the ranks do not meet.",
            "The value is drawn or looked up in each process by itself. All ranks must find one port: each waits at its own, until "
            "the rendezvous times out. It would be right before the processes are spawned, where all of them inherit it.",
            "choose the port once, before the processes start, or leave it to torchrun",
            confidence="likely" if inside else "possible",
        )


def _address(node: Node, value: Value, only_default: bool) -> Iterator[Setting]:
    text = value.value if isinstance(value, Const) else None
    if not isinstance(text, str) or not re.fullmatch(r"\d+(\.\d+){3}", text):
        return
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        yield Setting(
            node.span,
            f"MASTER_ADDR is set to {text}, which no machine can have as its address.",
            "No rank finds the rendezvous, so init_process_group fails on every rank.",
            "take the address from the environment, where the launcher puts it",
        )
        return
    if not (address.is_loopback or address.is_unspecified or only_default):
        yield Setting(
            node.span,
            f"MASTER_ADDR is fixed to {text} here, whatever the launcher says.",
            "The script runs on the machine with that address and nowhere else; elsewhere every rank waits for it until the "
            "rendezvous times out. What torchrun or a batch job sets is overwritten.",
            "set it only where the environment has none: os.environ.setdefault('MASTER_ADDR', ..)",
            severity="info",
        )
