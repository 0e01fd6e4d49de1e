"""The native kernel beside the Python kernel: the same records, and what happens where it cannot be had."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddp_audit import events
from ddp_audit.cli.parser import Usage
from ddp_audit.cli.traced import choose_kernel
from ddp_audit.events import Event
from ddp_audit.trace.build import ensure_built, start_in_background
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import FollowRun, load_run
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.native import build_path, is_built

pytestmark = pytest.mark.traced

# Records the same calls with both kernels, one after the other, each into a folder of its own.
BOTH = """
import sys, threading
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ddp_audit.trace.worker import fingerprint, native
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Prepared, Tracer
from ddp_audit.trace.worker.watch import Watch
from ddp_audit.trace.worker.wrappers import Wrapper

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
other = dist.new_group([0])

def call(tensor, op=dist.ReduceOp.SUM):
    dist.all_reduce(tensor, op)

def calls():
    for size in (1, 2, 2, 3):
        call(torch.ones(size))
        call(torch.ones(size, dtype=torch.int64), op=dist.ReduceOp.MAX)
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    dist.all_reduce(torch.ones(2, 3), group=other)
    dist.broadcast(torch.ones(2), 0)
    dist.all_gather([torch.ones(2)], torch.ones(2))
    dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2))
    dist.all_gather_object([None], {"a": 1})
    dist.barrier()
    dist.monitored_barrier()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()
    thread = threading.Thread(target=call, args=(torch.ones(7),))
    thread.start()
    thread.join()
    try:
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    except (RuntimeError, ValueError):  # gloo refuses it in the call
        pass
    for _ in range(1100):
        call(torch.ones(5))
    dist.all_reduce(torch.ones(1), async_op=True)

def looks(tracer):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    wrapper = Wrapper("ddp0", model, None, tracer.native_gradients)
    states = [wrapper.gradients()]
    for retain in (True, False):
        loss = model(torch.ones(1, 2)).sum()
        states.append(wrapper.gradients())
        loss.backward()
        states.append(wrapper.gradients())
    assert states[0] == states[1] != states[2] == states[3] != states[4]
    model.zero_grad()
    assert wrapper.gradients() == states[0]
    del model, loss
    assert wrapper.gradients() == states[0]
    step, back = Prepared("step", optimizer="SGD", models=("ddp0",), unreduced=False), Prepared("backward")
    for number in range(3):
        tracer.note(step, 0, number)
        place, stack = tracer.note(back)
        assert [frame[2] for frame in stack.frames] == ["looks", "<module>"]
        tracer.finish(place, number, 1)
    tracer.note(wrapper.forward(True, False, True), 2**64 - 1)
    tracer.note(back)
    if tracer.native_fingerprint is not None:
        big = torch.arange(5000)
        same = [big, big[:1], big[:64].to(torch.int64), big[:65], big.view(50, 100), big.to(torch.float16), big.to(torch.uint8)]
        same += [torch.ones(3), torch.zeros(0), torch.tensor(3.5), torch.tensor(True), [], (None, [big[:3]], {"x": big[:4], "y": (big,)})]
        same += [[big[i : i + 9] for i in range(12)], [[[[[big]]]]], torch.nn.Parameter(torch.rand(20, 30)), big[7:].to(torch.complex64)]
        for batch in same:
            assert tracer.native_fingerprint(((batch,), {})) == fingerprint.of_batch(((batch,), {})), batch
        for batch in ("text", 3, big[::2], torch.eye(2).to_sparse(), [big, "text"], big.to("meta"), torch.rand(2).to(torch.complex64).conj()):
            assert tracer.native_fingerprint(batch) is None, batch

for name, module in (("python", None), ("native", native.load(native.build_path()))):
    tracer = Tracer(sys.argv[1] + "/" + name)
    tracer.open(0, 1)
    hook = Hook(tracer, module)
    calls()
    looks(tracer)
    Watch(tracer).poll(tracer.last_time)
    hook.remove()
    assert not tracer.failed
    tracer.failed = True  # ends its Watch
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, native_build: str) -> Path:
    """The folder that BOTH has filled."""
    folder = tmp_path_factory.mktemp("both")
    script = folder / "both.py"
    script.write_text(BOTH)
    outcome = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    return folder


def collectives(folder: Path) -> list[Event]:
    return [e for e in load_run(folder).ranks[0].events if e.kind == events.COLLECTIVE]


