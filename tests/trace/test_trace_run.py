"""Real runs of two ranks with the tracer in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit import events
from ddp_audit.compare.run import EXITED, KILLED, RAISED, WAITING, RankRun, RecordedRun
from ddp_audit.events import Event
from ddp_audit.trace.launcher import LaunchError, LaunchResult, is_plain_python, resolve, run_traced
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

HERE = Path(__file__).parent
WORKER = str(HERE / "traced_worker.py")
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--standalone"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="module", params=["off", "on"], ids=["python", "native"])
def kernel(request: pytest.FixtureRequest) -> str:
    """Which kernel records, as `run_traced` takes it."""
    if request.param == "on":
        request.getfixturevalue("native_build")
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, kernel: str) -> RecordedRun:
    """One run in which rank 1 raises at its end, with DataLoader worker processes."""
    folder = tmp_path_factory.mktemp("trace")
    result = run_traced([*TORCHRUN, WORKER, "--raise", "--workers"], directory=folder, native=kernel)
    assert result.exit_code == 1
    assert not result.killed
    return load_run(folder)


def collectives(rank: RankRun, **fields: object) -> list[Event]:
    found = [e for e in rank.events if e.kind == events.COLLECTIVE]
    return [e for e in found if all(getattr(e, name) == value for name, value in fields.items())]


def kinds(rank: RankRun, kind: str) -> list[Event]:
    return [e for e in rank.events if e.kind == kind]


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(WORKER).read_text().splitlines(), 1) if text in line)


def test_both_ranks_recorded_the_same_collectives(recorded: RecordedRun) -> None:
    def plain(rank: RankRun) -> list[object]:
        return [
            (e.op, e.group, e.index, e.origin, e.numel, e.dtype, e.root, e.reduce_op, e.site)
            for e in collectives(rank)
            if e.op not in events.POINT_TO_POINT
            and "hooks" not in {s.function for s in e.stack}  # a join's shadows come from other lines
            and recorded.groups[e.group] == (0, 1)
            and e.origin != events.OBJECT
        ]

    assert plain(recorded.ranks[0]) == plain(recorded.ranks[1])
    assert len(plain(recorded.ranks[0])) > 40
    for rank in recorded.ranks.values():
        for name in recorded.groups:
            numbered = [e.index for e in collectives(rank, group=name) if e.index is not None]
            assert numbered == list(range(len(numbered)))


def test_ddp_traffic_is_named(recorded: RecordedRun) -> None:
    rank = recorded.ranks[1]
    shown = [(e.op, e.origin, e.numel, e.dtype) for e in collectives(rank)][:12]
    parameters = 8 * 16 + 16 + 16 + 16 + 16 * 2 + 2
    assert shown == [
        ("all_gather", events.DDP_CONSTRUCTOR, 1, "int64"),
        ("broadcast", events.DDP_CONSTRUCTOR, 16, "int64"),
        ("broadcast", events.DDP_CONSTRUCTOR, parameters + 32, "float32"),
        ("broadcast", events.DDP_CONSTRUCTOR, 1, "int64"),
        ("broadcast", events.DDP_BUFFERS, 32, "float32"),
        ("broadcast", events.DDP_BUFFERS, 1, "int64"),
        ("all_reduce", events.DDP_BUCKET, parameters, "float32"),
        ("broadcast", events.DDP_REBUILD, 7, "int32"),
        ("broadcast", events.DDP_REBUILD, 1, "int32"),
        ("broadcast", events.DDP_BUFFERS, 32, "float32"),
        ("broadcast", events.DDP_BUFFERS, 1, "int64"),
        ("all_reduce", events.DDP_BUCKET, parameters, "float32"),
    ]
    unused = collectives(rank, origin=events.DDP_UNUSED_MAP)
    assert [(e.op, e.numel, e.dtype) for e in unused] == [("all_reduce", 2, "int32")]
    bucket = collectives(rank, origin=events.DDP_BUCKET)[0]
    assert bucket.site is not None
    assert (Path(bucket.site.path).name, bucket.site.line, bucket.site.function) == (
        "traced_worker.py",
        line_of("square().mean().backward()"),
        "train",
    )
    assert [s.function for s in bucket.stack] == ["train", "main", "<module>"]
    assert all(e.detail["done"] is not None for e in collectives(rank))


def test_origins_of_join_and_hooks(recorded: RecordedRun) -> None:
    def origins(rank: int, text: str, op: str = "all_reduce") -> list[tuple[str, str | None, int | None]]:
        line = line_of(text)
        found = [e for e in collectives(recorded.ranks[rank], op=op) if line in {s.line for s in e.stack}]
        return [(e.origin, e.dtype, e.numel) for e in found]

    assert origins(1, "compressed(torch") == [(events.DDP_BUCKET, "float16", 20)]
    assert origins(1, "mine(torch") == [(events.DDP_BUCKET, "float32", 20)]
    assert origins(1, "watched(torch") == [(events.USER, "float32", 1), (events.DDP_BUCKET, "float32", 20)]
    bucket = (events.DDP_BUCKET, "float32", 28)
    assert origins(1, "joined(torch").count(bucket) == 2  # rank 1 has one batch more
    assert origins(0, "joined(torch").count(bucket) == 1
    shadows = origins(0, "with joined.join()") + origins(0, "with joined.join()", "broadcast")
    assert (events.DDP_JOIN, "float32", 28) in shadows
    assert {origin for origin, _, _ in shadows} == {events.DDP_JOIN}


def test_arguments_of_the_users_collectives(recorded: RecordedRun) -> None:
    rank = recorded.ranks[1]
    mine = [e for e in collectives(rank, origin=events.USER) if e.site is not None and e.site.function == "collectives"]
    pair = next(name for name, ranks in recorded.groups.items() if ranks == (0, 1) and name != "default")
    alone = next(name for name, ranks in recorded.groups.items() if ranks == (1,))
    assert [(e.op, e.group, e.numel, e.root, e.reduce_op, e.detail["async"]) for e in mine] == [
        ("all_reduce", "default", 3, None, "max", False),
        ("all_reduce", "default", 3, None, "sum", True),
        ("broadcast", "default", 3, 1, None, False),
        ("broadcast", pair, 3, 1, None, False),
        ("all_reduce", alone, 3, None, "sum", False),
        ("recv", "default", 3, None, None, False),
        ("reduce", "default", 3, 1, "product", False),
        ("scatter", "default", 3, 0, None, False),
        ("all_gather", "default", 3, None, None, False),
        ("all_reduce", "default", 8, None, "sum", False),
        ("barrier", "default", None, None, None, False),
    ]
    assert [(e.detail["peer"], e.detail["tag"]) for e in mine if e.op == "recv"] == [(0, 0)]
    assert [e.index for e in mine if e.op == "recv"] == [None]
    assert [e.detail["call"] for e in mine if e.numel == 8] == ["allreduce_coalesced_"]
    assert [(e.op, e.dtype) for e in collectives(rank, origin=events.OBJECT)] == [
        ("all_gather", "int64"),
        ("all_gather", "uint8"),
    ]
    made = [e.detail for e in kinds(recorded.ranks[0], events.GROUP) if e.detail["action"] == "new"]
    assert [(d["name"], d["ranks"]) for d in made] == [(pair, [0, 1]), ("", [1])]


def test_events_beside_collectives(recorded: RecordedRun, kernel: str) -> None:
    for number, rank in recorded.ranks.items():
        (start,) = kinds(rank, events.START)
        assert (start.detail["rank"], start.detail["world_size"]) == (number, 2)
        assert start.detail["kernel"] == ("native" if kernel == "on" else "python")
        wraps = kinds(rank, events.WRAP)
        assert [e.detail["model"] for e in wraps] == [f"ddp{n}" for n in range(6)]
        assert wraps[0].detail["buffers"] == [
            ["1.running_mean", 16, "float32"],
            ["1.running_var", 16, "float32"],
            ["1.num_batches_tracked", 1, "int64"],
        ]
        assert wraps[1].detail["options"] == {"find_unused_parameters": True}
        assert [e.detail["seed"] for e in kinds(rank, events.SEED)] == [3]
        samplers = kinds(rank, events.SAMPLER)
        assert [(e.detail["action"], e.detail["epoch"]) for e in samplers] == [
            ("set_epoch", 0),
            ("iter", 0),
            ("set_epoch", 1),
            ("iter", 1),
        ]
        forwards = [e.detail for e in kinds(rank, events.FORWARD) if e.detail["model"] in ("ddp0", "ddp1")]
        assert [(d["model"], d["sync"], d["grad"], d["training"]) for d in forwards] == [
            *[("ddp0", True, True, True)] * 6,
            ("ddp1", False, True, True),
            ("ddp1", True, True, True),
            *[("ddp1", False, True, True)] * 2,
        ]
        assert [e.detail["buckets"] for e in kinds(rank, events.BACKWARD)][:10] == [1] * 6 + [0, 1, 0, 0]
    assert [e.detail["path"] for e in kinds(recorded.ranks[0], events.SAVE)] == ["/dev/null"]


def test_a_step_on_unreduced_gradients_is_seen_and_accumulation_is_not(recorded: RecordedRun) -> None:
    for rank in recorded.ranks.values():
        steps = [e for e in kinds(rank, events.STEP) if e.detail["models"] == ["ddp1"]]
        assert [(e.detail["reduced"], e.detail["unreduced"]) for e in steps] == [(1, False), (0, True), (0, False)]
        others = [e for e in kinds(rank, events.STEP) if e.detail["models"] == ["ddp0"]]
        assert [(e.detail["reduced"], e.detail["unreduced"]) for e in others] == [(1, False)] * 6
        assert steps[1].site is not None
        assert steps[1].site.line == line_of("# unreduced")


def test_fingerprints_of_batches_and_hashes_of_parameters(recorded: RecordedRun) -> None:
    def prints(rank: int, kind: str, key: str) -> list[object]:
        return [e.detail[key] for e in kinds(recorded.ranks[rank], kind)]

    batches = [set(prints(rank, events.BATCH, "fingerprint")) for rank in (0, 1)]
    assert len(batches[0]) == 6  # a sampler gives each rank its own samples, and shuffles them between epochs
    assert not batches[0] & batches[1]

    def hashes(rank: int) -> dict[object, object]:
        found = kinds(recorded.ranks[rank], events.PARAMETERS)
        return {(e.detail["model"], e.detail["step"], e.detail["at"]): e.detail["hash"] for e in found}

    zero, one = hashes(0), hashes(1)
    for step in (1, 2, 4):
        assert zero["ddp0", step, "step"] == one["ddp0", step, "step"]
    assert zero["ddp1", 1, "step"] == one["ddp1", 1, "step"]
    assert zero["ddp1", 2, "step"] != one["ddp1", 2, "step"]  # after the unreduced step
    assert ("ddp0", 6, "exception") in one


def test_how_the_ranks_ended(recorded: RecordedRun) -> None:
    one = recorded.ranks[1]
    assert (one.state, one.code) == (RAISED, 1)
    assert "ValueError: the end of rank 1" in one.last
    (raised,) = kinds(one, events.EXCEPTION)
    assert raised.site is not None
    assert raised.site.line == line_of("raise ValueError")
    assert recorded.ranks[0].state in (EXITED, RAISED, KILLED)  # gloo or torchrun may have ended it first
    assert recorded.meta["world_size"] == 2
    assert recorded.meta["exit_code"] == 1
    assert recorded.meta["command"][0] == "torchrun"


def run_python(script: Path, arguments: list[str], environment: dict[str, str]) -> str:
    outcome = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def plain_bits() -> list[str]:
    """What the worker prints of its parameters in a run without the tracer."""
    outcome = subprocess.run([*resolve(TORCHRUN), WORKER, "--same"], capture_output=True, text=True, timeout=120)
    bits = sorted(re.findall(r"bits \d \w+ [\d.]+", outcome.stdout))
    assert len(bits) == 2
    return bits


def test_the_tracer_changes_no_bit(tmp_path: Path, capfd: pytest.CaptureFixture[str], plain_bits: list[str], kernel: str) -> None:
    command = [*TORCHRUN, "-m", "ddp_audit.trace", "--directory", str(tmp_path), WORKER, "--same"]
    result = run_traced(command, directory=tmp_path, native=kernel)
    assert result.exit_code == 0
    assert sorted(re.findall(r"bits \d \w+ [\d.]+", capfd.readouterr().out)) == plain_bits
    assert [r.state for r in load_run(tmp_path).ranks.values()] == [EXITED, EXITED]


HANG = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 0:
    dist.broadcast(torch.ones(3), 0)
    dist.broadcast(torch.ones(4), 1)
else:
    dist.broadcast(torch.ones(3), 0)
    time.sleep(600)
"""


