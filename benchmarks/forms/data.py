"""Where values stand: in a config, in a tuple that is unpacked, with a type; texts put together otherwise; contexts."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst import matchers as m

from forms.form import Form, Rewriter, Statement, Unfit, as_statements, block, bound_in, expr, flat, holding, jumps, of, stmt
from forms.holders import may_move

Done = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]
LITERAL = m.Integer() | m.Float() | m.SimpleString()


class Configured(Rewriter):
    """Constants that calls are given with a keyword, and those in range(), in a config at the top."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind
        self.values: dict[str, str] = {}
        self.config = self.fresh("CONFIG" if kind in ("dict", "nested") else "config")

    def _take(self, name: str, node: cst.BaseExpression) -> cst.BaseExpression:
        text = self.code(node)
        key = next((key for key, value in self.values.items() if value == text and key.rpartition("_")[0] == name), None)
        if key is None:
            key = f"{name}_{len(self.values)}"
            self.values[key] = text
        self.changes += 1
        if self.kind == "dict":
            return expr(f"{self.config}['{key}']")
        if self.kind == "nested":
            return expr(f"{self.config}['train']['{key}']")
        return expr(f"{self.config}.{key}" if self.kind != "constants" else key.upper())

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        name = updated_node.func.value if isinstance(updated_node.func, cst.Name) else ""
        if name == "range" or m.matches(updated_node.func, m.Attribute(attr=m.Name("init_process_group"))):
            args = [
                one.with_changes(value=self._take("count" if name else "backend", one.value))
                if m.matches(one, m.Arg(value=LITERAL, keyword=None))
                else one
                for one in updated_node.args
            ]
        elif m.matches(updated_node.func, m.Attribute(attr=m.Name("add_argument"))):
            return updated_node
        else:
            args = [
                one.with_changes(value=self._take(one.keyword.value, one.value))
                if one.keyword is not None and m.matches(one.value, LITERAL)
                else one
                for one in updated_node.args
            ]
        return updated_node.with_changes(args=args)

    def finished(self, module: cst.Module) -> cst.Module:
        """The config comes before everything else."""
        pairs = self.values.items()
        if self.kind == "dict":
            self.top(f"{self.config} = {{{', '.join(f'{key!r}: {value}' for key, value in pairs)}}}\n")
        elif self.kind == "nested":
            self.top(f"{self.config} = {{'train': {{{', '.join(f'{key!r}: {value}' for key, value in pairs)}}}, 'name': 'one'}}\n")
        elif self.kind == "constants":
            if any(key.upper() in self.names for key in self.values):
                raise Unfit("constants")
            self.top("".join(f"{key.upper()} = {value}\n" for key, value in pairs))
        elif self.kind == "namespace":
            self.need("types")
            self.top(f"{self.config} = types.SimpleNamespace({', '.join(f'{key}={value}' for key, value in pairs)})\n")
        elif self.kind == "dataclass":
            self.need("dataclasses")
            home = self.fresh("Config")
            fields = "".join(f"    {key}: {self._type(value)} = {value}\n" for key, value in pairs)
            self.top(f"@dataclasses.dataclass\nclass {home}:\n{fields}\n\n{self.config} = {home}()\n")
        else:
            home = self.fresh("Config")
            self.top(
                f"class {home}:\n" + "".join(f"    {key} = {value}\n" for key, value in pairs) + f"\n\n{self.config} = {home}\n"
            )
        return super().finished(module)

    def _type(self, text: str) -> str:
        return type(expr(text)).__name__.replace("Integer", "int").replace("Float", "float").replace("SimpleString", "str")


