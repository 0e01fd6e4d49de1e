"""Rules about the form of code: visitors of libcst, with matchers, that may ask what the auditor knows of each node.

A `CstRule` has methods named as those of a libcst visitor (`visit_Call`, `leave_With`), or decorated by `visiting` and `leaving`
with a matcher. They call `report`. libcst is imported when a rule applies to a file, and a file is parsed once for all rules.
"""

from __future__ import annotations

import functools
from abc import ABC
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.rule import Context, Rule

if TYPE_CHECKING:
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    from ddp_audit.program.model import Guard, Node

_Method = TypeVar("_Method", bound=Callable[..., Any])
_BLOCKS = ("Module", "IndentedBlock", "SimpleStatementSuite", "Lambda", "ListComp", "GeneratorExp", "SetComp", "DictComp")
_MATCHED = "_ddp_audit_matchers"  # attribute of a method: (visit or leave, what gives the matcher)


def visiting(matcher: Callable[[Any], Any]) -> Callable[[_Method], _Method]:
    """Calls a method of a rule for the nodes that a matcher fits, before the nodes inside them.

    `matcher` gets the module libcst.matchers, so that the rule need not import it: `@visiting(lambda m: m.Call(func=m.Name()))`.
    """
    return _matched("visit", matcher)


def leaving(matcher: Callable[[Any], Any]) -> Callable[[_Method], _Method]:
    """Calls a method of a rule for the nodes that a matcher fits, after the nodes inside them."""
    return _matched("leave", matcher)


def _matched(when: str, matcher: Callable[[Any], Any]) -> Callable[[_Method], _Method]:
    def mark(method: _Method) -> _Method:
        setattr(method, _MATCHED, [*getattr(method, _MATCHED, []), (when, matcher)])
        return method

    return mark