def test_a_stall_is_reported_with_every_stack_and_ended(tmp_path: Path, kernel: str) -> None:
    script = tmp_path / "hang.py"
    script.write_text(HANG)
    reports: list[dict[int, tuple[str, list[int]]]] = []
    calls: list[int] = []

    def report(run: RecordedRun) -> None:
        reports.append(
            {
                number: (rank.state, [e.site.line for e in kinds(rank, events.STACK) if e.site is not None])
                for number, rank in run.ranks.items()
            }
        )

    def diverged(run: RecordedRun) -> bool:
        calls.append(run.world_size)
        return False

    result = run_traced(
        [*TORCHRUN, str(script)],
        directory=tmp_path / "trace",
        native=kernel,
        stall_after=2.0,
        on_stall="kill",
        on_stall_report=report,
        on_divergence=diverged,
    )
    assert result.killed
    assert result.exit_code != 0
    assert reports == [{0: (WAITING, [8]), 1: ("running", [11])}]
    assert 2 in calls
    run = load_run(tmp_path / "trace")
    states = {rank.state for rank in run.ranks.values()}
    assert KILLED in states and states <= {KILLED, RAISED}  # the second may fail in the moment between, as its peer is gone
    assert run.ranks[0].waiting is not None
    assert (run.ranks[0].waiting.op, run.ranks[0].waiting.root) == ("broadcast", 1)
    assert run.ranks[1].waiting is None


