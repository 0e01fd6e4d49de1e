"""One traced run from beginning to end, for `trace` and `demo`: audit, run, diff as it appears, verdicts."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ddp_audit.audit import AuditResult, Options, UsageError, audit
from ddp_audit.cli.check import project_options
from ddp_audit.cli.parser import Usage
from ddp_audit.cli.recorded import compared_trace, no_trace_text
from ddp_audit.compare.explain import is_are, rank_list
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.judging import judge
from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import RUNNING, RecordedRun
from ddp_audit.compare.verdict import Comparison, rank_states
from ddp_audit.launch import Launch, LaunchError, read_command
from ddp_audit.launch.model import PYTHON
from ddp_audit.report import trace_text
from ddp_audit.report.columns import fitted
from ddp_audit.source.config import ConfigError, find_config
from ddp_audit.source.paths import display_path


@dataclass(slots=True)
class Traced:
    """What a traced run came to. `command_code` is the command's own; `comparison` None where no rank left a trace."""

    command_code: int
    killed: bool
    reported: set[str]  # the divergences that were printed while the command ran, as they were
    run: RecordedRun | None = None
    comparison: Comparison | None = None
    findings: AuditResult = field(default_factory=AuditResult)
    reason: str = ""  # why there is no comparison

    @property
    def exit_code(self) -> int:
        """2 without a trace; 1 for a divergence, else the command's own failure, else 2 for a trace that lacks ranks."""
        if self.comparison is None:
            return 2
        return 1 if self.comparison.exit_code == 1 else self.command_code or self.comparison.exit_code


