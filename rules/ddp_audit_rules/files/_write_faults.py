"""What goes wrong where several ranks write, make or remove one path, and how one of them alone would do it."""

from __future__ import annotations

from typing import NamedTuple

from ddp_audit.findings import Fix
from ddp_audit.tree.nodes import FileAccess, FileTouch, Guard, Init, Node, Program, Save
from ddp_audit.tree.questions import always_runs, comes_from
from ddp_audit.tree.values import CLOCK, DATA, ERROR, FILES, RANDOM, RANK, Const, Value, path_key
from ddp_audit_rules.facts.writers import SEVERAL, contents, is_checked, path_of

_DIFFERS = {RANK, DATA, RANDOM, CLOCK}


class Fault(NamedTuple):
    """What each rank `does` to a path, and what `then` comes of it. `sure` is False where it may do no harm."""

    severity: str
    sure: bool
    does: str
    then: str


def fault_of(program: Program, node: FileTouch) -> Fault | None:
    """What goes wrong where several ranks get to a node; None where it does no harm."""
    what = node.touch
    checked = is_checked(node)
    match what:
        case "save" | "output":
            severity = "warning" if checked else "error"
            return Fault(severity, True, "saves to", "the file may hold pieces of several")
        case "mkdir" if not node.tries:
            if checked:
                return Fault("warning", True, "looks for and makes", "those that look too early end with FileExistsError")
            return Fault("error", True, "makes the folder", "all but one end with FileExistsError")
        case "remove" | "move" if not node.tries and not _after_trouble(node):
            verb = "removes" if what == "remove" else "moves"
            if checked:
                then = "those that look before it is gone end with FileNotFoundError"
                return Fault("warning", True, f"looks for and {verb}", then)
            return Fault("error", True, verb, "all but one end with FileNotFoundError")
        case "write" | "append":
            written = contents(program, node)
            if any(comes_from(content, "from-network") for content in written):
                return Fault("warning", True, "downloads", "some may read a file that others are still writing")
            return _fault_of_text(written, what)
    return None


def _fault_of_text(written: list[Value], what: str) -> Fault | None:
    differs = any(content.taint & _DIFFERS for content in written)
    if what == "append":
        if not written or any(RANK in content.taint for content in written):
            return None  # nothing, or lines that say who wrote them
        return Fault("warning", differs, "appends to", "the file holds every line once for each rank, in any order")
    if not written:
        return Fault("warning", False, "empties", "what another rank has written there is lost")
    if all(isinstance(content, Const) for content in written):
        return None
    return Fault("error", differs, "writes", "the file holds what one of them wrote, or pieces of several")


def made_before(program: Program, node: FileTouch) -> bool:
    """Whether each process that comes to a mkdir has made the folder before, where it was allowed to exist."""
    path = path_of(node)
    key = None if path is None else path_key(path)
    if not key or node.touch != "mkdir":
        return False
    for other in program.of(FileAccess):
        before = path_of(other) if other.touch == "mkdir" and other.safe and other.number < node.number else None
        if before is not None and path_key(before) == key and all(_lets_through(guard, node, key) for guard in other.guards):
            return True
    return False


def _lets_through(guard: Guard, node: Node, key: tuple[object, ...]) -> bool:
    """Whether a condition holds for all who come to a node: it is one of the node's own, or asks whether the path is given."""
    return guard in node.guards or (guard.polarity and path_key(guard.test) == key)


def _after_trouble(node: Node) -> bool:
    """Whether a file is removed because an exception was caught or because it is not whole, which need not happen on two ranks."""
    return any(ERROR in guard.taint for guard in node.guards) or sum(FILES in guard.taint for guard in node.guards) > 1


def fix_of(program: Program, node: Node, many: str) -> Fix | None:
    """A folder that may exist, or a save by one rank, where the process group surely exists by then."""
    if isinstance(node, FileAccess) and node.what == "mkdir":
        return Fix("safe" if is_checked(node) else "unsafe", "pass exist_ok=True", "exist-ok", "pass `exist_ok=True`")
    first = next(program.of(Init), None)
    made = first is not None and first.number < node.number and always_runs(program, first)
    if not isinstance(node, Save) or many != SEVERAL or not made or program.frameworks:
        return None
    return Fix("unsafe", "let rank 0 write (`if dist.get_rank() == 0:`), and put a barrier before others read", "one-rank")