def alone(tmp_path: Path, source: str, *arguments: str, native: str | None = None) -> LaunchResult:
    """Runs a script as the only rank of a world of one."""
    script = tmp_path / "script.py"
    script.write_text(source)
    return run_traced([sys.executable, str(script), *arguments], directory=tmp_path / "trace", native=native)


@pytest.fixture
def rank_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)


def test_a_hidden_sitecustomize_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank_of_one: None) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = 'ran'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    source = "import os, sys, torch\nsys.exit(7 if os.environ['THEIRS'] == 'ran' else 8)\n"
    assert alone(tmp_path, source).exit_code == 7
    rank = load_run(tmp_path / "trace").ranks[0]
    assert (rank.state, rank.code) == (EXITED, 7)


SPAWN = """
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(2 + 0 * rank))
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(work, (port,), nprocs=2, start_method=sys.argv[1])
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_multiprocessing_started(tmp_path: Path, method: str) -> None:
    assert alone(tmp_path, SPAWN, method).exit_code == 0
    run = load_run(tmp_path / "trace")
    assert run.world_size == 2
    assert [[e.op for e in collectives(rank)] for rank in run.ranks.values()] == [["all_reduce"]] * 2
    assert {rank.state for rank in run.ranks.values()} == {EXITED}


SEEDS = """
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # runs after the tracer's own
import torch
torch.manual_seed(4)
"""


def test_plain_python_without_a_process_group(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert alone(tmp_path, SEEDS).exit_code == 0
    assert capfd.readouterr().out.strip() == "['MainThread']"  # no thread of the tracer outlives the interpreter
    run = load_run(tmp_path / "trace")
    assert run.world_size == 1
    assert [e.kind for e in run.ranks[0].events] == [events.START, events.SEED, events.EXIT]


COMPILED = """
import torch, torch.distributed as dist, warnings
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.inner(x).relu()
model = DistributedDataParallel(Net())
compiled = torch.compile(model, backend=backend)
for _ in range(3):
    compiled(torch.ones(2, 4)).sum().backward()
