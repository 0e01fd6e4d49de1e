"""Launching the trainer under torchrun, for the tests of this folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("trainer_probe.py")
PATIENCE = 120.0  # seconds until a run that should end is given up
QUIET = 3.0  # seconds that all ranks wait, each in its last collective, after which a run counts as stalled


@dataclass
class Run:
    """How a launch ended: `code` is torchrun's, None where the run had to be killed. `ranks` is what the probe saw."""

    code: int | None
    out: str
    err: str
    ranks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def losses(self) -> list[float]:
        return [float(loss) for loss in re.findall(r"^step \d+ .*loss ([\d.]+|nan)", self.out, re.MULTILINE)]

    @property
    def parameters(self) -> str:
        lines = [line for line in self.out.splitlines() if line.startswith("parameters: ")]
        assert len(lines) == 1, self.out + self.err
        return lines[0]


def torchrun(*arguments: str, ranks: int = 2, probe: Path | None = None) -> Run:
    """Run the trainer on CPU ranks; with `probe`, a folder, under the probe, and then killed once it stalls."""
    script = [str(PROBE), str(probe)] if probe else ["-m", "ddp_audit_trainer.train"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *script, "--device", "cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    stalled = not ends(process, probe)
    if stalled:
        process.send_signal(signal.SIGTERM)  # torchrun hands it on to its workers
    try:
        out, err = process.communicate(timeout=45)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    seen = [json.loads((probe / f"rank-{rank}.json").read_text()) for rank in range(ranks)] if probe else []
    return Run(None if stalled else process.returncode, out, err, seen)


def ends(process: subprocess.Popen[str], probe: Path | None) -> bool:
    """Whether the process ends by itself, rather than falls quiet (under the probe) or takes for ever."""
    started = moved = time.monotonic()
    issued = 0
    while process.poll() is None:
        time.sleep(0.1)
        now = time.monotonic()
        if probe is not None:
            sequences = [json.loads(file.read_text())["collectives"] for file in probe.glob("rank-*.json")]
            count = sum(len(sequence) for sequence in sequences)
            waiting = len(sequences) > 1 and all(sequence and not sequence[-1]["retired"] for sequence in sequences)
            if count != issued or not waiting:
                issued, moved = count, now
            if now - moved > QUIET:
                return False
        if now - started > PATIENCE:
            return False
    return True
