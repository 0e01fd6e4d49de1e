"""How modules come in: under other names, name by name, inside of functions, through a second file, in a try, by importlib."""

from __future__ import annotations

import libcst as cst
from libcst import matchers as m
from libcst.metadata import Assignment, FunctionScope, GlobalScope

from forms.form import (
    Form,
    Rewriter,
    Unfit,
    as_statements,
    block,
    expr,
    is_future,
    is_import,
    loads_in,
    looks_at_names,
    of,
    split_docstring,
    stmt,
)


def alias_name(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    if alias.asname is not None:
        assert isinstance(alias.asname.name, cst.Name)
        return alias.asname.name.value
    return cst.Module(body=[]).code_for_node(alias.name).split(".")[0]


def top_imports(module: cst.Module) -> list[cst.SimpleStatementLine]:
    """The statements at the top that only import, without those from `__future__`."""
    return [one for one in module.body if is_import(one) and not is_future(one)]  # type: ignore[misc]


def bound_by(statement: cst.SimpleStatementLine) -> list[str]:
    """The names that an import statement binds. Raises Unfit for a star."""
    found = []
    for part in statement.body:
        assert isinstance(part, cst.Import | cst.ImportFrom)
        if isinstance(part.names, cst.ImportStar):
            raise Unfit("star")
        found += [alias_name(alias) for alias in part.names]
    return found


class Aliased(Rewriter):
    """`import x as other` and `from x import y as other` for each import at the top."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module)
        self.new: dict[int, str] = {}
        self.alias: dict[int, str] = {}
        if looks_at_names(module):
            raise Unfit("names")

    def visit_Module(self, node: cst.Module) -> None:
        for statement in top_imports(node):
            for part in statement.body:
                for alias in part.names if not isinstance(part.names, cst.ImportStar) else ():  # type: ignore[union-attr]
                    dotted = isinstance(part, cst.Import) and isinstance(alias.name, cst.Attribute) and alias.asname is None
                    scope = self.scope_of(part)
                    found = [] if dotted or not isinstance(scope, GlobalScope) else list(scope[alias_name(alias)])
                    if len(found) == 1 and isinstance(found[0], Assignment):
                        self._take(alias, found[0])

    def _take(self, alias: cst.ImportAlias, assignment: Assignment) -> None:
        new = self.fresh(f"the_{alias_name(alias).lower()}")
        nodes = [[one for one in loads_in(access.node) if one.value == alias_name(alias)] for access in assignment.references]
        if all(len(one) == 1 for one in nodes):
            self.alias[id(alias)] = new
            self.new |= {id(one[0]): new for one in nodes}

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self.new.get(id(original_node))
        return updated_node if new is None else updated_node.with_changes(value=new)

    def leave_ImportAlias(self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias) -> cst.ImportAlias:
        new = self.alias.get(id(original_node))
        if new is None:
            return updated_node
        self.changes += 1
        space = cst.SimpleWhitespace(" ")
        return original_node.with_changes(asname=cst.AsName(cst.Name(new), whitespace_before_as=space, whitespace_after_as=space))


class FromDistributed(Rewriter):
    """`from torch.distributed import barrier` or `torch.distributed.barrier` where `dist.barrier` is used."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.taken: dict[str, str] = {}

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if not m.matches(original_node, m.Attribute(value=m.Name("dist"))):
            return updated_node
        scope = self.scope_of(original_node.value)
        found = list(scope["dist"]) if scope is not None else []  # type: ignore[index]
        line = self.code(found[0].node) if len(found) == 1 and isinstance(found[0], Assignment) else ""
        if line not in ("import torch.distributed as dist", "from torch import distributed as dist"):
            return updated_node
        self.changes += 1
        attribute = original_node.attr.value
        if self.kind == "dotted":
            self.need_line("import torch.distributed")
            return expr(f"torch.distributed.{attribute}")
        if attribute not in self.taken:
            self.taken[attribute] = self.fresh(attribute if self.kind == "from" else f"dist_{attribute}")
            name = self.taken[attribute]
            self.need_line(f"from torch.distributed import {attribute}" + (f" as {name}" if name != attribute else ""))
        return cst.Name(self.taken[attribute])


class InFunctions(Rewriter):
    """Imports that only functions use, in each of these."""

    def visit_Module(self, node: cst.Module) -> None:
        self.moved: dict[str, str] = {}
        self.homes: dict[cst.FunctionDef, list[str]] = {}
        self.gone: list[cst.SimpleStatementLine] = []
        for statement in top_imports(node):
            names = bound_by(statement)
            if len(names) != 1 or len(statement.body) != 1:
                continue
            scope = self.scope_of(statement.body[0])
            assignments = list(scope[names[0]])  # type: ignore[index]
            homes = [self._home(access.node) for one in assignments for access in one.references]
            if len(assignments) != 1 or not homes or None in homes:
                continue
            self.gone.append(statement)
            for home in dict.fromkeys(homes):
                self.homes.setdefault(home, []).append(self.code(statement))  # type: ignore[arg-type]

    def _home(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The outermost function that a name is looked up in."""
        if not isinstance(self.scope_of(node), FunctionScope):
            return None
        at, home = node, None
        while not isinstance(at, cst.Module):
            below, at = at, self.parent(at)
            if isinstance(at, cst.FunctionDef):
                home = at if below is at.body else None
            if isinstance(at, cst.ClassDef):
                return home if isinstance(home, cst.FunctionDef) else None
        return home

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        lines = self.homes.get(original_node)
        if not lines:
            return updated_node
        doc, rest = split_docstring(as_statements(updated_node.body))
        return updated_node.with_changes(body=block([*doc, *map(stmt, dict.fromkeys(lines)), *rest]))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if not any(one is original_node for one in self.gone):
            return updated_node
        self.changes += 1
        return cst.RemoveFromParent()


class Reexported(Rewriter):
    """All imports at the top through a second file."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        lines = top_imports(updated_node)
        names = list(dict.fromkeys(name for line in lines for name in bound_by(line)))
        if not lines or (self.kind == "star" and any(name.startswith("_") for name in names)):
            return updated_node
        self.changes += 1
        file = self.fresh("common")
        self.files[f"{file}.py"] = cst.Module(body=[line.with_changes(leading_lines=()) for line in lines]).code
        line = f"from {file} import {'*' if self.kind == 'star' else ', '.join(names)}"
        body = list(updated_node.body)
        place = next(i for i, one in enumerate(body) if one is lines[0])
        kept = [one for one in body[place:] if not any(one is line for line in lines)]
        return updated_node.with_changes(body=[*body[:place], stmt(line), *kept])


class Distributed(Rewriter):
    """`import torch.distributed as dist` written otherwise."""

    def __init__(self, module: cst.Module, text: str, imports: tuple[str, ...] = ()) -> None:
        super().__init__(module)
        self.text, self.imports = text, imports

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if self.code(updated_node) != "import torch.distributed as dist":
            return updated_node
        self.need(*self.imports)
        self.changes += 1
        return cst.FlattenSentinel(cst.parse_module(self.text).body)


FORMS: list[Form] = [
    of("imports", "under other names", Aliased),
    of("imports", "names of torch.distributed", lambda module: FromDistributed(module, "from")),
    of("imports", "other names of torch.distributed", lambda module: FromDistributed(module, "as")),
    of("imports", "torch.distributed in full", lambda module: FromDistributed(module, "dotted")),
    of("imports", "in functions", InFunctions),
    of("imports", "through a second file", lambda module: Reexported(module, "names")),
    of("imports", "through a second file, all of it", lambda module: Reexported(module, "star")),
    of("imports", "from torch import distributed", lambda module: Distributed(module, "from torch import distributed as dist\n")),
    of(
        "imports",
        "in a try",
        lambda module: Distributed(module, "try:\n    import torch.distributed as dist\nexcept ImportError:\n    dist = None\n"),
    ),
    of(
        "imports",
        "by importlib",
        lambda module: Distributed(module, "dist = importlib.import_module('torch.distributed')\n", ("importlib",)),
    ),
]
