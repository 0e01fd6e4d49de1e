"""The predicted run of one script, under the job that options describe: what `check --explain-run` shows and `trace` holds to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.audit import Options, UsageError, explicit_overrides, launch_of
from ddp_audit.entries import launch_overrides
from ddp_audit.source.project import Project

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Bounds, Run


def predict_script(
    paths: Sequence[str | os.PathLike[str]],
    options: Options,
    *,
    bounds: Bounds | None = None,
    overlay: Mapping[str, bytes] | None = None,
) -> Run | None:
    """Predicts the run of the one script that the paths name. Two ranks, where the job does not say how many.

    None where it cannot be read. Raises UsageError where the paths name several scripts.
    """
    from ddp_audit.explore.exact import predict

    project = Project(paths, options.exclude, force_exclude=options.force_exclude, overlay=overlay)
    if not project.entries:
        return None
    if len(project.entries) > 1:
        raise UsageError(f"--explain-run explains the run of one script, and there are {len(project.entries)} of them here")
    entry = project.entries[0]
    launch = launch_of(options)
    overrides = {**launch_overrides(launch, entry), **explicit_overrides(options)}
    world_size = None if launch is None else launch.world_size
    arguments = () if launch is None else launch.script_args
    return predict(project, entry, world_size=world_size or 2, overrides=overrides, arguments=arguments, limits=bounds)
