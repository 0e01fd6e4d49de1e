"""What a rule is, and how rules are found.

A rule is one module of `ddp_audit_rules` (or of a project's own folder) with one subclass of `Rule`. There is no list of rules to
keep: `load_rules` walks the package. The class attributes are the rule's page; `explain`, the documentation and SARIF help are
made from them.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from ddp_audit.findings import CONFIDENCES, NOT_EXERCISED, SEVERITIES, Finding, Fix, Option, Related, Span

if TYPE_CHECKING:
    from ddp_audit.compare.run import RecordedRun
    from ddp_audit.explore import Exploration
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.launch.model import Launch
    from ddp_audit.program.model import Guard, Node, Program
    from ddp_audit.program.observation import Observer


@dataclass(slots=True)
class Context:
    """What a rule may ask: the lowered program, its exploration, and the launches that were read.

    `launch` is the one that the user named (`--launch`, `--world-size`, or the traced command), None where none was named;
    `documented` are those found in docstrings and comments of the audited files, and in the documents next to them (README, shell
    scripts, manifests), whose texts are in `texts` by path. `interpret` runs the script value by value, for the exploration;
    `observe` lowers it once more and notes what is seen at each place.
    """

    program: Program
    launch: Launch | None = None
    documented: Sequence[Launch] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    interpret: Callable[[], Predicted] | None = field(default=None, repr=False)
    observe: Callable[[], Observer] | None = field(default=None, repr=False)
    _exploration: Exploration | None = field(default=None, repr=False)
    _observed: Observer | None = field(default=None, repr=False)

    @property
    def exploration(self) -> Exploration:
        """The program run rank by rank on the machine; made at the first use."""
        if self._exploration is None:
            from ddp_audit.explore import explore

            self._exploration = explore(self.program, self.interpret)
        return self._exploration

    @property
    def observed(self) -> Observer | None:
        """What the lowering saw at each place; made at the first use. None where the program was not made from source."""
        if self._observed is None and self.observe is not None:
            self._observed = self.observe()
        return self._observed

    @property
    def was_predicted(self) -> Predicted | None:
        """The predicted run, where a rule has asked for it."""
        return None if self._exploration is None else self._exploration.found

    def lines(self, path: str) -> list[str]:
        """The lines of an audited file or of a document next to it; empty where it is neither."""
        found = self.program.sources.get(path)
        return found if found is not None else self.texts.get(path, "").split("\n")


# Attributes by the names that they had before the first release: a rule with such a name goes on working.
_EARLIER = {
    "what": "summary", "why": "rationale", "quiet": "exceptions", "confirmed": "trace_evidence", "remedy": "fix_hint",
    "witness": "verify",
}  # fmt: skip


class Rule(ABC):
    """One hazard of the catalogue. Subclasses set the class attributes and answer `check`."""

    code: ClassVar[str]
    name: ClassVar[str]
    level: ClassVar[str]  # error, warning or info
    summary: ClassVar[str]  # what the rule reports
    rationale: ClassVar[str]  # what goes wrong, on which ranks
    exceptions: ClassVar[str]  # on what it stays quiet, and why
    trace_evidence: ClassVar[str]  # what confirms it in a trace
    source: ClassVar[str]  # where the facts about torch come from
    outcome: ClassVar[str]  # what a run of `bad` on two CPU ranks shows, in the words of tests/cases/README.md
    bad: ClassVar[str]  # a whole program that runs on two CPU ranks and shows the fault
    good: ClassVar[str]  # the same program, corrected
    preview: ClassVar[bool] = False  # whether it runs only where preview rules are asked for
    since: ClassVar[tuple[int, int]] = (1, 9)  # the first torch, major and minor, for which the rule holds
    yields_to: ClassVar[tuple[str, ...]] = ()  # outcomes of the rules that take the place of this one, where they say why
    yields_by_place: ClassVar[bool] = True  # whether they have to name one of its places for that
    of_sequences: ClassVar[bool] = False  # whether the hazard is that ranks' sequences part, which a whole run shows or refutes
    reads_documents: ClassVar[bool] = False  # whether findings can lie in documents (README, shell scripts, manifests)
    fix_hint: ClassVar[str]  # what to do instead, one sentence

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for earlier, name in _EARLIER.items():
            if earlier in cls.__dict__ and name not in cls.__dict__:
                import warnings

                warnings.warn(f"{cls.__name__}.{earlier} is called {name}", DeprecationWarning, stacklevel=2)
                setattr(cls, name, cls.__dict__[earlier])

    @abstractmethod
    def check(self, context: Context) -> Iterable[Finding]:
        """Findings of this rule in the program; nothing where a needed value is unknown."""

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Return the verdict of a recorded run on a finding of this rule: confirmed, not-observed or not-exercised.

        confirmed needs an observation that the hazard predicts and that a correct program would not show, not-observed that the
        run would have shown the hazard. Everything else is not-exercised, which is all that the base answers. Where the run ended
        before the finding's line, `compare.judging` makes not-covered of it.
        """
        return NOT_EXERCISED

    def finding(
        self,
        span: Span,
        message: str,
        explanation: str = "",
        *,
        related: Iterable[Related] = (),
        confidence: str = "likely",
        severity: str | None = None,
        fix: Fix | None = None,
        guards: Sequence[Guard] = (),
        option: Option | None = None,
        cause: str = "",
    ) -> Finding:
        """A finding of this rule.

        Where one option that is off by default stands among the `guards` on the way, the severity is one step lower and the
        message names it; where several do, or one of an info, the confidence is `possible`. `option` is one that has to be set
        for another reason than a guard. Findings with the same `cause` are shown as one, with all their places.
        """
        severity = severity or self.level
        if option is not None:
            against = any(guard.against_default for guard in guards)
            confidence = min(confidence, "possible" if against or severity == "info" else "likely", key=CONFIDENCES.index)
            severity = SEVERITIES[max(SEVERITIES.index(severity) - 1, 0)]
            message = f"If {_set_to(option)}: {message}"
        elif any(guard.against_default for guard in guards):
            # Here, and not above: a folder without a training script is audited without the program's modules.
            from ddp_audit.program.switched_options import changes_ranks, the_option

            option = the_option(guards)
            if option is None or severity == "info" or changes_ranks(guards, option):
                confidence = min(confidence, "possible", key=CONFIDENCES.index)
            else:
                confidence = min(confidence, "likely", key=CONFIDENCES.index)
                severity = SEVERITIES[SEVERITIES.index(severity) - 1]
                message = f"If {_set_to(option)}: {message}"
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity,
            confidence=confidence,
            option=option,
            span=span,
            message=message,
            explanation=explanation,
            related=list(related),
            fix=fix or Fix("display-only", self.fix_hint),
            cause=cause,
        )