print("graphs", [len(list(g.graph.nodes)) for g in graphs])
"""


@pytest.fixture(scope="module")
def compiled_plainly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What COMPILED prints without the tracer."""
    script = tmp_path_factory.mktemp("plain") / "script.py"
    script.write_text(COMPILED)
    plain = run_python(script, [], {})
    assert re.search(r"graphs \[\d", plain)
    return plain


def test_a_compiled_model_is_compiled_as_without_the_tracer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], compiled_plainly: str, rank_of_one: None, kernel: str
) -> None:
    assert alone(tmp_path, COMPILED, native=kernel).exit_code == 0
    captured = capfd.readouterr()
    assert captured.out.strip() == compiled_plainly.strip()
    assert "does not know how to trace" not in captured.err
    rank = load_run(tmp_path / "trace").ranks[0]
    assert len(collectives(rank, origin=events.DDP_BUCKET)) == 3
    assert len(kinds(rank, events.FORWARD)) == 3


BROKEN = """
import torch, torch.distributed as dist
from ddp_audit.trace.worker import boot
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
boot._state["tracer"].ring.write = None
total = torch.ones(2)
dist.all_reduce(total)
dist.all_reduce(total)
print("went on", total.tolist())
"""


def test_a_failing_tracer_leaves_the_training_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str], rank_of_one: None) -> None:
    assert alone(tmp_path, BROKEN, native="off").exit_code == 0  # the native kernel writes by itself
    captured = capfd.readouterr()
    assert "went on [1.0, 1.0]" in captured.out
    assert captured.err.count("ddp-audit: tracing of rank 0 has ended") == 1
    assert "Traceback" not in captured.err


