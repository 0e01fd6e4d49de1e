"""Where ranks see a path, or what stands there, differently: what DDP702 tells of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Collective, FileAccess, FileTouch, Init, Node, Program, UnfollowedCall, Wrap
from ddp_audit.tree.questions import differs_by_itself
from ddp_audit.tree.values import CLOCK, FILES, RANDOM, RANK, Value, World, behind, operation_of, path_key
from ddp_audit_rules.facts.writers import ONE, ONE_A_NODE, SEVERAL, in_turn, is_of_each_rank, passes, path_of, who

_MAKES = ("write", "append", "mkdir", "download")
_LOOKS = ("read", "exists")


class Use(NamedTuple):
    """A path that several ranks use. `writer`, for a read that may come too early: the node at which another rank makes it."""

    node: FileTouch
    path: Value
    writer: FileTouch | None = None


def own_names(program: Program) -> Iterator[Use]:
    """The first use of each name that every rank makes for itself and more than one uses."""
    reported: set[tuple[object, ...]] = set()
    for node in program.of(FileTouch):
        path = path_of(node)
        if path is None or not _is_own_name(path) or who(program, node) != SEVERAL:
            continue
        stem = (node.span.path, node.function, clock_text(path))
        if stem not in reported:
            reported.add(stem)
            yield Use(node, path)


def early_reads(program: Program) -> Iterator[Use]:
    """Reads by ranks that did not wait for the one that writes the same path."""
    reported: set[Span] = set()
    written: list[tuple[FileTouch, tuple[object, ...]]] = []
    there: set[tuple[object, ...]] = set()  # folders that all ranks have made, or the process that starts them
    for node in program.nodes:
        if _meets(node):
            written.clear()
            continue
        if not isinstance(node, FileTouch):
            continue
        path = path_of(node)
        key = None if path is None else path_key(path)
        if path is None or key is None or path.taint & {CLOCK, RANDOM}:
            continue
        own = is_of_each_rank(path)  # then it is the folder alone that all need
        what = node.touch
        if what == "mkdir" and who(program, node) == SEVERAL:  # with the folders above it
            written = [(w, at) for w, at in written if not (w.touch == "mkdir" and _is_under(key, at, w))]
        if what == "mkdir" and not node.rank_guards:
            there.add(key)
        if what == "mkdir" and key in there:
            continue
        if what in (*_MAKES, "save") and not own and who(program, node) in (ONE, ONE_A_NODE) and node.rank_guards:
            written.append((node, key))
        elif what in (*_LOOKS, "load", "save", "write", "append") and node.span not in reported:
            ahead = [w for w, at in written if _needs(node, key, at, w) and (w.touch == "mkdir" or not own)]
            writer = next((w for w in ahead if _other_rank_reads(w, node)), None)
            if writer is not None and not _asks_for_files(node) and not _makes_it(program, node, key):
                reported.add(node.span)
                yield Use(node, path, writer)


def is_read_after(program: Program, writer: FileTouch, reader: FileTouch) -> bool:
    """Whether a run that writes a file in one function comes to read it on all ranks in another.

    A condition of the reader alone, other than one on ranks, may choose another run: one that tests what was trained before.
    """
    files = writer.touch in ("save", "write", "append") and reader.touch in ("read", "load")
    if not files or not (writer.is_called and reader.is_called) or who(program, reader) != SEVERAL:
        return False
    common = {(guard.span, guard.polarity) for guard in writer.guards}
    return all(guard.taint or (guard.span, guard.polarity) in common for guard in reader.guards)


def downloads(program: Program) -> Iterator[Use]:
    """The first download of each kind that several ranks do at once."""
    fetched: set[str] = set()
    met: set[str] = set()
    for node in program.nodes:
        if _meets(node):
            met |= fetched
        if not isinstance(node, FileAccess) or node.what not in ("download", "unpack"):
            continue
        name = node.name
        if name in met or in_turn(program, node):
            continue
        fetched.add(name)
        path = path_of(node)
        if path is None or is_of_each_rank(path) or who(program, node) != SEVERAL:
            continue
        met.add(name)
        yield Use(node, path)


def _is_own_name(path: Value) -> bool:
    """Whether a path holds what each process reads from its clock or draws for itself; temporary names are meant to differ."""
    return bool(path.taint & {CLOCK, RANDOM}) and not path.taint & {RANK, FILES} and differs_by_itself(_own_part(path))


def clock_text(path: Value) -> str:
    """The source of the part of a path that the clock or chance makes."""
    return _own_part(path).text


def _own_part(path: Value) -> Value:
    own = [value for value in behind(path) if value.taint & {CLOCK, RANDOM} and operation_of(value) not in ("format", "/", "+")]
    return own[-1] if own else path


def _meets(node: Node) -> bool:
    """Whether all ranks wait for each other at a node."""
    if isinstance(node, (Init, Wrap, Backward)):
        return not node.rank_guards
    # A call that was not followed may be one; one behind a guard is half of a pair: ranks that wait for their turn.
    return isinstance(node, (Collective, UnfollowedCall))


def _other_rank_reads(writer: Node, reader: Node) -> bool:
    """Whether some rank reads that does not write."""
    for world in (World(rank, size, 2) for size in (2, 4) for rank in range(size)):
        if passes(reader, world) and passes(writer, world) is False:
            return True
    return False


def _is_under(key: tuple[object, ...], at: tuple[object, ...], writer: FileTouch) -> bool:
    """Whether a path is the written one, or lies in the folder that is made."""
    if key == at:
        return True
    if writer.touch != "mkdir" or not at or len(key) < len(at) or key[: len(at) - 1] != at[:-1]:
        return False
    inner, outer = key[len(at) - 1], at[-1]
    return inner == outer or (isinstance(inner, str) and isinstance(outer, str) and inner.startswith(outer.rstrip("/") + "/"))


def _needs(reader: FileTouch, key: tuple[object, ...], at: tuple[object, ...], writer: FileTouch) -> bool:
    """Whether a reader needs what another rank writes; what is read from a folder was there before the folder was made."""
    looks = reader.touch in (*_LOOKS, "load")
    if looks and writer.touch == "mkdir":
        return key == at
    if not looks and writer.touch != "mkdir":
        return False  # what writes a file itself waits for no other writer of it
    return _is_under(key, at, writer)


def _makes_it(program: Program, look: Node, key: tuple[object, ...]) -> bool:
    """Whether a look is followed by a mkdir of the same folder where it finds none, on the same way: then nobody is waited for."""
    for node in program.of(FileAccess):
        if node.number > look.number and node.calls == look.calls and node.what == "mkdir":
            path = path_of(node)
            asks = any(FILES in guard.test.taint for guard in node.guards[len(look.guards) :])
            if path is not None and path_key(path) == key and asks and node.guards[: len(look.guards)] == look.guards:
                return True
    return False


def _asks_for_files(reader: Node) -> bool:
    """Whether a reader looks first, waits for the file in a loop, or catches that it is missing."""
    return (
        bool(reader.tries)
        or any(FILES in guard.test.taint for guard in reader.guards)
        or any(loop.kind == "while" for loop in reader.loops[-1:])
    )