def _set_to(option: Option) -> str:
    """The option in a condition: `eval` is True (default: False)."""
    if option.value is None:
        return f"`{option.name}` is set" if option.default is None else f"`{option.name}` is not {option.default!r}, its default"
    return f"`{option.name}` is {option.value!r} (default: {option.default!r})"


def guard_relations(node: Node) -> list[Related]:
    """The path to a node as related places, in the order of the flow: each rank-dependent guard, each call that leads there."""
    related = []
    for depth in range(len(node.calls) + 1):
        last = depth == len(node.calls)
        inner = [g for g in node.guards if g.taint and (g.depth >= depth if last else g.depth == depth)]
        related += [Related(g.span.path, g.span.line, "guard", g.describe()) for g in inner]
        related += [Related(c.path, c.line, "call", "called here") for c in node.calls[depth : depth + 1]]
    return related


def load_rules(package: str = "ddp_audit_rules") -> list[Rule]:
    """One instance of each rule of a package, by code. Raises ValueError where two share a code."""
    module = importlib.import_module(package)
    found: dict[str, Rule] = {}
    for name in _names_in(module.__path__):
        for rule in rules_in(importlib.import_module(f"{package}.{name}")):
            if rule.code in found:
                raise ValueError(f"two rules have the code {rule.code}: {found[rule.code].name} and {rule.name}")
            found[rule.code] = rule
    return [found[code] for code in sorted(found)]


def _names_in(folders: Iterable[str]) -> list[str]:
    """The modules in the folders of a package and in the packages below it, by dotted name."""
    names: set[str] = set()
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                found = [(entry.name, entry.is_dir()) for entry in entries]
        except OSError:  # no folder, as in an archive
            import pkgutil  # which brings inspect with it

            found = [(info.name if info.ispkg else f"{info.name}.py", info.ispkg) for info in pkgutil.iter_modules([folder])]
        names |= {name[:-3] for name, is_folder in found if name.endswith(".py") and not is_folder}
        names |= {f"{name}.{below}" for name, is_folder in found if is_folder for below in _names_in([f"{folder}/{name}"])}
    return sorted(names - {"__init__"})


def rules_in(module: ModuleType) -> Iterator[Rule]:
    """One instance of each rule that a module defines."""
    own = module.__name__
    for value in vars(module).values():
        # type(value): on Python 3.10 an alias such as list[int] passes for a class in isinstance.
        if issubclass(type(value), type) and issubclass(value, Rule) and value.__module__ == own and hasattr(value, "code"):
            yield value()
