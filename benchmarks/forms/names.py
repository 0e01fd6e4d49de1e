"""Other names for variables, functions, classes, attributes and methods."""

from __future__ import annotations

import libcst as cst
from libcst import matchers as m
from libcst.metadata import FunctionScope, GlobalScope, Scope

from forms.form import Form, Rewriter, Unfit, loads_in, looks_at_names, of

WORDS = (
    "alpha",
    "bravo",
    "coast",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "jetty",
    "knoll",
    "lemon",
    "maple",
    "north",
)


class _Texts(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        self.found.append(node.value)

    def visit_FormattedStringText(self, node: cst.FormattedStringText) -> None:
        self.found.append(node.value)


def texts_in(node: cst.CSTNode) -> str:
    """All texts of a program."""
    visitor = _Texts()
    node.visit(visitor)
    return "\n".join(visitor.found)


class Renamed(Rewriter):
    """New names for what an assignment, a `def` or a `class` binds."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.new: dict[int, str] = {}
        self.ready = False
        if looks_at_names(module):
            raise Unfit("names")

    def visit_Module(self, node: cst.Module) -> None:
        scopes = {id(one): one for one in self._scopes(node)}
        stated = {item.name.value for one in m.findall(node, m.Global() | m.Nonlocal()) for item in one.names}  # type: ignore[attr-defined]
        number = 0
        for scope in scopes.values():
            wanted = isinstance(scope, FunctionScope) if self.kind == "locals" else isinstance(scope, GlobalScope)
            if not wanted:
                continue
            by_name: dict[str, list[object]] = {}
            for assignment in scope.assignments:
                by_name.setdefault(assignment.name, []).append(assignment)
            for name, assignments in sorted(by_name.items()):
                nodes = self._nodes(assignments)
                if nodes is None or name in stated or name.startswith("__") or name == "_":
                    continue
                new = self.fresh(f"{WORDS[number % len(WORDS)]}{number // len(WORDS) or ''}")
                number += 1
                for one in nodes:
                    self.new[id(one)] = new

    def _scopes(self, node: cst.Module) -> list[Scope]:
        found = [self.scope_of(one) for one in m.findall(node, m.Name())]
        return [one for one in found if isinstance(one, Scope)]

    def _nodes(self, assignments: list[object]) -> list[cst.Name] | None:
        found: list[cst.Name] = []
        for one in assignments:
            node = getattr(one, "node", None)
            kinds = {"functions": cst.FunctionDef, "classes": cst.ClassDef}.get(self.kind, cst.Name)
            if not isinstance(node, kinds):
                return None
            found.append(node if isinstance(node, cst.Name) else node.name)  # type: ignore[union-attr]
            for access in one.references:  # type: ignore[attr-defined]
                loaded = loads_in(access.node)
                if len(loaded) != 1:
                    return None
                found.append(loaded[0])
        return found

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self.new.get(id(original_node))
        if new is None:
            return updated_node
        self.changes += 1
        return updated_node.with_changes(value=new)


class Members(Rewriter):
    """New names for attributes or methods that a class uses on self alone, and that no text names."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.new: dict[str, str] = {}
        texts = texts_in(module)
        used = list(m.findall(module, m.Attribute()))
        elsewhere = {one.attr.value for one in used if not m.matches(one, m.Attribute(value=m.Name("self")))}  # type: ignore[attr-defined]
        plain = [
            one
            for one in m.findall(module, m.ClassDef())
            if not one.bases or self.code(one.bases[0]).endswith("Module")  # type: ignore[attr-defined]
        ]
        for one in plain:
            if kind == "methods":
                names = {f.name.value for f in one.body.body if isinstance(f, cst.FunctionDef) and not f.decorators}  # type: ignore[attr-defined]
                names -= {"forward", "train", "eval", "state_dict", "load_state_dict", "extra_repr", "reset_parameters"}
            else:
                targets = m.findall(one, m.AssignTarget(target=m.Attribute(value=m.Name("self"))))
                names = {target.target.attr.value for target in targets}  # type: ignore[attr-defined]
                names -= {f.name.value for f in m.findall(one, m.FunctionDef())}  # type: ignore[attr-defined]
            for name in sorted(names):
                known = name in elsewhere or name in texts or name.startswith("_") or name in ("training",)
                if not known and name not in self.new:
                    self.new[name] = self.fresh(f"{WORDS[-1 - len(self.new) % len(WORDS)]}{len(self.new) // len(WORDS) or ''}")
        if looks_at_names(module):
            raise Unfit("names")

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        new = self.new.get(original_node.attr.value)
        if new is None or not m.matches(original_node.value, m.Name("self")):
            return updated_node
        self.changes += 1
        return updated_node.with_changes(attr=cst.Name(new))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        new = self.new.get(original_node.name.value)
        if self.kind != "methods" or new is None or not self.in_class_body(original_node):
            return updated_node
        self.changes += 1
        return updated_node.with_changes(name=cst.Name(new))


def _form(kind: str) -> Form:
    make = Members if kind in ("methods", "attributes") else Renamed
    return of("names", f"other names for {kind}", lambda module: make(module, kind))


FORMS: list[Form] = [_form(kind) for kind in ("locals", "variables of the module", "functions", "classes", "attributes", "methods")]
