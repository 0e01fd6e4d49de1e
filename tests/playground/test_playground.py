"""The page that audits in the browser: what is packed into it, and its own tests in a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PLAYGROUND = Path(__file__).parents[2] / "playground"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
SCRIPT = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
dist.destroy_process_group()
"""
# The audit of the page, with all made impossible to import that the browser does not have.
ALONE = """\
import sys
for name in ("rich", "yaml", "networkx", "libcst", "torch", "numpy"):
    sys.modules[name] = None
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import pathlib, auditing
assert auditing.audited.__module__ == "auditing"
auditing.FOLDER = pathlib.Path(sys.argv[3])
print(auditing.audited(sys.stdin.read(), 2))
import ddp_audit
assert ddp_audit.__file__.startswith(sys.argv[1]), ddp_audit.__file__
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(PLAYGROUND))
    try:
        from build import archive
    finally:
        sys.path.remove(str(PLAYGROUND))
    target = tmp_path_factory.mktemp("packed") / "ddp_audit.zip"
    archive(target)
    return target


def test_what_is_packed_audits_alone(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "audit")
    words = [sys.executable, "-S", "-c", ALONE, str(tmp_path / "audit"), str(PLAYGROUND), str(tmp_path / "work")]
    done = subprocess.run(words, input=SCRIPT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(one["severity"], one["code"], one["line"]) for one in answer["findings"]] == [("error", "DDP201", 5)]
    assert answer["run"]["outcome"] == "hangs" and set(answer["run"]["ranks"]) == {"0", "1"}
    assert answer["coverage"].startswith("Coverage: 1 file read; train.py followed to the end")


def test_a_script_that_is_too_long(tmp_path: Path) -> None:
    words = [sys.executable, "-c", ALONE.partition("import ddp_audit")[0], str(tmp_path), str(PLAYGROUND), str(tmp_path / "work")]
    done = subprocess.run(words, input="#" * 200_001, capture_output=True, text=True, timeout=120)
    assert "longer than 200,000 characters" in json.loads(done.stdout)["error"]


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH to open the page in")
@pytest.mark.skipif(not (PLAYGROUND / "node_modules").is_dir(), reason="Pyodide is not installed: make playground")
def test_the_page_in_chromium(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "build.py", str(tmp_path / "site")], cwd=PLAYGROUND, check=True, timeout=120)
    environment = {**os.environ, "SITE": str(tmp_path / "site"), "BROWSER": str(BROWSER)}
    done = subprocess.run(["npm", "test"], cwd=PLAYGROUND, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# fail 0" in done.stdout and "# pass 0" not in done.stdout