class Assigned(Rewriter):
    """The value of each assignment to one name, kept otherwise."""

    def __init__(self, module: cst.Module, text: str) -> None:
        super().__init__(module)
        self.text = text
        self.declared = {item.name.value for one in m.findall(module, m.Global() | m.Nonlocal()) for item in one.names}  # type: ignore[attr-defined]

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Done:
        if not m.matches(updated_node, m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())])])):
            return updated_node
        assign = updated_node.body[0]
        assert isinstance(assign, cst.Assign)
        target, value = self.code(assign.targets[0].target), self.code(assign.value)
        bare = isinstance(assign.value, cst.Tuple) and not assign.value.lpar
        if target in self.declared or self.in_class_body(original_node) or jumps([assign]) or isinstance(assign.value, cst.Yield):
            return updated_node
        self.changes += 1
        words = {"t": target, "v": f"({value})" if bare else value, "n": self.fresh("other")}
        return flat(updated_node, *cst.parse_module(self.text.format(**words)).body)


class AugmentedApart(Rewriter):
    """`x = x + y` for `x += y` of numbers."""

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Done:
        shape = m.AugAssign(target=m.Name(), operator=m.AddAssign() | m.SubtractAssign(), value=m.Integer() | m.Float())
        if not m.matches(updated_node, m.SimpleStatementLine(body=[shape])):
            return updated_node
        one = updated_node.body[0]
        assert isinstance(one, cst.AugAssign)
        sign = "+" if isinstance(one.operator, cst.AddAssign) else "-"
        self.changes += 1
        return flat(updated_node, stmt(f"{self.code(one.target)} = {self.code(one.target)} {sign} {self.code(one.value)}"))


class Texts(Rewriter):
    """An f-string put together otherwise."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def leave_FormattedString(self, original_node: cst.FormattedString, updated_node: cst.FormattedString) -> cst.BaseExpression:
        texts, values = [], []
        for part in updated_node.parts:
            if isinstance(part, cst.FormattedStringText):
                if set(part.value) & set("{}%\\'\""):
                    return updated_node
                texts.append(part.value)
                values.append(None)
            elif isinstance(part, cst.FormattedStringExpression):
                if part.format_spec is not None or part.conversion is not None or part.equal is not None:
                    return updated_node
                texts.append("")
                values.append(self.code(part.expression))
        asked = [one for one in values if one is not None]
        if not asked or not isinstance(self.parent(original_node), cst.Arg | cst.Assign):
            return updated_node
        self.changes += 1
        if self.kind == "format":
            text = "".join(text if value is None else "{}" for text, value in zip(texts, values, strict=True))
            return expr(f"'{text}'.format({', '.join(asked)})")
        if self.kind == "percent":
            text = "".join(text if value is None else "%s" for text, value in zip(texts, values, strict=True))
            return expr(f"'{text}' % ({', '.join(asked)},)")
        parts = [f"'{text}'" if value is None else f"str({value})" for text, value in zip(texts, values, strict=True)]
        return expr(f"({' + '.join(parts)})" if self.kind == "plus" else f"''.join([{', '.join(parts)}])")


class Withs(Rewriter):
    """A `with` of one context, entered by an ExitStack or through a variable; one of several, nested."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> Done:
        items, body = list(updated_node.items), as_statements(updated_node.body)
        if updated_node.asynchronous:
            return updated_node
        if self.kind == "nested":
            if len(items) < 2:
                return updated_node
            self.changes += 1
            inner = updated_node.with_changes(items=[one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in items[1:]])
            inner = inner.with_changes(lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT, leading_lines=())
            first = items[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated_node.with_changes(items=[first], body=block([inner]))
        entered: list[Statement] = []
        if self.kind == "stack":
            self.need("contextlib")
            stack = self.fresh("stack")
            for one in items:
                call = f"{stack}.enter_context({self.code(one.item)})"
                entered.append(stmt(call if one.asname is None else f"{self.code(one.asname.name)} = {call}"))
            self.changes += 1
            return flat(updated_node, holding(f"with contextlib.ExitStack() as {stack}:\n    pass\n", [*entered, *body]))
        if len(items) != 1:
            return updated_node
        name = self.fresh("context")
        self.changes += 1
        kept = updated_node.with_changes(items=[items[0].with_changes(item=cst.Name(name))], leading_lines=())
        return flat(updated_node, stmt(f"{name} = {self.code(items[0].item)}"), kept)


class Flags(Rewriter):
    """`if c: flag = True` as an accumulation, where only truth values are given to the flag and it has one before."""

    def __init__(self, module: cst.Module, text: str) -> None:
        super().__init__(module)
        self.text = text

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> Done:
        parent = self.parent(original_node)
        if (isinstance(parent, cst.If) and parent.orelse is original_node) or updated_node.orelse is not None:
            return updated_node
        body = as_statements(updated_node.body)
        gets_true = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Name("True"))])
        if len(body) != 1 or not m.matches(body[0], gets_true) or not may_move(updated_node.test):
            return updated_node
        name = self.code(body[0].body[0].targets[0].target)  # type: ignore[union-attr]
        scope = self.scope_of(original_node)
        if not self._is_flag(name, scope if scope is not None else self.scope_of(original_node.test), original_node):
            return updated_node
        self.changes += 1
        return flat(updated_node, stmt(self.text.format(t=name, c=f"({self.code(updated_node.test)})")))

    def _is_flag(self, name: str, scope: object, node: cst.CSTNode) -> bool:
        around = self.function_around(node)
        statements: Sequence[cst.CSTNode] = around.body if isinstance(around, cst.Module) else as_statements(around.body)  # type: ignore[attr-defined]
        plain, other = bound_in(statements)
        given = m.findall(
            cst.Module(body=list(statements)), m.Assign(targets=[m.ZeroOrMore(), m.AssignTarget(m.Name(name)), m.ZeroOrMore()])
        )  # type: ignore[arg-type]
        values = [one.value.value for one in given if isinstance(one.value, cst.Name)]  # type: ignore[attr-defined]
        first = [one for one in statements if isinstance(one, cst.SimpleStatementLine) and self.code(one) == f"{name} = False"]
        return name in plain - other and len(values) == len(given) and set(values) <= {"True", "False"} and bool(first)


