"""The tools of the server, and what an agent reads about them.

The SDK makes the schemas of arguments and answers from the signatures here; the docstrings are what a model reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from ddp_audit import __version__
from ddp_audit.agents import answers
from ddp_audit.agents.answers import AuditAnswer, BatchAnswer, DiffAnswer, RuleAnswer, TraceAnswer
from ddp_audit.agents.commands import CommandError, Commands
from ddp_audit.trace.store import TraceError, read_meta

INSTRUCTIONS = """\
ddp-audit finds hazards of PyTorch DistributedDataParallel training (hangs, gradients that no rank reduces, ranks that train on the
same samples) by reading source; nothing audited is executed. Call `audit` on a training script before you change it and after.
Fix errors first, then warnings; `explain` gives the page of a rule, with a bad and a good program. `coverage` says what was not
followed: no findings there prove nothing. A hang that was traced (`ddp-audit trace -- torchrun ..`) is read by `trace_summary` and
`diff`. `batch` keeps the tokens of an update when the number of processes changes."""

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

Paths = Annotated[list[str], Field(min_length=1, max_length=20, description="scripts or folders")]
World = Annotated[int | None, Field(ge=1, le=100_000, description="the number of processes")]
Launch = Annotated[str | None, Field(max_length=4000, description="the launch command; its arguments override defaults")]
Trace = Annotated[str, Field(description="the folder of a trace, or of dumps of PyTorch's Flight Recorder")]
Severity = Literal["error", "warning", "info"]
Count = Annotated[int | None, Field(ge=1, le=10**12)]


def make_server(roots: tuple[Path, ...], seconds: float) -> MCPServer:
    """Return a server whose tools read the files below some folders, each for a limited time."""
    commands = Commands(tuple(root.resolve() for root in roots), seconds)
    server: MCPServer = MCPServer(
        "ddp-audit",
        title="ddp-audit",
        description="Hazards of PyTorch DistributedDataParallel training",
        instructions=INSTRUCTIONS,
        version=__version__,
        website_url="https://ddp-audit.github.io/ddp-audit/",
        log_level="WARNING",
    )
    tools = _Tools(commands)
    for tool in (tools.audit, tools.explain, tools.diff, tools.trace_summary, tools.batch):
        server.add_tool(tool, annotations=_READS, structured_output=True)
    return server


class _Tools:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def audit(
        self,
        paths: Paths,
        world_size: World = None,
        launch: Launch = None,
        rules: Annotated[list[str] | None, Field(max_length=100, description="only these: codes, names or prefixes")] = None,
        min_severity: Severity = "warning",
        limit: Annotated[int, Field(ge=1, le=answers.MOST_FINDINGS)] = 20,
    ) -> AuditAnswer:
        """Audit training scripts or folders. A script is read with the project files that it imports; nothing is executed.

        Each finding is one cause: its place, what happens on which ranks, the steps that lead there, and the fix.
        """
        words = ["check", "--format", "json"]
        words += [f"--world-size={world_size}"] if world_size is not None else []
        words += [f"--launch={launch}"] if launch is not None else []
        words += [f"--select={','.join(rules)}"] if rules else []
        document = await self._json([*words, "--", *map(self._path, paths)], (0, 1, 2))
        return answers.audit_answer(document, min_severity, limit)

    async def explain(self, rule: Annotated[str, Field(max_length=80, description="a code or a name")]) -> list[RuleAnswer]:
        """Return the page of a rule: what it reports, why it goes wrong, when it stays quiet, the fix, a bad and a good program."""
        return answers.rule_answers(await self._json(["explain", "--format", "json", "--", rule]))

    async def diff(self, folder: Trace) -> DiffAnswer:
        """Compare what the ranks of a recorded run did: where they diverge, silent faults, and where each rank stands."""
        return answers.diff_answer(await self._json(["diff", "--format", "json", "--", self._path(folder)], (0, 1, 2)))

    async def trace_summary(
        self,
        folder: Trace,
        script: Annotated[str | None, Field(description="the script that was run, for verdicts on its findings")] = None,
    ) -> TraceAnswer:
        """Sum up a recorded run: command, torch, how it ended, the first divergence, and which findings the run confirms."""
        path = self._path(folder)
        document = await self._json(["diff", "--format", "json", "--", path], (0, 1, 2))
        audited = None
        if script is not None:
            audited = await self._json(["check", "--format", "json", f"--trace={path}", "--", self._path(script)], (0, 1, 2))
        try:
            meta = await anyio.to_thread.run_sync(read_meta, Path(path))
        except TraceError as error:
            raise ToolError(answers.cut(str(error))) from None
        return answers.trace_answer(document, meta or {}, audited)

    async def batch(
        self,
        script: Annotated[str | None, Field(description="read batch size, accumulation and block size from it")] = None,
        world_size: World = None,
        before: Annotated[int | None, Field(ge=1, le=100_000, description="the number of processes until now")] = None,
        launch: Launch = None,
        tokens: Count = None,
        block_size: Count = None,
        batch_size: Count = None,
        accumulation: Count = None,
    ) -> BatchAnswer:
        """Work out batch size and gradient accumulation that keep the tokens of an update on another number of processes.

        Give a script, or `world_size`, `block_size` and either `tokens` or `batch_size` and `accumulation`.
        """
        words = ["batch", "--format", "json", "--limit", "8"]
        numbers = {"world-size": world_size, "from": before, "tokens": tokens, "block-size": block_size}
        numbers |= {"batch-size": batch_size, "accumulation": accumulation}
        words += [f"--{name}={value}" for name, value in numbers.items() if value is not None]
        words += [f"--launch={launch}"] if launch is not None else []
        return answers.batch_answer(await self._json([*words, *([] if script is None else ["--", self._path(script)])]))

    def _path(self, text: str) -> str:
        try:
            return self._commands.path(text)
        except CommandError as error:
            raise ToolError(str(error)) from None

    async def _json(self, words: list[str], codes: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
        try:
            return await self._commands.json(words, codes=codes)
        except CommandError as error:
            raise ToolError(answers.cut(str(error))) from None
