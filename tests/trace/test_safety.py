"""Whatever becomes of the tracer, the training computes the same numbers and leaves with its own code: real runs of one rank."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ddp_audit.compare.run import EXITED, RUNNING
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.errors import _ROOM
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

HERE = Path(__file__).parent
PARTS = (
    "record a collective", "meet a group", "write an event", "define", "walk a stack", "take up a wrapper",
    "find an optimizer's wrappers", "look at gradients", "weigh labels", "read the random stream", "fingerprint a batch",
    "hash parameters", "look for completion", "leave",
)  # fmt: skip
ENDED = "ddp-audit: tracing of rank 0 has ended: "


def environment(**more: str) -> dict[str, str]:
    """That of a single rank whose scripts can import the worker of these tests."""
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **rank, **more}


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=240)


@functools.cache
def plain_bits() -> str:
    """The bits of the training without a tracer."""
    code = "from safe_worker import train_bits; print(train_bits())"
    outcome = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


@pytest.mark.parametrize("kernel", ["off", "on"], ids=["python", "native"])
def test_a_broken_part_ends_the_tracing_with_one_line(kernel: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kernel == "on":
        request.getfixturevalue("native_build")
    outcome = run([sys.executable, str(HERE / "safe_worker.py"), kernel, str(tmp_path), *PARTS], tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    results = json.loads(outcome.stdout)
    plain = results.pop("none")
    assert plain["code"] == 0 and len(plain["bits"]) == 64
    told = {part: result.pop("stderr") for part, result in results.items()}
    assert results == {part: {"code": 0, "bits": plain["bits"]} for part in ("whole", *PARTS)}
    assert told == {"whole": [], **{part: [f"{ENDED}RuntimeError: {part} is broken"] for part in PARTS}}
    assert load_run(tmp_path / "whole" / "trace").ranks[0].state == EXITED
    number = PARTS.index("hash parameters")
    for trace in (load_run(tmp_path / str(number) / "trace"), load_columns(tmp_path / str(number) / "trace")[0]):
        assert (trace.ranks[0].untraced, trace.ranks[0].state) == (True, RUNNING)  # it is not taken for killed


FULL = """\
import os, sys, time
import torch
from safe_worker import train_bits
with open("filler", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
for number in range(40000):
    torch.manual_seed(number)  # an event each: more than the file has room for
for number in range(30):
    sys.stderr.write("x" * 9999 + chr(10))
    sys.stderr.flush()
print(train_bits())
sys.exit(7)
"""


@functools.cache
def own_mounts() -> list[str] | None:
    """How to start a command that may mount a file system of its own; None where this machine does not allow that."""
    for prefix in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            tried = subprocess.run([*prefix, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, timeout=20)
        except OSError:
            return None
        if tried.returncode == 0:
            return prefix
    return None


def test_a_full_disk(tmp_path: Path) -> None:
    prefix = own_mounts()
    if prefix is None:
        pytest.skip("needs a file system of its own")
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    (tmp_path / "script.py").write_text(FULL)
    trace = shlex.join(
        [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "trace", "--", sys.executable, "../script.py"]
    )
    where = shlex.quote(str(disk))
    size = (1 << 20) + _ROOM + (1 << 18)  # a chunk of the trace, the room of the errors, and some more
    shell = f"mount -t tmpfs -o size={size} tmpfs {where} && cd {where} && {trace}; code=$?; cp -r trace {shlex.quote(str(copy))}; exit $code"
    outcome = run([*prefix, "sh", "-c", shell], tmp_path)
    assert outcome.returncode == 7, outcome.stdout + outcome.stderr
    assert plain_bits() in outcome.stdout
    assert outcome.stderr.count(f"{ENDED}OSError: [Errno 28]") == outcome.stderr.count("ddp-audit: tracing") == 1
    assert outcome.stderr.count("x" * 9999) == 30
    assert "Traceback" not in outcome.stderr
    assert load_run(copy).ranks[0].untraced


LONG = """\
import os, time
from pathlib import Path
from ddp_audit.trace.errors import KeptErrors
with KeptErrors(Path("log")) as errors:
    with open("filler", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    for number in range(30):
        assert os.write(errors.descriptor, b"%099999d\\n" % number) == 100000
        time.sleep(0.1)
"""


def test_long_errors_on_a_full_disk(tmp_path: Path) -> None:
    """Three times the room: what was shown gives way."""
    prefix = own_mounts()
    if prefix is None:
        pytest.skip("needs a file system of its own")
    (tmp_path / "disk").mkdir()
    (tmp_path / "script.py").write_text(LONG)
    shell = f"mount -t tmpfs -o size=2m tmpfs disk && cd disk && {shlex.quote(sys.executable)} ../script.py"
    outcome = run([*prefix, "sh", "-c", shell], tmp_path)
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert [int(line[-4:]) for line in outcome.stderr.splitlines()] == list(range(30))


VANISHES = """\
import shutil, sys, time
import torch
from ddp_audit.trace.worker import boot
from safe_worker import train_bits
torch.manual_seed(1)
shutil.rmtree("trace")
while boot._state["tracer"].on:
    time.sleep(0.05)
print(train_bits())
sys.exit(7)
"""


def test_a_trace_folder_that_vanishes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(VANISHES)
    outcome = run(
        [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "trace", "--", sys.executable, "script.py"], tmp_path
    )
    assert plain_bits() in outcome.stdout
    assert (
        outcome.stderr.count(f"{ENDED}FileNotFoundError: its trace file was removed\n") == outcome.stderr.count("tracing of") == 1
    )
    assert "Traceback" not in outcome.stderr
    assert outcome.returncode == 2  # there is no trace to compare
    outcome = run([sys.executable, "-m", "ddp_audit.trace", "script.py"], tmp_path, DDP_AUDIT_TRACE_DIR="trace")
    assert (outcome.returncode, outcome.stdout.strip()) == (7, plain_bits())
    assert outcome.stderr.count("tracing of") == 1 and "Traceback" not in outcome.stderr


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nfrom safe_worker import train_bits\nprint(train_bits())\nsys.exit(7)\n")
    (tmp_path / "file").write_text("")
    outcome = run([sys.executable, "-m", "ddp_audit.trace", "--directory", "file/trace", "script.py"], tmp_path)
    assert (outcome.returncode, outcome.stdout.strip()) == (7, plain_bits())
    assert [line for line in outcome.stderr.splitlines() if "ddp-audit" in line] == [
        f"ddp-audit: tracing of this process has ended: NotADirectoryError: [Errno 20] Not a directory: '{tmp_path}/file/trace'"
    ]


WAITS = """\
import sys, time
from pathlib import Path
from safe_worker import train_bits
Path("waits").touch()
while not Path("go").exists():
    time.sleep(0.05)
sys.stderr.write("said to nobody" + chr(10))
Path("bits.part").write_text(train_bits())
Path("bits.part").replace("bits")
"""


def test_a_launcher_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITS)
    command = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "trace", "--", sys.executable, "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        until(tmp_path / "waits")
        launcher.send_signal(signal.SIGKILL)
    (tmp_path / "go").touch()
    assert until(tmp_path / "bits") == plain_bits()
    end = time.monotonic() + 60
    while load_run(tmp_path / "trace").ranks[0].state == RUNNING and time.monotonic() < end:
        time.sleep(0.1)
    rank = load_run(tmp_path / "trace").ranks[0]
    assert (rank.state, rank.code) == (EXITED, 0)
    assert (tmp_path / "trace" / "stderr.log").read_text() == "said to nobody\n"


def until(path: Path) -> str:
    """What stands in a file, once it is there."""
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, f"no {path.name}"
        time.sleep(0.05)
    return path.read_text()


def test_the_trainer_computes_the_same_bits(tmp_path: Path, native_build: str) -> None:
    """On two ranks, with dropout, random windows and labels of uneven number: losses, evaluations, parameters, collectives."""
    outcome = run([sys.executable, str(HERE / "trainer_worker.py"), str(tmp_path), "off", "on"], tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    plain, python, native = json.loads(outcome.stdout).values()
    assert "parameters: equal on 2 ranks, sha256" in plain
    assert plain.count("loss") >= 10
    assert "gloo:all_reduce" in plain or "collectives 0 []" in plain  # the Flight Recorder knows gloo since torch 2.13
    assert plain == python == native
    for name, kernel in (("off", "python"), ("on", "native")):
        recorded = load_run(tmp_path / name / "trace")
        assert [one.state for one in recorded.ranks.values()] == [EXITED, EXITED]
        assert {one.events[0].detail["kernel"] for one in recorded.ranks.values()} == {kernel}


WARNED = """\
import torch
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
def advance(epoch=None):
    scheduler.step(epoch)  # the line of both warnings
advance()
optimizer.step()
advance(7)
"""


def test_warnings_of_torch_point_at_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WARNED)
    plain = run([sys.executable, "train.py"], tmp_path).stderr
    traced = run([sys.executable, "-m", "ddp_audit.trace", "--directory", "trace", "train.py"], tmp_path).stderr
    assert traced.count("train.py:6: UserWarning") == plain.count("train.py:6: UserWarning") == 2
    assert traced.count("Warning: ") == 2
