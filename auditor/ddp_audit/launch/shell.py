"""What a shell script sets before a launch: variables with the line that set them, and the directives of a batch job.

Nothing is run: an assignment counts where its value is written down. One inside of a branch or a loop counts there, and leaves
the variable open behind it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ddp_audit.launch.model import LaunchError
from ddp_audit.launch.words import segments, split_words
from ddp_audit.lazy_regex import lazy_compile

_OPENS = lazy_compile(r"(?:^|;|&&|\|\||\bthen\b|\bdo\b|\belse\b|\{)\s*(?:if|for|while|until|case|select)\b")
_CLOSES = lazy_compile(r"(?:^|;|\s)(?:fi|done|esac)\b(?!=)")
_FUNCTION = lazy_compile(r"\s*(?:function\s+[\w:-]+|[\w:-]+\s*\(\))\s*(?:\(\))?\s*\{?\s*$")
_ALTERNATIVE = lazy_compile(r"\s*(?:else|elif\b.*)\s*$|.*;;\s*$")
_LOOP_NAME = lazy_compile(r"(?:^|;)\s*for\s+(\w+)\s+in\b|(?:^|;|\|)\s*(?:while\s+)?read\s+(?:-\w+\s+)*(\w+)")
_PARAMETER = lazy_compile(r"\$\{(\w+)(?:\[[@*]\])?(?:(:?[-=+?])([^{}]*))?\}|(?<!\\)\$(\w+)")
_ARITHMETIC = lazy_compile(r"\$\(\(([^()]*)\)\)")
_BATCH = lazy_compile(r"#(?:SBATCH)\s+(-{1,2}[\w-]+)(?:[= ]\s*(\S+))?")
_GPU_COUNT = lazy_compile(r"(?:^|,)(?:gpu(?::[\w.-]+)?:|[A-Za-z][\w.-]*:)?(\d+)$")
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-c": "--cpus-per-task"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The text of a variable, and the place that set it; None where it is set to something that is not written down.

    `raw` is what stood there before the variables in it were put in, `used` those.
    """

    text: str | None
    where: str
    name: str = ""
    raw: str = ""
    used: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}={self.text} ({self.where})" if self.where else f"{self.raw}, unless {self.name} is set"


