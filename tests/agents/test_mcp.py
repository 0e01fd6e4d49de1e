"""The server of the Model Context Protocol, as a client of the SDK sees it: over standard input and output of a real process."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit.cli import main

LIMIT = 120  # seconds of one session, on a machine with much else to do
START = "import sys; sys.path[:] = [p for p in sys.path if p]; from ddp_audit.cli import main; sys.exit(main())"
HANG = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        dist.barrier()
"""

Talk = Callable[[ClientSession], Awaitable[Any]]


def talk(folder: Path, say: Talk, *options: str) -> Any:
    """What comes of a session with a server that works in a folder."""

    async def session() -> Any:
        parameters = StdioServerParameters(command=sys.executable, args=["-c", START, "mcp", *options], cwd=str(folder))
        with anyio.fail_after(LIMIT):
            async with stdio_client(parameters) as streams, ClientSession(*streams) as client:
                await client.initialize()
                return await say(client)

    return anyio.run(session)


def called(root: Path, tool: str, *options: str, **arguments: Any) -> CallToolResult:
    async def say(client: ClientSession) -> CallToolResult:
        answer = await client.call_tool(tool, arguments)
        assert isinstance(answer, CallToolResult)
        return answer

    result: CallToolResult = talk(root, say, *options)
    return result


def answer(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error and result.structured_content is not None, result.content
    return dict(result.structured_content)


def refusal(result: CallToolResult) -> str:
    assert result.is_error
    (content,) = result.content
    assert content.type == "text"
    return content.text


def test_the_tools_say_what_they_do(tmp_path: Path) -> None:
    async def say(client: ClientSession) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in talk(tmp_path, say)}
    assert list(tools) == ["audit", "explain", "diff", "trace_summary", "batch"]
    for tool in tools.values():
        assert tool.description and tool.output_schema is not None
        assert tool.annotations is not None and tool.annotations.read_only_hint and not tool.annotations.open_world_hint
    assert tools["audit"].input_schema["required"] == ["paths"]


def test_an_audit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANG, encoding="utf-8")
    found = answer(called(tmp_path, "audit", paths=["train.py"], world_size=4))
    assert found["summary"].startswith("1 error") and found["left_out"] == 0 and found["not_audited"] == []
    (finding,) = found["findings"]
    assert (finding["severity"], finding["code"], finding["place"]) == ("error", "DDP201", "train.py:13:9")
    assert finding["steps"] == ["train.py:12 guard: dist.get_rank() == 0: only rank 0 enters"]
    assert finding["fix"] and finding["fixable"] == "ddp-audit --fix --unsafe-fixes"
    assert found["coverage"]["scripts"] == {"train.py": "to-the-end"}


def test_a_page_and_a_rule_that_does_not_exist(tmp_path: Path) -> None:
    async def say(client: ClientSession) -> Any:
        return [await client.call_tool("explain", {"rule": rule}) for rule in ("DDP401", "DDP4", "--help", "DDP999")]

    page, prefix, option, unknown = talk(tmp_path, say)
    (rule,) = answer(page)["result"]
    assert (rule["code"], rule["severity"]) == ("DDP401", "error") and "DistributedDataParallel" in rule["bad"]
    assert len(answer(prefix)["result"]) == 3
    assert "no rule is called '--help'" in refusal(option) and "no rule is called 'DDP999'" in refusal(unknown)


def test_batch_from_numbers_and_what_is_missing(tmp_path: Path) -> None:
    async def say(client: ClientSession) -> Any:
        numbers = {"world_size": 16, "tokens": 491520, "block_size": 1024}
        return [await client.call_tool("batch", numbers), await client.call_tool("batch", {"world_size": 16})]

    whole, part = talk(tmp_path, say)
    found = answer(whole)["answer"]
    assert found["options"][0]["tokens_per_update"] == 491520 and len(found["options"]) <= 8
    assert "--block-size" in refusal(part)


