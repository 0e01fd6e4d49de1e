"""What an audit is asked for and what it comes to, apart from how it is made: all that reports and runs from the cache need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ddp_audit.findings import Finding
from ddp_audit.source.problems import SourceError

if TYPE_CHECKING:
    from ddp_audit.launch.model import Launch
    from ddp_audit.rule import Rule
    from ddp_audit.source.notebook import Notebook


V = TypeVar("V")


class Late(Mapping[str, V]):
    """A mapping that is made when something of it is asked for."""

    def __init__(self, make: Callable[[], Mapping[str, V]]) -> None:
        self._make = make
        self._made: Mapping[str, V] | None = None

    def __getitem__(self, key: str) -> V:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, V]:
        if self._made is None:
            self._made = self._make()
        return self._made


class UsageError(Exception):
    """An option that cannot be followed; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Options:
    """What an audit is asked for. `select` None means every rule; names are codes, rule names or prefixes of codes."""

    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    exclude: Sequence[str] = ()
    respect_gitignore: bool = True  # files of folders that git ignores are left out
    force_exclude: bool = False  # files given by name are held against `exclude` too
    home: str = ""  # the absolute folder from which patterns may name files, where it is not the working directory
    min_confidence: str = "likely"
    world_size: int | None = None
    launch: str | Launch | None = None  # a command line, or one that was read
    settings: Sequence[str] = ()  # NAME=VALUE
    config_files: Sequence[str] = ()
    jobs: int = 1  # processes
    per_file_ignores: Sequence[tuple[str, Sequence[str]]] = ()  # pattern and rules
    levels: Sequence[tuple[str, str]] = ()  # rule, and error, warning, info or off
    target_torch: str | None = None
    rule_folders: Sequence[str] = ()  # folders with rules of the project's own, which are loaded, and so executed
    withheld_rules: Sequence[str] = ()  # folders that the settings name and that nobody outside of the project allowed
    roots: Sequence[str] = ()  # folders that imports are looked up in too
    helpers: Sequence[tuple[str, Sequence[str]]] = ()  # kind of program/told.py, and the names of the project's own
    stubs: Sequence[tuple[str, str]] = ()  # files that describe libraries: the path as reports show it, and the text
    show_imported: bool = False  # findings in imported files outside of the given folders too
    origins: Sequence[tuple[str, str]] = ()  # names of rules in the settings, and where they stand, for messages
    defaults_hold: bool = False  # options that nothing overrides keep their defaults, as in a run that is about to start


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """A place that the audit did not follow. `what` says what stands there and why it was not followed."""

    path: str
    line: int
    what: str
    cell: int | None = None  # of a notebook, whose line is meant then


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far an audit came. `reached` holds words of REACHED; `complete` says that nothing was left unfollowed."""

    reached: Sequence[str]
    not_followed: Sequence[NotFollowed]
    complete: bool

    def to_json(self) -> dict[str, Any]:
        """The object of the documented JSON form."""
        left = [{"path": place.path, "cell": place.cell, "line": place.line, "what": place.what} for place in self.not_followed]
        return {"reached": list(self.reached), "not_followed": left, "complete": self.complete}


REACHED = ("process-group", "wrapper", "training-loop", "step", "evaluation")


@dataclass(slots=True)
class AuditResult:
    """What an audit found. `notes` are whole lines for the report.

    `looked_at` are the paths of the Python files that were read, `sources` the lines of files that findings name, by path, and
    `notebooks` those of them whose lines are the joined code of a notebook's cells;
    `rules` are those that ran, by code, and `codes` all that were asked for. `known` counts what was found and a baseline
    holds; that is not among the findings. `left_out` are paths among `looked_at` whose findings are not reported, since they lie
    outside of what was given. `coverage` says how far the audit came, and `predicted` is the outcome of the predicted
    run as the JSON form documents it; both are None where nobody asked.
    """

    findings: list[Finding] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    suppressed: int = 0
    known: int = 0
    notes: list[str] = field(default_factory=list)
    sources: Mapping[str, list[str]] = field(default_factory=dict)
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    looked_at: set[str] = field(default_factory=set)
    codes: Collection[str] = frozenset()
    left_out: Set[str] = frozenset()
    coverage: Coverage | None = None
    predicted: Mapping[str, Any] | None = None

    @property
    def files(self) -> int:
        """How many Python files were read."""
        return len(self.looked_at)

    def lines_of(self, path: str, cell: int | None) -> Sequence[str]:
        """The lines that a place's line numbers count in: those of a file, or of a cell of a notebook; empty where not known."""
        if cell is None:
            return self.sources.get(path, ())
        return self.notebooks[path].cells.get(cell, ()) if path in self.notebooks else ()

    def file_line(self, path: str, cell: int | None, line: int) -> int:
        """The line of the file itself, for readers that know no cells: in a notebook that of the JSON text which holds the line."""
        if cell is None:
            return line
        return self.notebooks[path].file_line(cell, line) if path in self.notebooks else 1

    def exit_code(self, strict: bool = False) -> int:
        """2 where work could not be done, 1 where a finding fails the check, else 0."""
        if self.errors:
            return 2
        failing = ("error", "warning") if strict else ("error",)
        return int(any(finding.severity in failing for finding in self.findings))