@dataclass(slots=True)
class Variables:
    """The variables of one script as they are at a line. `see` is given its lines in order."""

    path: str
    known: dict[str, Setting] = field(default_factory=dict)
    _blocks: list[dict[str, Setting]] = field(default_factory=list)

    def see(self, text: str, line: int) -> None:
        """Takes in one logical line of shell: what it sets, and the blocks that it opens and closes."""
        bare = text.strip()
        if not bare or bare.startswith("#"):
            return
        if _FUNCTION.match(text):
            self._blocks.append(dict(self.known))
            return
        opened, closed = len(_OPENS.findall(bare)), len(_CLOSES.findall(bare))
        for _ in range(opened):
            self._blocks.append(dict(self.known))
        for match in _LOOP_NAME.finditer(bare):
            self.known[match.group(1) or match.group(2)] = Setting(None, f"{self.path}:{line}")
        if self._blocks and _ALTERNATIVE.match(text):
            self.known = {**self._left_open(self._blocks[-1]), **self._blocks[-1]}
        self._assign(bare, line)
        for _ in range(min(closed, len(self._blocks))):
            self.known = self._left_open(self._blocks.pop())
        if bare in ("}", "};") and self._blocks:
            self.known = self._left_open(self._blocks.pop())

    def _left_open(self, before: dict[str, Setting]) -> dict[str, Setting]:
        """The variables behind a block: those that it set to something else are open."""
        return {
            name: setting if before.get(name) == setting else Setting(None, setting.where) for name, setting in self.known.items()
        }

    def _assign(self, text: str, line: int) -> None:
        if (
            array := re.match(r"(?:export\s+|local\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)=\((.*)\)\s*$", text, re.DOTALL)
        ) is not None:
            inner = " ".join(array.group(2).split())
            expanded, used = self.expand(inner)
            self.known[array.group(1)] = Setting(expanded, f"{self.path}:{line}", array.group(1), inner, tuple(used))
            return
        if (default := re.match(r":\s+\"?\$\{(\w+):?=([^}]*)\}", text)) is not None:
            name, value = default.group(1), default.group(2)
            self.known.setdefault(name, Setting(value, f"{self.path}:{line}", name, value))
            return
        if "=" not in text:
            return
        try:
            commands = segments(split_words(text))
        except LaunchError:
            return
        for words in commands:
            rest = words[1:] if words[0] in ("export", "local", "readonly", "declare", "typeset", "then", "do") else words
            rest = [word for word in rest if not word.startswith("-")]
            if all(re.match(r"[A-Za-z_]\w*\+?=", word) for word in rest):
                for word in rest:
                    name, _, value = word.partition("=")
                    self._set(name, value, line)

    def _set(self, name: str, value: str, line: int) -> None:
        where = f"{self.path}:{line}"
        expanded, used = self.expand(value)
        if name.endswith("+"):
            before = self.known.get(name[:-1])
            name, expanded = name[:-1], f"{before.text or ''}{expanded}" if before is not None else expanded
        self.known[name] = Setting(None if "`" in expanded else expanded, where, name, value, tuple(used))

    def expand(self, text: str) -> tuple[str, list[Setting]]:
        """The text with the variables whose value is written down in it, and what was put in.

        What is left open stays as it is. `${N:-8}` is 8 where nothing sets N.
        """
        used: list[Setting] = []
        text = re.sub(r"\"(\$\{\w+\[@\]\})\"", r"\1", text)
        for _ in range(6):  # a value may name other variables
            fresh = _PARAMETER.sub(lambda match: self._value(match, used), text)
            fresh = _ARITHMETIC.sub(lambda match: self._computed(match, used), fresh)
            if fresh == text or len(fresh) > 20_000:
                break
            text = fresh
        return text, list(dict.fromkeys(used))

    def _value(self, match: re.Match[str], used: list[Setting]) -> str:
        name, operator, default = match.group(1) or match.group(4), match.group(2) or "", match.group(3)
        setting = self.known.get(name)
        if setting is not None:
            if setting.text is None or ("$" in setting.text and " " not in setting.text):
                return match.group(0)  # its own name says more than another open one, and `N=$N` would go round
            used.append(setting)
            return setting.text
        if operator.lstrip(":") in ("-", "=") and default is not None and not name.isdigit():
            value = default.strip("\"'")
            used.append(Setting(value, "", name, match.group(0)))
            return value
        return match.group(0)

    def _computed(self, match: re.Match[str], used: list[Setting]) -> str:
        """`$((NODES * 8))` as a number, where it is one of whole numbers and known variables."""
        from ddp_audit.launch.overrides import fold

        body = match.group(1).strip().replace("/", "//")
        names = {name for name in re.findall(r"[A-Za-z_]\w*", body) if name in self.known}
        known = {name: int(text) for name in names if (text := self.known[name].text or "").isdigit()}
        try:
            value = fold(ast.parse(body, mode="eval").body, known) if len(body) <= 80 else None
        except (SyntaxError, ValueError):
            return match.group(0)
        if type(value) is not int:
            return match.group(0)
        used += [self.known[name] for name in sorted(names)]
        return str(value)


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What the directives of a batch script ask for, each with its place; None where they do not say."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    gpus_per_node: int | None = None
    places: dict[str, str] = field(default_factory=dict)

    @property
    def is_one(self) -> bool:
        """Whether there were directives at all."""
        return bool(self.places)

    def variables(self) -> dict[str, Setting]:
        """SLURM's variables in the script, as far as the directives fix them."""
        nodes = self.nodes if self.nodes is not None else (1 if self.is_one else None)
        numbers = {
            "nodes": (nodes, ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")),
            "ntasks": (self.all_tasks(), ("SLURM_NTASKS", "SLURM_NPROCS")),
            "ntasks-per-node": (self.tasks_per_node, ("SLURM_NTASKS_PER_NODE",)),
            "gpus": (self.gpus_per_node, ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")),
        }
        return {
            name: Setting(str(number), self.places.get(key, "the #SBATCH lines"), name, str(number))
            for key, (number, names) in numbers.items()
            if number is not None
            for name in names
        }

    def all_tasks(self) -> int | None:
        """The tasks of the whole job: as given, else those of a node times the nodes, else one a node."""
        if self.tasks is not None or not self.is_one:
            return self.tasks
        return (self.nodes or 1) * (self.tasks_per_node or 1)


def batch_job(lines: Iterable[str], path: str) -> BatchJob:
    """The #SBATCH directives of a script. A number that is a range or a variable is left out."""
    given: dict[str, str] = {}
    places: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _BATCH.match(line)
        if match is None:
            continue
        name = _SHORT.get(match.group(1), match.group(1)).lstrip("-")
        key = "gpus" if name in ("gpus-per-node", "gres", "gpus-per-task") else name
        given[name] = match.group(2) or ""
        places[key] = f"{match.group(0).strip()} ({path}:{number})"
    per_node = _whole(given.get("ntasks-per-node"))
    gpus = _gpus(given.get("gpus-per-node")) or _gpus(given.get("gres"))
    if gpus is None and per_node is not None and (each := _gpus(given.get("gpus-per-task"))) is not None:
        gpus = each * per_node
    return BatchJob(_whole(given.get("nodes")), _whole(given.get("ntasks")), per_node, gpus, places)


def gpus_in(text: str | None) -> int | None:
    """The number of GPUs in `gpu:4`, `gpu:a100:4`, `a100:4` or `4`."""
    return _gpus(text)


def _gpus(text: str | None) -> int | None:
    if not text or ("gpu" not in text and ":" in text and not re.fullmatch(r"[A-Za-z][\w.-]*:\d+", text)):
        return None
    match = _GPU_COUNT.search(text)
    return int(match.group(1)) if match else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def makefile_as_shell(text: str) -> str:
    """A Makefile with its recipe lines and variables in the shell's spelling, line for line."""
    found: list[str] = []
    continues, quoted = "", False  # what the line before goes on with: a recipe, a value, or something that is left out
    for line in text.split("\n"):
        body = re.sub(r"(?<!\$)\$\((\w+)\)", r"${\1}", line).replace("$$", "$")
        goes_on = body.rstrip().endswith("\\")
        assigned = re.match(r"(?:export\s+|override\s+)?([A-Za-z_]\w*)\s*(?:\?|::?|\+)?=\s*(.*)", body)
        kind = continues
        if not continues:
            kind = "recipe" if line.startswith("\t") else "value" if assigned is not None else "other"
            if kind == "recipe":
                body = re.sub(r"^\t\s*[@+-]*\s*", " ", body)
            elif assigned is not None:
                quoted = assigned.group(2)[:1] not in ('"', "'")
                body = f"{assigned.group(1)}=" + ('"' if quoted else "") + assigned.group(2)
        if kind == "value" and quoted and not goes_on:
            body = body.rstrip() + '"'
        elif kind == "other" and body.strip() and not body.lstrip().startswith("#"):
            body = "# " + body  # targets, and make's own conditionals
        found.append(body)
        continues = kind if goes_on else ""
    return "\n".join(found)
