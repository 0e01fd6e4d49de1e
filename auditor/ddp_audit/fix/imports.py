"""What the imports of a file call a thing, and an import added where it is called nothing yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import libcst as cst

from ddp_audit.fix.tree import FixNotApplicable, Tree, bindings, dotted, is_docstring, walk

_Import = cst.Import | cst.ImportFrom


class Imports:
    """The imports at the top level of a file, as they are used at a line. New ones are noted in `added` until `put_into`."""

    def __init__(self, tree: Tree, line: int) -> None:
        self._tree, self._line = tree, line
        self.added: list[tuple[str, str | None]] = []  # module, and the name that is taken from it
        imported = [node for node in walk(tree.module) if isinstance(node, cst.Import | cst.ImportFrom)]
        skipped = {id(part) for node in imported for part in walk(node)}
        others = _without(tree.module, skipped)
        self._bound = set(bindings(others))
        self._known = dict(_names(tree, line))

    def name_of(self, full: str) -> str | None:
        """What the file calls `torch.distributed.get_rank` at the line: `dist.get_rank`; None where it has no sure name."""
        parts = full.split(".")
        for end in range(len(parts), 0, -1):
            head = ".".join(parts[:end])
            for local, meant in self._known.items():
                if meant == head and local.split(".")[0] not in self._bound:
                    return ".".join([local, *parts[end:]])
        return None

    def taken(self, *fulls: str) -> str | None:
        """The name by which one of several things was imported itself; None where none was."""
        return next((n for n, meant in self._known.items() if meant in fulls and "." in meant and n not in self._bound), None)

    def take(self, module: str, name: str) -> str:
        """A name for what a module holds, imported from it where it is not yet. Raises Refused where that name is another's."""
        return self.taken(f"{module}.{name}") or self._noted(module, name)

    def is_name_of(self, text: str | None, full: str) -> bool:
        """Whether a dotted text surely means a thing."""
        if text is None:
            return False
        first, _, rest = text.partition(".")
        if first in self._bound or first not in self._known:
            return False
        return ".".join([self._known[first], *([rest] if rest else [])]) in {full, _SAME.get(full, full)}

    def is_call_of(self, statement: cst.CSTNode, full: str) -> bool:
        """Whether a statement is nothing but a call of a thing."""
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return False
        small = statement.body[0]
        return isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) and self.is_name_of(dotted(small.value.func), full)

    def wanted(self, full: str, by: str = "") -> str:
        """A name for a thing, with an import noted if it has none. `by` is a module that the file mostly has a name for.

        Raises Refused where the new name means something else in this file.
        """
        known = self.name_of(full)
        if known is not None:
            return known
        module, _, name = full.rpartition(".")
        what = (module, name) if by != module else (module, None)
        if module and what[1] is None:
            return f"{self._noted(module, None)}.{name}"
        return self._noted(module, name) if module else self._noted(full, None)

    def _noted(self, module: str, name: str | None) -> str:
        local = name or module.split(".")[0]
        if local in self._bound or (local in self._known and self._known[local] not in (module, f"{module}.{name}", local)):
            raise FixNotApplicable(f"{local} means something else in this file")
        if (module, name) not in self.added:
            self.added.append((module, name))
        return name or module

    def put_into(self, module: cst.Module) -> cst.Module:
        """The module with the imports that were noted."""
        for source, name in self.added:
            module = _with_import(module, source, name)
        return module


_SAME = {  # one thing under two names
    "torch.utils.data.DataLoader": "torch.utils.data.dataloader.DataLoader",
    "torch.utils.data.DistributedSampler": "torch.utils.data.distributed.DistributedSampler",
}


def _names(tree: Tree, line: int) -> Iterator[tuple[str, str]]:
    """Local name and full name of what the import statements of the top level above a line import."""
    for statement in tree.module.body:
        if not isinstance(statement, cst.SimpleStatementLine) or tree.position(statement).start.line >= line:
            continue
        for small in statement.body:
            if isinstance(small, cst.Import):
                for alias in small.names:
                    full = dotted(alias.name) or ""
                    if alias.asname is not None:
                        yield dotted(alias.asname.name) or "", full
                    else:
                        yield full.split(".")[0], full.split(".")[0]
            elif isinstance(small, cst.ImportFrom) and not small.relative and not isinstance(small.names, cst.ImportStar):
                source = dotted(small.module) if small.module is not None else ""
                for alias in small.names:
                    local = alias.asname.name if alias.asname is not None else alias.name
                    yield dotted(local) or "", f"{source}.{dotted(alias.name)}"


def _without(node: cst.CSTNode, skipped: set[int]) -> list[cst.CSTNode]:
    """The largest parts of a node that hold nothing of what is skipped."""
    if not any(id(part) in skipped for part in walk(node)):
        return [node]
    return [part for child in node.children if id(child) not in skipped for part in _without(child, skipped)]


