"""Case programs: where they are, and what their headers say. The form is described in README.md."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent
OUTCOMES = {
    "clean", "hang", "abort", "error", "gradients-local", "parameters-differ", "buffers-differ", "same-samples", "same-order",
    "wrong-factor", "reductions", "device", "all-on-device", "shows", "not-run",
}  # fmt: skip
_HEADER = re.compile(r"#\s*(expects|outcome|launch|devices|needs):\s*(.*\S)\s*$")
_KINDS = re.compile(r"(bad|fixed|reference|alike(_\w+)?)\.py$")
_ENVIRONMENT = re.compile(r"[A-Za-z_]\w*=")


class CaseError(Exception):
    """A header that cannot be read; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome of a header: its word, the ranks (None: all of them, or not of ranks), and what stands behind it."""

    word: str
    ranks: frozenset[int] | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """How a program is started. `torchrun` is False for a plain `python program.py`, which starts its ranks itself."""

    nnodes: int = 1
    nproc: int = 2
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    torchrun: bool = True

    @property
    def world_size(self) -> int:
        """Processes in all."""
        return self.nnodes * self.nproc


@dataclass(frozen=True, slots=True)
class Program:
    """One program of a case. `expects` are the findings as (code, line)."""

    path: Path
    kind: str  # bad, fixed, alike, reference, or page-bad and page-good for the examples of a rule's page
    code: str  # of the rule whose case it is
    expects: frozenset[tuple[str, int]] = frozenset()
    outcomes: tuple[Outcome, ...] = ()
    started: Started = field(default_factory=Started)
    launch: str = ""
    devices: int = 0
    needs: str = ""  # a package without which it cannot be run

    @property
    def name(self) -> str:
        """For reports: `ddp101/raw_model/bad.py`."""
        return "/".join(self.path.parts[-3:])

    @property
    def runs(self) -> bool:
        """Whether it can be run here."""
        return not self.hindrance

    @property
    def hindrance(self) -> str:
        """Why it cannot be run here; empty where it can."""
        reasons = [outcome.text for outcome in self.outcomes if outcome.word == "not-run"]
        if self.needs and importlib.util.find_spec(self.needs) is None:
            reasons.append(f"{self.needs} is not installed")
        return "; ".join(reasons)


def programs(root: Path = ROOT) -> list[Program]:
    """Every program of every case, in the order of their paths. Raises CaseError."""
    return [read_program(path) for path in _entry_files(root) if path.name != "reference.py"]


def _entry_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.glob("ddp*/*/*.py")):
        if _KINDS.fullmatch(path.name):
            yield path


def read_program(path: Path) -> Program:
    """The program in a file, from the comment lines at its head. Raises CaseError."""
    said: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if (found := _HEADER.match(line)) is not None:
            said[found[1]] = found[2]
    missing = {"expects", "outcome"} - set(said)
    if missing:
        raise CaseError(f"{path}: the header has no line '{sorted(missing)[0]}'")
    return Program(
        path=path,
        kind=path.stem.partition("_")[0],
        code=path.parent.parent.name.upper(),
        expects=_expected(path, said["expects"]),
        outcomes=read_outcomes(said["outcome"], str(path)),
        started=read_launch(said.get("launch", ""), str(path)),
        launch=said.get("launch", ""),
        devices=int(said.get("devices", "0")),
        needs=said.get("needs", ""),
    )


def _expected(path: Path, text: str) -> frozenset[tuple[str, int]]:
    if text == "nothing":
        return frozenset()
    found = [re.fullmatch(r"(DDP\d{3}):(\d+)", part.strip()) for part in text.split(",")]
    if None in found:
        raise CaseError(f"{path}: expects is not CODE:LINE, CODE:LINE, ..: {text}")
    return frozenset((match[1], int(match[2])) for match in found if match)


def read_outcomes(text: str, where: str) -> tuple[Outcome, ...]:
    """The outcomes of a header line. Raises CaseError."""
    return tuple(_outcome(part.strip(), where) for part in text.split(";"))


def _outcome(text: str, where: str) -> Outcome:
    word, _, rest = text.partition(" ")
    if word not in OUTCOMES:
        raise CaseError(f"{where}: '{word}' is no outcome ({', '.join(sorted(OUTCOMES))})")
    if word in ("hang", "abort", "error"):
        who, _, said = rest.partition(":")
        if who.strip() == "all":
            return Outcome(word, None, said.strip())
        if not re.fullmatch(r"\d+(,\d+)*", who.strip()):
            raise CaseError(f"{where}: '{word}' needs its ranks: 0, 1, 0,2 or all")
        return Outcome(word, frozenset(map(int, who.split(","))), said.strip())
    if word in ("wrong-factor", "reductions", "device", "all-on-device", "shows", "not-run") and not rest:
        raise CaseError(f"{where}: '{word}' says nothing more")
    return Outcome(word, None, rest.strip())


def read_launch(command: str, where: str) -> Started:
    """How a launch line starts a program: torchrun with its numbers of nodes and processes, or plain python. Raises CaseError."""
    if not command:
        return Started()
    words = shlex.split(command)
    environment = []
    while words and _ENVIRONMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        environment.append((name, value))
    script = next((i for i, word in enumerate(words) if word.endswith(".py")), None)
    if script is None:
        raise CaseError(f"{where}: the launch names no script")
    before, arguments = words[:script], tuple(words[script + 1 :])
    torchrun = before[:1] == ["torchrun"] or "torch.distributed.run" in before
    numbers = {"nnodes": 1, "nproc-per-node": 1}
    for i, word in enumerate(before):
        option, _, value = word.removeprefix("--").replace("_", "-").partition("=")
        if option in numbers:
            numbers[option] = int(value or before[i + 1])
    return Started(numbers["nnodes"], numbers["nproc-per-node"], arguments, tuple(environment), torchrun)