class CstRule(Rule, ABC):
    """A rule that visits the files of a script as trees of libcst.

    `requires` are words one of which a file has to hold to be visited; without any, every file is. The methods ask about nodes
    of the file that is being visited.
    """

    requires: ClassVar[tuple[str, ...]] = ()
    VALID: ClassVar[tuple[str, ...]] = ()  # programs without a finding, for `rule_testing`
    INVALID: ClassVar[tuple[str, ...]] = ()  # programs with findings, in the lines with a comment `# finding` where there is one

    _visit: _Visit

    def check(self, context: Context) -> Iterable[Finding]:
        """The findings in all files of the script that hold one of the words."""
        found: list[Finding] = []
        for path, text in context.program.documents.items():
            if self.requires and not any(word in text for word in self.requires):
                continue
            try:
                self._visit = _Visit(context, path, _parsed(text))
            except _Unreadable as error:
                context.program.limits.append(f"{path} cannot be read by libcst ({error}), which {self.code} needs")
                continue
            self.begin()
            self._visit.file.visit(_visitor(type(self))(self))
            found += self._visit.found
        return found

    def begin(self) -> None:
        """Called before each file is visited: the place to forget what was noted in the one before."""

    # ---- what a method may do

    def report(
        self,
        node: cst.CSTNode,
        message: str,
        explanation: str = "",
        *,
        related: Iterable[Related] = (),
        confidence: str = "likely",
        severity: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Reports a finding at a node. Conditions around it that the program's defaults exclude lower the confidence."""
        span = self.span(node)
        guards = self.guards(node)
        self._visit.found.append(
            self.finding(
                span, message, explanation, related=related, confidence=confidence, severity=severity, fix=fix, guards=guards
            )
        )

    def span(self, node: cst.CSTNode) -> Span:
        """The place of a node, as findings and the nodes of the program have it."""
        return self._visit.span(node)

    def name_of(self, node: cst.CSTNode) -> str | None:
        """What an expression stands for, by its full name: `torch.distributed.barrier` for `dist.barrier` or an alias of it.

        A thing of the project has the name of its module before it. None where it is not a single thing.
        """
        return self._visit.name_of(node)

    def reached_by(self, node: cst.CSTNode) -> frozenset[int] | None:
        """The ranks that get to a node in the job that the user named, or one of two ranks; None where that is not known."""
        ranks: frozenset[int] | None = self._visit.asked(node, lambda observer, span: observer.reached_by(span))
        span = self.span(node)
        is_taken = self._visit.context.program.takes(span.path, span.line)
        return ranks if ranks is not None or is_taken else frozenset()

    def guards(self, node: cst.CSTNode) -> tuple[Guard, ...]:
        """The conditions around a node the first time that it is reached, those of its callers included."""
        found: tuple[Guard, ...] = self._visit.asked(node, lambda observer, span: observer.places[span].guards[0]) or ()
        return found

    def differs(self, node: cst.CSTNode) -> frozenset[str]:
        """Why the value of an expression can differ between ranks: rank, local data, files, clock, random numbers, an exception.

        Empty where it is equal on all ranks, or nothing is known of it.
        """
        observer = self._visit.context.observed
        return frozenset() if observer is None else observer.differs(self._visit.span(node))

    def values_on(self, node: cst.CSTNode, rank: int) -> list[Any]:
        """The values of an expression on a rank, one for each time that it is evaluated; MISSING for one that is not known."""
        observer = self._visit.context.observed
        return [] if observer is None else observer.values_on(self._visit.span(node), rank)

    def program_nodes(self, node: cst.CSTNode) -> list[Node]:
        """The nodes of the program (collectives, wrappers, steps, ..) that stand exactly at a node."""
        span = self.span(node)
        return [one for one in self._visit.context.program.nodes if one.span == span]

    def metadata(self, provider: Any, node: cst.CSTNode) -> Any:
        """What a metadata provider of libcst says of a node; None where that is nothing."""
        return self._visit.file.resolve(provider).get(node)


class _Unreadable(Exception):
    """A text that libcst cannot parse."""


class _Visit:
    """One rule in one file: the tree, the answers about its nodes, and the findings so far."""

    def __init__(self, context: Context, path: str, file: MetadataWrapper) -> None:
        from libcst.metadata import ParentNodeProvider, PositionProvider

        self.context = context
        self.path = path
        self.file = file
        self.found: list[Finding] = []
        self._positions = file.resolve(PositionProvider)
        self._parents = file.resolve(ParentNodeProvider)

    def span(self, node: cst.CSTNode) -> Span:
        """The place of a node; of a tuple with its parentheses, which are a part of it for Python's own parser."""
        place = self._positions[node]
        start, end = place.start, place.end
        outer: Any = node
        if type(node).__name__ in ("Tuple", "GeneratorExp") and outer.lpar:
            start, end = self._positions[outer.lpar[0]].start, self._positions[outer.rpar[-1]].end
        return Span(self.path, start.line, start.column + 1, end.line, end.column + 1)

    def asked(self, node: cst.CSTNode, ask: Callable[[Any, Span], Any]) -> Any:
        """What is known of the nearest place around a node, in its own statement, that was noted; None without one."""
        observer = self.context.observed
        current: Any = node
        while observer is not None and current is not None:
            if current in self._positions:
                span = self.span(current)
                if span in observer.places:
                    return ask(observer, span)
            current = self._parents.get(current)
            if type(current).__name__ in _BLOCKS:
                return None  # the statement around the block may be reached where the block is not
        return None

    def name_of(self, node: cst.CSTNode) -> str | None:
        """The name by what the lowering saw, else by the imports of the file."""
        observer = self.context.observed
        span = self.span(node)
        if observer is not None and span in observer.places:
            return observer.name(span)
        if type(node).__name__ not in ("Name", "Attribute"):
            return None
        from libcst.metadata import QualifiedNameProvider, QualifiedNameSource

        from ddp_audit.program.lookup import canonical

        found: Any = self.file.resolve(QualifiedNameProvider).get(node)
        names = {one.name for one in (found() if callable(found) else found or ()) if one.source is QualifiedNameSource.IMPORT}
        return canonical(next(iter(names))) if len(names) == 1 else None


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> MetadataWrapper:
    """The tree of a text, once for all rules and all scripts that lead to it. Raises _Unreadable."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    try:
        return MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except (cst.ParserSyntaxError, RecursionError) as error:
        raise _Unreadable(type(error).__name__) from None


@functools.cache
def _visitor(kind: type[CstRule]) -> Any:
    """A visitor of libcst whose methods are those of a rule."""
    from libcst import matchers as m

    def handed_on(name: str, method: Any) -> Any:
        def visit(self: Any, node: cst.CSTNode) -> Any:
            return getattr(self.rule, name)(node)

        visit.__name__ = name
        visit.__annotations__ = {}  # libcst would compare them with the matcher, and resolve their names where it is defined
        visit.__dict__.update({key: value for key, value in vars(method).items() if key not in ("__wrapped__", _MATCHED)})
        made: Any = visit
        for when, matcher in getattr(method, _MATCHED, ()):
            made = getattr(m, when)(matcher(m))(made)
        return made

    def start(self: Any, rule: CstRule) -> None:
        m.MatcherDecoratableVisitor.__init__(self)
        self.rule = rule

    methods: dict[str, Any] = {"__init__": start}
    for name in dir(kind):
        method = getattr(kind, name)
        decorated = callable(method) and any("matcher" in key for key in getattr(method, "__dict__", ()))
        if callable(method) and (name.startswith(("visit_", "leave_")) or decorated) and hasattr(method, "__code__"):
            methods[name] = handed_on(name, method)
    return type(f"{kind.__name__}Visitor", (m.MatcherDecoratableVisitor,), methods)


__all__ = ["CstRule", "leaving", "visiting"]