def test_commands_that_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-program: command not found"):
        run_traced(["no-such-program"], directory=tmp_path / "trace")
    with pytest.raises(LaunchError, match="no command"):
        run_traced([], directory=tmp_path / "trace")
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match="cannot hold the trace"):
        run_traced([sys.executable, "-c", "0"], directory=tmp_path / "file")
    with pytest.raises(LaunchError, match="command not found"):
        run_traced([str(tmp_path / "file")], directory=tmp_path / "trace")


def test_an_error_in_a_callback_comes_after_the_command(tmp_path: Path, rank_of_one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: RecordedRun) -> bool:
        raise RuntimeError("in the comparison")

    script = tmp_path / "script.py"
    script.write_text("import time, torch\ntime.sleep(1)\nopen('ended', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="in the comparison"):
        run_traced([sys.executable, str(script)], directory=tmp_path / "trace", on_divergence=fails)
    assert (tmp_path / "ended").exists()


def test_launchers_are_found_beside_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    program, *rest = resolve(["torchrun", "train.py"])
    assert Path(program).is_file()
    assert rest[-1] == "train.py"
    assert resolve(["python", "x.py"]) == [sys.executable, "x.py"]


def test_what_is_plain_python() -> None:
    assert is_plain_python(["python3.11", "-u", "train.py"])
    assert is_plain_python(["/usr/bin/python", "-m", "package.train"])
    assert not is_plain_python(["python", "-m", "torch.distributed.run", "train.py"])
    assert not is_plain_python(["torchrun", "train.py"])
    assert not is_plain_python(["bash", "run.sh"])


def test_a_script_that_is_not_there() -> None:
    outcome = subprocess.run([sys.executable, "-m", "ddp_audit.trace", "nowhere.py"], capture_output=True, text=True, timeout=60)
    assert (outcome.returncode, outcome.stderr) == (2, "ddp-audit: nowhere.py: no such file\n")
