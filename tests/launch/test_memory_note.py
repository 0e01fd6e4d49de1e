"""`batch` says that a larger micro-batch needs more memory, and that more processes bring none."""

from __future__ import annotations

import json

import pytest

from ddp_audit.cli import main
from ddp_audit.launch.arithmetic import NO_ROOM

QUESTION = ["batch", "--world-size", "16", "--block-size", "1024", "--batch-size", "12", "--accumulation"]


def test_choices_with_a_larger_batch_come_with_the_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "80"]) == 0
    assert capsys.readouterr().out.count(NO_ROOM) == 1


def test_choices_with_smaller_batches_alone_come_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "16"]) == 0
    assert NO_ROOM not in capsys.readouterr().out


def test_the_json_of_a_script_has_it_among_its_notes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("script")
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(
        "import os\nbatch_size = 12\nblock_size = 1024\naccumulation_steps = 40\naccumulation_steps //= int(os.environ['WORLD_SIZE'])\n"
    )
    assert main(["batch", "train.py", "--world-size", "8", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (NO_ROOM in answer["notes"]) == any(option["B"] > 12 for option in answer["options"])
    assert NO_ROOM in answer["notes"]
