"""What the script and the command say of the job: findings on the launch, what an update is, the backend. Nothing is run."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_audit.audit import Options, UsageError, audit, installed_rules
from ddp_audit.cli.check import project_options
from ddp_audit.findings import Finding
from ddp_audit.launch import Launch, LaunchError
from ddp_audit.launch.answer import launch_row
from ddp_audit.launch.question import Script, read_script
from ddp_audit.launch.scaling import Job
from ddp_audit.launch.update import update_of
from ddp_audit.preflight.problems import ERROR, INFO, WARNING, Problem, plain
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Init
from ddp_audit.rule import Context, Rule
from ddp_audit.source.config import Config, ConfigError, find_config
from ddp_audit.source.files import SourceError
from ddp_audit.source.paths import display_path

_LAUNCH_RULES = "DDP5"


@dataclass(slots=True)
class JobReading:
    """`update` is a row of `ddp-audit batch`'s list of launches; `launch` has the processes that the script itself starts."""

    launch: Launch
    backend: str | None = None
    roots: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    update: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The object of the documented JSON."""
        return {"findings": [finding.to_json() for finding in self.findings], "update": self.update}


def read_job(launch: Launch, path: Path) -> JobReading:
    """Reads a script under the launch that is about to start it."""
    reading = JobReading(launch)
    try:
        config = find_config(path)
        reading.roots = tuple(str(config.folder / root) for root in config.roots)
        script = read_script(str(path), {})
    except (ConfigError, SourceError) as error:
        reading.problems.append(_unread(error, ERROR if isinstance(error, SourceError) else WARNING))
        return reading
    reading.launch = launch = script.as_started(launch)
    program = script.program(launch)
    reading.backend = _backend(program, launch)
    if launch.world_size is not None:
        reading.update = launch_row(launch, update_of(Job(program, launch)))
    _audit(reading, config, path, script)
    return reading


def _audit(reading: JobReading, config: Config, path: Path, script: Script) -> None:
    options = Options(
        select=[_LAUNCH_RULES],
        ignore=config.ignore,
        launch=reading.launch,
        defaults_hold=True,
        **project_options(config),
    )
    try:
        rules = [_of_this_launch(rule) for rule in installed_rules(options.rule_folders)]
        result = audit([path], options, rules=rules)
    except (UsageError, LaunchError) as error:
        reading.problems.append(_unread(error, WARNING))
        return
    reading.findings = result.findings
    script_errors = [error for error in result.errors if error.path == display_path(path)]
    reading.problems += [_unread(error, ERROR if error in script_errors else WARNING) for error in result.errors]
    severities = {"error": ERROR, "warning": WARNING, "info": INFO}
    for finding in result.findings:
        remedy = finding.fix.description if finding.fix is not None else f"see ddp-audit explain {finding.code}"
        reading.problems.append(
            Problem(finding.code, severities[finding.severity], plain(finding.message, 1000), f"{remedy[:1].upper()}{remedy[1:]}.")
        )


def _of_this_launch(rule: Rule) -> Rule:
    """A rule that judges the named launch alone: what documents say of other launches does not concern this job."""

    def check(context: Context) -> Iterable[Finding]:
        return rule.check(replace(context, documented=()))

    one = copy.copy(rule)
    setattr(one, "check", check)  # noqa: B010
    return one


def _backend(program: Program, launch: Launch) -> str | None:
    """The backend that the script's first reachable init_process_group asks for, where that is a constant under the launch."""
    job = Job(program, launch)
    for node in program.of(Init):
        if "backend" in node.args and job.reaches(node) is not False:
            value = job.value(node.args["backend"])
            return value if isinstance(value, str) and value else None
    return None


def _unread(error: Exception, severity: str) -> Problem:
    return Problem("not-read", severity, f"The script could not be read whole: {plain(error)}.", "See ddp-audit check SCRIPT.")
