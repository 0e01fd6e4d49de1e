"""Settings: the nearest file, and one clear line for what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.source.config import Config, ConfigError, find_config


def test_none(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_config(tmp_path) == Config()


def test_the_nearest_wins_and_ddp_audit_toml_comes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ddp-audit]\nselect = ['DDP1']\nstrict = true\nworld-size = 8\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    found = find_config(inner / "train.py")
    assert (found.select, found.strict, found.world_size) == (["DDP1"], True, 8)
    (tmp_path / "a" / "ddp-audit.toml").write_text("min-confidence = 'certain'\n")
    found = find_config(inner / "train.py")
    assert (found.select, found.min_confidence) == (None, "certain")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("selct = ['DDP1']\n", "did you mean 'select'?"),
        ("min_confidence = 'likely'\n", "did you mean 'min-confidence'?"),
        ("zzzz = 1\n", "the keys are select, "),
        ("select = 'DDP1'\n", "'select' must be a list of strings"),
        ("world-size = 0\n", "'world-size' must be a whole number from 1"),
        ("world-size = true\n", "'world-size' must be"),
        ("format = 'xml'\n", "'format' must be one of"),
        ("min-severity = 'warn'\n", "one of info, warning, error; did you mean 'warning'?"),
        ("select = [\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "ddp-audit.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        find_config(tmp_path)
    assert words in str(caught.value)
    assert "ddp-audit.toml" in str(caught.value)