def test_both_kernels_write_the_same_records(both: Path) -> None:
    def shown(event: Event) -> tuple[object, ...]:
        detail = {key: value for key, value in event.detail.items() if key != "done"}
        stack = [str(site) for site in event.stack]
        what = (event.op, event.group, event.index, event.origin, event.numel, event.dtype, event.root, event.reduce_op)
        return (*what, stack, detail, event.detail["done"] is not None)

    python, native = collectives(both / "python"), collectives(both / "native")
    assert [shown(event) for event in native] == [shown(event) for event in python]
    assert len(native) > 1100
    assert {e.detail["thread"] for e in native} == {0, 1}
    assert len({e.group for e in native}) == 2
    origins = {e.origin for e in native}
    assert {
        events.USER,
        events.DDP_CONSTRUCTOR,
        events.DDP_BUCKET,
        events.DDP_BUFFERS,
        events.DDP_REBUILD,
        events.OBJECT,
    } <= origins
    assert [e.op for e in native if e.detail["raised"]] == ["broadcast"]
    assert all(earlier.time <= later.time for earlier, later in pairwise(native))


def test_both_kernels_write_the_same_events(both: Path) -> None:
    def shown(folder: Path) -> list[tuple[object, ...]]:
        kinds = (events.STEP, events.BACKWARD, events.FORWARD)
        found = [event for event in load_run(folder).ranks[0].events if event.kind in kinds]
        done = [event.detail.pop("done", None) for event in found]
        return [(e.kind, e.group, e.detail, [str(site) for site in e.stack], at is None) for e, at in zip(found, done, strict=True)]

    python, native = shown(both / "python"), shown(both / "native")
    assert native == python
    assert [(kind, detail.get("buckets"), is_open) for kind, _, detail, _, is_open in native if kind == events.BACKWARD] == [
        *((events.BACKWARD, number, False) for number in range(3)),
        (events.BACKWARD, None, True),
    ]


def test_both_kernels_write_the_same_checks(both: Path) -> None:
    def checks(folder: Path) -> dict[int, int]:
        follow = FollowRun(folder)
        follow.poll()
        return follow.readers[0].checks

    assert list(checks(both / "native")) == [1024]
    assert checks(both / "native") == checks(both / "python")


THREADS = """
import sys, threading
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from ddp_audit.trace.worker import native
from ddp_audit.trace.worker.hook import Hook
from ddp_audit.trace.worker.tracer import Tracer
from ddp_audit.trace.worker.watch import Watch

sys.setswitchinterval(1e-5)
dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
tracer = Tracer(sys.argv[1])
tracer.open(0, 2)
hook = Hook(tracer, native.load(native.build_path()))
Watch(tracer)

def work():
    tensor = torch.ones(2)
    for _ in range(6000):
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0, async_op=True)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(tracer.native.collectives)
"""


def test_threads_share_the_file_and_its_growth(tmp_path: Path, native_build: str) -> None:
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    outcome = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (outcome.returncode, outcome.stdout) == (0, "36000\n"), outcome.stderr
    found = collectives(tmp_path)
    assert [e.index for e in found] == list(range(36000))
    assert (tmp_path / "rank-00000.ddptrace").stat().st_size > layout.CHUNK
    for number in (1, 2, 3):
        mine = [(e.op, e.detail["async"]) for e in found if e.detail["thread"] == number]
        assert mine == [("all_reduce", False), ("broadcast", True)] * 6000


TROUBLE = """
import signal, torch, torch.distributed as dist
from ddp_audit.trace.worker import boot
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
hook, tracer = boot._state["hook"], boot._state["tracer"]
def interrupted(*arguments):
    raise KeyboardInterrupt
hook.learn = interrupted
try:
    dist.all_reduce(torch.ones(3))
except KeyboardInterrupt:
    print("interrupted", tracer.on)
del hook.learn
dist.all_reduce(torch.ones(3))
tracer.frames = None
total = torch.ones(4)
dist.all_reduce(total)
dist.all_reduce(total)
print("went on", total.tolist(), tracer.on)
"""


@pytest.fixture
def rank_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)


def run_alone(folder: Path, source: str, native: str) -> int:
    script = folder / "script.py"
    script.write_text(source)
    return run_traced([sys.executable, str(script)], directory=folder / "trace", native=native).exit_code


def test_an_interrupt_passes_and_a_failure_ends_the_tracer_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rank_of_one: None, native_build: str
) -> None:
    assert run_alone(tmp_path, TROUBLE, "on") == 0
    captured = capfd.readouterr()
    assert "interrupted True" in captured.out
    assert "went on [1.0, 1.0, 1.0, 1.0] False" in captured.out
    assert captured.err.count("ddp-audit: tracing of rank 0 has ended") == 1
    assert "Traceback" not in captured.err
    assert [e.numel for e in collectives(tmp_path / "trace")] == [2, 3]


