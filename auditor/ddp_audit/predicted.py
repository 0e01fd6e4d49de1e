"""The job of one script as options describe it: what `check --explain-run` predicts and `trace` holds to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.audit import Options, UsageError, explicit_overrides, launch_of, project_of
from ddp_audit.entries import launch_overrides

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Bounds, Job


def job_of(
    paths: Sequence[str | os.PathLike[str]],
    options: Options,
    *,
    bounds: Bounds | None = None,
    overlay: Mapping[str, bytes] | None = None,
) -> Job | None:
    """The job of the one script that the paths name. Two ranks, where the options do not say how many.

    None where it cannot be read. Raises UsageError where the paths name several scripts.
    """
    from ddp_audit.explore.exact import Bounds
    from ddp_audit.explore.proof import job_of_script

    project = project_of(paths, options, overlay)
    if not project.entries:
        return None
    if len(project.entries) > 1:
        raise UsageError(f"--explain-run explains the run of one script, and there are {len(project.entries)} of them here")
    entry = project.entries[0]
    launch = launch_of(options)
    overrides = {**launch_overrides(launch, entry), **explicit_overrides(options)}
    return job_of_script(project, entry, launch, overrides, bounds or Bounds())
