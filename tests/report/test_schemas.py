"""The JSON schemas in the package: real output of each command is valid by its schema, and the schema of settings is the reader's."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import KINDS, generate

from ddp_audit.cli import main
from ddp_audit.source.config import _KEYS, ConfigError, find_config

ROOT = Path(__file__).parents[2]

jsonschema = pytest.importorskip("jsonschema")


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files("ddp_audit.report").joinpath("schemas", f"{name}.schema.json").read_text("utf-8"))
    jsonschema.validators.validator_for(loaded).check_schema(loaded)
    return loaded


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas") / "example"
    shutil.copytree(ROOT / "docs" / "example", folder)
    for kind in KINDS:
        generate(folder / kind, 4, 50, kind, 2)
    return folder


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rules", ["rules"]),
        ("rules", ["explain", "DDP401"]),
        *(("diff", ["diff", kind]) for kind in KINDS),
        ("check", ["check", "train.py"]),
        ("batch", ["batch", "gpt/train.py"]),
        ("batch", ["batch", "gpt/train.py", "--config-file", "gpt/config/large.py", "--from", "8", "--to", "16"]),
        ("batch", ["batch", "--world-size", "16", "--tokens", "491520", "--block-size", "1024"]),
        ("batch", ["batch", "--rank-tokens", "1800,2048,400,2048"]),
    ],
)
def test_what_a_command_prints_is_valid(
    name: str, words: list[str], example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(example)
    assert main([*words, "--format", "json"]) in (0, 1)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema(name))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "version": 99}, schema(name))


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("select = ['DDP1']\nstrict = true\nformat = 'concise'\nmin-severity = 'warning'", True),
        ("[levels]\nDDP309 = 'off'\n[per-file-ignores]\n'tests/*' = ['DDP3']", True),
        ("target-torch = '2.4'\nworld-size = 8\n[helpers]\nrank = ['my_rank']", True),
        ("selct = ['DDP1']", False),
        ("strict = 'yes'", False),
        ("world-size = 0", False),
        ("format = 'xml'", False),
        ("target-torch = '2'", False),
        ("[helpers]\nranks = ['my_rank']", False),
        ("[levels]\nDDP309 = 'never'", False),
    ],
)
def test_the_schema_of_settings_accepts_what_the_reader_accepts(text: str, fits: bool, tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    (tmp_path / "ddp-audit.toml").write_text(text)
    validator = jsonschema.Draft7Validator(schema("settings"))
    assert validator.is_valid(tomllib.loads(text)) == fits
    if fits:
        find_config(tmp_path)
    else:
        with pytest.raises(ConfigError):
            find_config(tmp_path)


def test_the_schema_of_settings_has_every_key() -> None:
    assert schema("settings")["properties"].keys() == _KEYS.keys()
