"""Config values that a launch sets, in order, with where each came from."""

from pathlib import Path

from ddp_audit.launch import read_command
from ddp_audit.launch.overrides import UNKNOWN, config_file_values, missing_config_files, overrides_of


def values(command: str, folder: Path) -> dict[str, object]:
    return {name: override.value for name, override in overrides_of(read_command(command), folder).items()}


def test_arguments(tmp_path: Path) -> None:
    found = values(
        "torchrun --nproc_per_node=2 run.py --a=32 --b False --c-d 1e-3 --flag --no-amp --name x --neg -4 e=5 word", tmp_path
    )
    assert found == {
        "a": 32, "b": False, "c_d": 1e-3, "flag": True, "no_amp": True, "amp": False, "name": "x", "neg": -4, "e": 5,
    }  # fmt: skip


def test_config_file_then_argument_in_order(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("accum = 5 * 8\nbatch = 12\nraise SystemExit('never run')\n")
    launch = read_command("torchrun --nproc_per_node=2 run.py --batch=1 big.py --accum=16")
    found = overrides_of(launch, tmp_path)
    assert (found["batch"].value, found["batch"].where) == (12, "big.py:2")
    assert (found["accum"].value, found["accum"].where) == (16, "--accum=16 of the named launch")


def test_config_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"train": {"accum": 8, "lr": 0.1}, "eval": {"lr": 1}}')
    (tmp_path / "c.toml").write_text("[train]\naccum = 9\n")
    found = values("torchrun run.py --config c.json", tmp_path)
    assert (found["accum"], found["train.accum"], found["eval.lr"]) == (8, 8, 1)
    assert "lr" not in found
    assert values("torchrun run.py --cfg=c.toml", tmp_path)["accum"] == 9
    assert values("torchrun run.py --data c.json", tmp_path) == {"data": "c.json"}


def test_config_files_are_folded_and_never_executed(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "import os\nos.abort()\na = 5 * 8\nb = a // 3\nc: int = -2\nd, e = 1, 2\nf = os.cpu_count()\n"
        "if f:\n    a2 = 1\ng = 1\ng += 4\nh = 2**10\ni = 'x'\nj = [1, a]\nk = 1 / 0\n"
    )
    found = {name: override.value for name, override in config_file_values(path, "config.py").items()}
    assert found.pop("k") is UNKNOWN
    assert found == {
        "a": 40, "b": 13, "c": -2, "d": 1, "e": 2, "f": UNKNOWN, "a2": UNKNOWN, "g": 5, "h": 1024, "i": "x", "j": [1, 40],
    }  # fmt: skip


def test_what_cannot_be_read_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = = 1\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "list.json").write_text("[1, 2]")
    for name in ("broken.py", "latin.py", "list.json", "absent.py"):
        assert config_file_values(tmp_path / name, name) == {}


def test_missing_config_files(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("a = 1\n")
    launch = read_command("torchrun run.py here.py gone.py --config=lost.json --data set.json")
    assert missing_config_files(launch, tmp_path) == ["gone.py", "lost.json"]


def test_the_first_folder_that_has_the_file_is_taken(tmp_path: Path) -> None:
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(f"a = {value}\n")
    (tmp_path / "two" / "one.py").write_text("a = 3\n")
    folders = [tmp_path / "one", tmp_path / "two"]
    assert overrides_of(read_command("torchrun run.py one.py"), folders)["a"].value == 1
    assert overrides_of(read_command("torchrun run.py two.py"), folders)["a"].value == 2