def _with_import(module: cst.Module, source: str, name: str | None) -> cst.Module:
    body = list(module.body)
    if name is not None:
        for index, statement in enumerate(body):
            small = _import_in(statement)
            if isinstance(small, cst.ImportFrom) and _source(small) == source and not isinstance(small.names, cst.ImportStar):
                assert isinstance(statement, cst.SimpleStatementLine)
                body[index] = statement.with_changes(body=[small.with_changes(names=_with_alias(small.names, name))])
                return module.with_changes(body=body)
    text = f"import {source}" if name is None else f"from {source} import {name}"
    new = cst.parse_statement(text)
    assert isinstance(new, cst.SimpleStatementLine)
    first, groups = _groups(body)
    root = source.split(".")[0]
    if root in sys.stdlib_module_names:
        shares = {index: sum(_root(body[i]) in sys.stdlib_module_names for i in g) / len(g) for index, g in enumerate(groups)}
        group = groups[max(shares, key=shares.__getitem__)] if any(shares.values()) else None  # the first of the fullest
        if group is None:  # a group of its own, before the others
            if groups and (here := groups[0][0]) < len(body):
                old = body[here]
                assert isinstance(old, cst.SimpleStatementLine)
                new = new.with_changes(leading_lines=old.leading_lines)
                body[here] = old.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
                first = here
            else:
                new = new.with_changes(leading_lines=[cst.EmptyLine(indent=False)] if first else [])
            return module.with_changes(body=[*body[:first], new, *body[first:]])
    else:
        alike = [g for g in groups if any(_root(body[i]) == root for i in g)]
        group = alike[0] if alike else (groups[-1] if groups else None)
    if group is None:
        return module.with_changes(body=[*body[:first], new, *body[first:]])
    at = _place_in(body, group, source, name)
    if at == group[0]:  # takes over the lines before the group
        old = body[at]
        assert isinstance(old, cst.SimpleStatementLine)
        new = new.with_changes(leading_lines=old.leading_lines)
        body[at] = old.with_changes(leading_lines=[])
    return module.with_changes(body=[*body[:at], new, *body[at:]])


def _place_in(body: Sequence[cst.CSTNode], group: Sequence[int], source: str, name: str | None) -> int:
    """Before the first import of a group that comes later in the order `import` before `from`, then by name; else behind it."""
    own = (name is not None, source)
    keys = [(isinstance(small, cst.ImportFrom), _source(small)) for i in group if (small := _import_in(body[i])) is not None]
    mixed = any(left > right for left, right in pairwise(keys))
    if mixed:  # in no order that is known here
        root = source.split(".")[0]
        inside = sys.stdlib_module_names if root in sys.stdlib_module_names else {root}
        last = [i for i, key in zip(group, keys, strict=True) if key[1].split(".")[0] in inside]
        return (last[-1] if last else group[-1]) + 1
    return next((i for i, key in zip(group, keys, strict=True) if key > own), group[-1] + 1)


def _groups(body: Sequence[cst.CSTNode]) -> tuple[int, list[list[int]]]:
    """Where imports may begin (after docstring and `__future__`), and those before other code, by the blank lines between."""
    first = 0
    groups: list[list[int]] = []
    for index, statement in enumerate(body):
        small = _import_in(statement)
        if small is None:
            if index == 0 and is_docstring(statement):
                first = 1
                continue
            break
        if _source(small) == "__future__":
            first = index + 1
            continue
        assert isinstance(statement, cst.SimpleStatementLine)
        if groups and not any(line.comment is None for line in statement.leading_lines):
            groups[-1].append(index)
        else:
            groups.append([index])
    return first, groups


def _import_in(statement: cst.CSTNode) -> _Import | None:
    """The import that a statement is, where it is nothing else."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Import | cst.ImportFrom):
            return small
    return None


def _source(small: _Import) -> str:
    if isinstance(small, cst.Import):
        return dotted(small.names[0].name) or ""
    return "." * len(small.relative) + ((dotted(small.module) or "") if small.module is not None else "")


def _root(statement: cst.CSTNode) -> str:
    small = _import_in(statement)
    return "" if small is None else _source(small).split(".")[0]


def _with_alias(names: Sequence[cst.ImportAlias], name: str) -> list[cst.ImportAlias]:
    """The names of an import with one more, in its place where they are sorted; the commas keep their line breaks."""
    texts = [dotted(alias.name) or "" for alias in names]
    at = len(names)
    for key in (str, str.lower):
        if texts == sorted(texts, key=key):
            at = sum(key(text) < key(name) for text in texts)
            break
    commas = [alias.comma for alias in names]
    between = commas[0] if len(names) > 1 else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    fresh = [*names[:at], cst.ImportAlias(cst.Name(name)), *names[at:]]
    return [alias.with_changes(comma=comma) for alias, comma in zip(fresh, [between, *commas], strict=True)]
