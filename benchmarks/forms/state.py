"""Where the variables of a function live: attributes of an object, a dict, a namespace, globals, the function of a trainer."""

from __future__ import annotations

import libcst as cst
from libcst.metadata import FunctionScope

from forms.form import (
    Form,
    Rewriter,
    as_statements,
    block,
    bound_in,
    expr,
    jumps,
    looks_at_names,
    names_in,
    of,
    split_docstring,
    stmt,
)  # fmt: skip

TEXTS = {
    "namespace": ("{s} = types.SimpleNamespace()", "{s}.{v}", "", ("types",)),
    "dict": ("{s} = {{}}", "{s}['{v}']", "", ()),
    "object": ("{s} = {T}()", "{s}.{v}", "class {T}:\n    pass\n", ()),
}


class Lifted(Rewriter):
    """Each variable of a function at the top as an attribute or a key of one object.

    Left as they are: parameters, and what is bound in another way than by an assignment or a loop, or known to a function inside.
    """

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        if looks_at_names(module):
            self.allowed = False
        else:
            self.allowed = True
        self.kind = kind
        self.renamed: dict[int, str] = {}
        self.lifted: dict[cst.FunctionDef, str] = {}
        self.defined = ""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if not self.allowed or not isinstance(self.function_around(node), cst.Module) or node.asynchronous:
            return
        body = as_statements(node.body)
        plain, other = bound_in(body)
        variables = plain - other
        scope = next((self.scope_of(one) for one in body if isinstance(self.scope_of(one), FunctionScope)), None)
        if scope is None or not variables:
            return
        name = self.fresh("run_state")
        for variable in sorted(variables):
            assignments = list(scope.assignments[variable])  # type: ignore[attr-defined]
            if not assignments or any(not isinstance(one.node, cst.Name) for one in assignments):
                continue
            nodes = [one.node for one in assignments] + [access.node for one in assignments for access in one.references]
            if any(not isinstance(one, cst.Name) for one in nodes):
                continue
            for one in nodes:
                self.renamed[id(one)] = TEXTS[self.kind][1].format(s=name, v=variable)
            self.lifted[node] = name

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        text = self.renamed.get(id(original_node))
        return updated_node if text is None else expr(text)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        name = self.lifted.get(original_node)
        if name is None:
            return updated_node
        made, _, top, imports = TEXTS[self.kind]
        self.need(*imports)
        if top and not self.defined:
            self.defined = self.fresh("RunState")
            self.top(top.format(T=self.defined))
        self.changes += 1
        doc, rest = split_docstring(as_statements(updated_node.body))
        return updated_node.with_changes(body=block([*doc, stmt(made.format(s=name, T=self.defined)), *rest]))


class OnSelf(Lifted):
    """A function without parameters as the method `run` of a trainer that keeps its variables on self."""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if node.params.params or "self" in names_in([node]) or node.decorators or "yield" in jumps(as_statements(node.body)):
            return
        before = set(self.lifted)
        super().visit_FunctionDef(node)
        for new in set(self.lifted) - before:
            old, self.lifted[new] = self.lifted[new], "self"
            self.renamed = {key: text.replace(f"{old}.", "self.") for key, text in self.renamed.items()}

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:  # type: ignore[override]
        if original_node not in self.lifted:
            return updated_node
        self.changes += 1
        home, name = self.fresh("Runner"), updated_node.name.value
        method = updated_node.with_changes(
            name=cst.Name("run"), params=cst.Parameters(params=[cst.Param(cst.Name("self"))]), leading_lines=()
        )
        made = stmt(f"class {home}:\n    pass\n").with_changes(body=block([method]), leading_lines=updated_node.leading_lines)  # type: ignore[union-attr]
        return cst.FlattenSentinel([made, stmt(f"def {name}():\n    return {home}().run()\n")])


class Globals(Rewriter):
    """The variables of a main() declared global."""

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if updated_node.name.value != "main" or updated_node.params.params or looks_at_names(self.module):
            return updated_node
        if not isinstance(self.function_around(original_node), cst.Module):
            return updated_node
        doc, rest = split_docstring(as_statements(updated_node.body))
        plain, other = bound_in(rest)
        rest_of_module = [one for one in self.module.body if one is not original_node]
        taken = names_in(rest_of_module)
        names = sorted(plain - other - taken)
        if not names or any(isinstance(one, cst.FunctionDef | cst.ClassDef) for one in rest):
            return updated_node
        self.changes += 1
        return updated_node.with_changes(body=block([*doc, stmt(f"global {', '.join(names)}"), *rest]))


FORMS: list[Form] = [
    of("state", "variables in a SimpleNamespace", lambda module: Lifted(module, "namespace")),
    of("state", "variables in a dict", lambda module: Lifted(module, "dict")),
    of("state", "variables in a state object", lambda module: Lifted(module, "object")),
    of("state", "variables on self of a runner", lambda module: OnSelf(module, "object")),
    of("state", "variables of main as globals", Globals),
]