ONE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
"""


@pytest.mark.parametrize(
    ("state", "mode", "said"),
    [
        ("damaged", "auto", "cannot be loaded"),
        ("none", "auto", ""),
        ("none", "on", "is not built for the torch of this process"),
    ],
)
def test_without_a_build_the_python_kernel_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rank_of_one: None,
    state: str,
    mode: str,
    said: str,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if state == "damaged":
        path = Path(build_path())
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x7fELF and nothing else")
    assert run_alone(tmp_path, ONE, mode) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "ddp-audit" in line]
    assert len(lines) == bool(said)
    assert all(said in line and "the Python kernel records" in line for line in lines)
    (start, *_) = load_run(tmp_path / "trace").ranks[0].events
    assert start.detail["kernel"] == "python"
    assert len(collectives(tmp_path / "trace")) == 1


def test_what_cannot_be_built_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert choose_kernel("on", sys.stdout) == "off"
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("ddp-audit: building the native kernel")
    assert second == "ddp-audit: no native kernel, the Python kernel records: no C++ compiler ($CXX, c++, g++ or clang++)"


def test_a_build_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'kernel.cpp:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    told: list[str] = []
    assert not ensure_built(told.append)
    assert "it does not compile: kernel.cpp:1: error: no such thing" in told[1]
    assert not is_built(build_path())


COMPILER = """\
#!/bin/sh
echo call >> "$CALLS"
[ -n "$BUILD" ] || { echo "kernel.cpp:1: error: no such thing" >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
cp "$BUILD" "$2"
"""


def build_in_background(folder: Path, monkeypatch: pytest.MonkeyPatch, build: str) -> Path:
    """Where a build of a compiler that only copies a build belongs; without a build it fails."""
    compiler = folder / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    for name, value in (("XDG_CACHE_HOME", folder), ("CXX", compiler), ("CALLS", folder / "calls"), ("BUILD", build)):
        monkeypatch.setenv(name, str(value))
    return Path(build_path())


def appears(path: Path) -> bool:
    end = time.monotonic() + 120
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return path.exists()


def test_auto_builds_once_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], native_build: str
) -> None:
    target = build_in_background(tmp_path, monkeypatch, native_build)
    assert choose_kernel("off", sys.stdout) == "off" and capsys.readouterr().out == ""
    assert choose_kernel("auto", sys.stdout) == "auto"
    assert capsys.readouterr().out == ("ddp-audit: the native kernel is being built in the background; later runs record with it\n")
    assert appears(target) and is_built(str(target))
    assert choose_kernel("auto", sys.stdout) == "auto" and capsys.readouterr().out == ""
    assert (tmp_path / "calls").read_text() == "call\n"


def test_what_failed_in_the_background_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = build_in_background(tmp_path, monkeypatch, "")
    assert start_in_background()
    why = target.with_name("not-built")
    assert appears(why)
    assert why.read_text() == "it does not compile: kernel.cpp:1: error: no such thing\n"
    assert not start_in_background()
    assert (tmp_path / "calls").read_text() == "call\n"


def test_the_watch_rests_while_the_program_goes_on() -> None:
    pytest.importorskip("torch")
    from ddp_audit.trace.worker.watch import Watch

    def pause(native: object, last: float = 0.0, patience: float | None = None) -> float:
        stacks = None if patience is None else SimpleNamespace(patience=patience)
        tracer = SimpleNamespace(native=native, last_time=last)
        return Watch._pause(SimpleNamespace(_tracer=tracer, _stacks=stacks))  # type: ignore[arg-type]

    now = time.time()
    assert pause(SimpleNamespace(last_time=now)) == pause(SimpleNamespace(last_time=0.0), last=now) == 0.5
    assert pause(SimpleNamespace(last_time=now), patience=0.6) == pytest.approx(0.2)  # a locked interpreter is told in time
    assert pause(SimpleNamespace(last_time=now), patience=0.0) == 0.5
    assert pause(SimpleNamespace(last_time=now - 5)) == pause(None, last=now) == 0.1


def test_which_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")  # no compiler: nothing begins in the background
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("DDP_AUDIT_NATIVE", raising=False)
    assert choose_kernel(None, sys.stdout) == "auto"
    monkeypatch.setenv("DDP_AUDIT_NATIVE", "off")
    assert choose_kernel(None, sys.stdout) == "off"
    assert choose_kernel("auto", sys.stdout) == "auto"
    monkeypatch.setenv("DDP_AUDIT_NATIVE", "perhaps")
    with pytest.raises(Usage, match="DDP_AUDIT_NATIVE is auto, on or off, not 'perhaps'"):
        choose_kernel(None, sys.stdout)
    outcome = subprocess.run([sys.executable, "-m", "ddp_audit.trace", __file__], capture_output=True, text=True, timeout=60)
    assert (outcome.returncode, outcome.stderr) == (2, "ddp-audit: DDP_AUDIT_NATIVE is auto, on or off, not 'perhaps'\n")


def test_a_build_that_anybody_could_have_changed_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "build"
    path.write_bytes(b"")
    path.chmod(0o755)
    assert is_built(str(path))
    path.chmod(0o777)
    assert not is_built(str(path))