def test_a_recorded_run(tmp_path: Path) -> None:
    index = generate(tmp_path / "run", 6, 300, "operation", 4)
    (tmp_path / "train.py").write_text(HANG, encoding="utf-8")

    async def say(client: ClientSession) -> Any:
        summary = {"folder": "run", "script": "train.py"}
        return [await client.call_tool("diff", {"folder": "run"}), await client.call_tool("trace_summary", summary)]

    diff, summary = (answer(result) for result in talk(tmp_path, say))
    assert (diff["verdict"], diff["world_size"]) == ("diverged", 6)
    (divergence,) = diff["divergences"]
    assert divergence["where"] == f"collective {index} of the default group"
    assert set(divergence["ranks"]) == {"ranks 0-3 and 5", "rank 4"} and divergence["explanation"]
    assert summary["verdict"] == "diverged" and summary["divergence"].startswith(divergence["where"])
    assert [(finding["code"], finding["verdict"] is not None) for finding in summary["findings"]] == [("DDP201", True)]
    assert "no trace" in refusal(called(tmp_path, "diff", folder="."))


def test_what_is_outside_of_the_roots_is_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    (outside / "train.py").write_text(HANG, encoding="utf-8")
    (inside / "link.py").symlink_to(outside / "train.py")

    async def say(client: ClientSession) -> Any:
        return [await client.call_tool("audit", {"paths": [path]}) for path in ("../outside", "link.py", "/etc", "", "-")]

    answers = talk(inside, say)
    assert all("is outside of" in refusal(result) for result in answers[:3])
    assert "not a path" in refusal(answers[3])
    assert answer(answers[4])["summary"] == "No file was audited; 1 could not be read"  # no standard input
    assert answer(called(inside, "audit", "--root", str(outside), paths=["link.py"]))["findings"]


def test_nothing_of_the_project_is_executed(tmp_path: Path) -> None:
    """Not its training script, not its rules, and no file that has the name of a module which the audit imports."""
    trap = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    for name in ("json", "argparse", "yaml", "ast", "anyio", "mcp", "sitecustomize", "ddp_audit"):
        (tmp_path / f"{name}.py").write_text(trap, encoding="utf-8")
    (tmp_path / "train.py").write_text(trap + HANG, encoding="utf-8")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "rule.py").write_text(trap, encoding="utf-8")
    (tmp_path / "ddp-audit.toml").write_text('rules = ["own"]\n', encoding="utf-8")
    found = answer(called(tmp_path, "audit", paths=["train.py", "."]))
    assert found["findings"] and any("rules" in note for note in found["notes"])
    assert list(tmp_path.rglob("*.ran")) == []


def test_answers_stay_short_whatever_the_project(tmp_path: Path) -> None:
    body = HANG + "".join(f"if dist.get_rank() == {n}:\n    dist.barrier()\n" for n in range(400))
    (tmp_path / "train.py").write_text(body.replace("gloo", "x" * 3000), encoding="utf-8")
    for n in range(60):
        (tmp_path / f"broken{n}.py").write_text("import torch.distributed\nx = (\n", encoding="utf-8")
    result = called(tmp_path, "audit", paths=["."], min_severity="info", limit=50)
    found = answer(result)
    assert len(found["findings"]) <= 50 and found["left_out"] == max(0, found["left_out"]) and len(found["not_audited"]) == 20
    assert len(json.dumps(found)) < 100_000


def test_a_tool_that_takes_too_long_is_ended_and_the_server_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANG, encoding="utf-8")

    async def say(client: ClientSession) -> Any:
        return [await client.call_tool("audit", {"paths": ["train.py"]}) for _ in range(2)]

    assert all("no answer within 0.01 s" in refusal(result) for result in talk(tmp_path, say, "--timeout", "0.01"))


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def say(client: ClientSession) -> Any:
        bad = [{"paths": []}, {"paths": ["."], "limit": 1000}, {"paths": ["."], "world_size": 0}, {"paths": ["."], "rules": ["NO"]}]
        return [await client.call_tool("audit", arguments) for arguments in bad]

    assert all(result.is_error for result in talk(tmp_path, say))


@pytest.mark.parametrize("words", [["--root", "nowhere"], ["--timeout", "0"], ["--timeout", "nan"]])
def test_wrong_options_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["mcp", *words])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    assert code == 2 and words[0] in capsys.readouterr().err