KINDS = {"dict": "in a dict", "nested": "in a dict of dicts", "constants": "at the top", "namespace": "in a SimpleNamespace"}
KINDS |= {"dataclass": "in a dataclass", "class": "in a class"}
FORMS: list[Form] = [
    *(of("data", f"constants {said}", lambda module, kind=kind: Configured(module, kind)) for kind, said in KINDS.items()),
    of("data", "assigned by unpacking", lambda module: Assigned(module, "{t}, {n} = {v}, None\n")),
    of("data", "assigned from a list", lambda module: Assigned(module, "{t} = [{v}][0]\n")),
    of("data", "assigned from a dict", lambda module: Assigned(module, "{t} = dict(value={v})['value']\n")),
    of("data", "assigned with a type", lambda module: Assigned(module, "{t}: object = {v}\n")),
    of("data", "assigned twice at once", lambda module: Assigned(module, "{t} = {n} = {v}\n")),
    of("data", "assigned through a variable", lambda module: Assigned(module, "{n} = {v}\n{t} = {n}\n")),
    of("data", "assigned through a list", lambda module: Assigned(module, "{n} = [{v}]\n[{t}] = {n}\n")),
    of("data", "added without +=", AugmentedApart),
    *(
        of("data", f"f-string by {kind}", lambda module, kind=kind: Texts(module, kind))
        for kind in ("format", "percent", "plus", "join")
    ),
    of("data", "with by an ExitStack", lambda module: Withs(module, "stack")),
    of("data", "with of a variable", lambda module: Withs(module, "variable")),
    of("data", "with of several nested", lambda module: Withs(module, "nested")),
    of("data", "flag by or", lambda module: Flags(module, "{t} = {t} or bool({c})\n")),
    of("data", "flag by |=", lambda module: Flags(module, "{t} |= bool({c})\n")),
    of("data", "flag by any()", lambda module: Flags(module, "{t} = any([{t}, {c}])\n")),
    of("data", "flag by a ternary", lambda module: Flags(module, "{t} = True if {c} else {t}\n")),
]