def need_torch() -> None:
    """Raises Usage where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise Usage("needs torch: pip install 'ddp-audit[trace]'")


def find_script(launch: Launch) -> Path | None:
    """The file that a launch starts, looked for and not imported; None where it is not to be found."""
    if launch.script is None:
        return None
    if not launch.is_module:
        return Path(launch.script) if Path(launch.script).is_file() else None
    parts = launch.script.split(".")
    for folder in dict.fromkeys(("", *sys.path)):
        base = Path(folder, *parts)
        for candidate in (base.with_suffix(".py"), base / "__main__.py"):
            if candidate.is_file():
                return candidate
    return None


def audit_command(command: Sequence[str], *, allow_rules: bool = False) -> tuple[AuditResult | None, str]:
    """The audit of the script that a command starts, with the command's own arguments, and the script's name.

    None and the reason where no script is to be found. Raises Usage for settings that cannot be used.
    """
    try:
        launch = read_command(list(command))
    except LaunchError as error:
        return None, str(error)
    script = find_script(launch)
    if script is None:
        return None, f"{launch.script} is not to be found from here" if launch.script else "the command names no script"
    if launch.kind == PYTHON:  # it may start its ranks itself, however many
        launch = replace(launch, world_size=None, nproc_per_node="unstated")
    try:
        config = find_config(script)
        options = Options(
            select=config.select,
            ignore=config.ignore,
            min_confidence=config.min_confidence or "likely",
            launch=launch,
            defaults_hold=True,
            **project_options(config, allow_rules=allow_rules),
        )
        return audit([script], options), display_path(script)
    except (ConfigError, UsageError) as error:
        raise Usage(str(error)) from None


def trace_command(
    command: Sequence[str],
    audited: AuditResult | None,
    stream: IO[str],
    *,
    directory: str | os.PathLike[str],
    stall_after: float = 30.0,
    on_stall: str = "report",
    native: str | None = None,
) -> Traced:
    """Runs a command traced and compares its ranks; what parts is printed to `stream` while the command runs.
    `native` is the launcher's.

    Raises Usage for a command that cannot be started and a trace that cannot be read.
    """
    from ddp_audit.trace.launcher import LaunchError as NotStarted
    from ddp_audit.trace.launcher import run_traced
    from ddp_audit.trace.store import NoTrace, TraceError

    root = Path.cwd()
    live = LiveComparison(root=root)
    reported: set[str] = set()

    def tell_divergence(recorded: RecordedRun) -> bool:
        found = live.update(recorded)
        for divergence in found:
            text = trace_text.divergence_text(divergence, rank_states(recorded), root=root)
            tell(stream, "", *text.splitlines())
            reported.add(text)
        return bool(found)

    late: list[int] = []

    def tell_stall(recorded: RecordedRun) -> None:
        late[:] = [
            rank for rank, one in recorded.ranks.items() if one.state == RUNNING and not (one.silent or one.untraced or one.blocked)
        ]
        head = "Nothing moves any more."
        if late and not reported:
            they = "it is slow, or it never comes" if len(late) == 1 else "they are slow, or they never come"
            head = f"Ranks wait for {rank_list(late)}, which {is_are(late)} alive and in no collective: {they}."
        tell(stream, "", head, *(line.text for line in trace_text.standing_lines(rank_states(recorded))))

    def tell_stall_end() -> None:
        if not reported:
            was = f": {rank_list(late)} {'was' if len(late) == 1 else 'were'} slow, not hung" if late else ""
            tell(stream, "", f"The ranks go on{was}.")

    def tell_tracer_end(ranks: list[int]) -> None:
        they = "it stands" if len(ranks) == 1 else "they stand"
        tell(stream, "", f"Tracing of {rank_list(ranks)} has ended: what comes then is not recorded. Where {they} is watched.")

    def tell_faults(faults: list[SilentFault]) -> None:
        for fault in faults:
            tell(stream, "", *(line.text for line in trace_text.fault_lines(fault, root, so_far=True)))

    try:
        ended = run_traced(
            command,
            directory=directory,
            stall_after=stall_after,
            on_stall=on_stall,
            on_divergence=tell_divergence,
            on_stall_report=tell_stall,
            on_stall_end=tell_stall_end,
            on_tracer_end=tell_tracer_end,
            on_read=live.take,
            on_silent=tell_faults,
            native=native,
        )
    except (NotStarted, TraceError) as error:
        raise Usage(str(error)) from None
    traced = Traced(ended.exit_code, ended.killed, reported, findings=audited or AuditResult())
    if ended.killed:
        tell(stream, "", "ddp-audit: the command was ended, as --on-stall kill asks")
    try:
        traced.run, traced.comparison = compared_trace(directory)
    except NoTrace as error:
        traced.reason = no_trace_text(directory, error)
    except TraceError as error:
        traced.reason = f"{error} (the command exited with {ended.exit_code})"
    if traced.run is None:
        tell(stream, "", f"ddp-audit: {traced.reason}")
        return traced
    if audited is not None:
        for attempt in (*traced.run.earlier, traced.run):
            attempt.make_events()  # verdicts and predictions look through them again and again
            judge(traced.findings.findings, attempt, traced.findings.rules)
    return traced


def choose_kernel(wanted: str | None, stream: IO[str]) -> str:
    """Which kernel records, from the option or else DDP_AUDIT_NATIVE; builds the native one where it is asked for, and in the
    background for later runs where nothing is said.

    What cannot be built is reported in one line, and the answer is then "off". Raises Usage for an invalid value.
    """
    from ddp_audit.trace.worker import layout, native

    mode = wanted or os.environ.get(layout.ENV_NATIVE) or native.AUTO
    if mode not in native.MODES:
        raise Usage(f"{layout.ENV_NATIVE} is auto, on or off, not '{mode}'")
    if mode == native.OFF:
        return mode
    from ddp_audit.trace.build import ensure_built, start_in_background

    if mode == native.ON:
        return native.ON if ensure_built(lambda line: tell(stream, line)) else native.OFF
    if start_in_background():
        tell(stream, "ddp-audit: the native kernel is being built in the background; later runs record with it")
    return mode


@contextmanager
def output_to_stderr() -> Iterator[IO[str]]:
    """Yields the real standard output while everything else, the traced command's output included, goes to stderr."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(saved), "w", encoding="utf-8") as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def tell(stream: IO[str], *lines: str) -> None:
    """Writes lines at once, so that they stand where they belong among the command's own."""
    stream.write("".join(f"{line.rstrip()}\n" for line in fitted(lines, stream)))
    stream.flush()
