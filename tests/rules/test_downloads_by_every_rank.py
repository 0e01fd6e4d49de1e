"""Data that every rank fetches into one folder at the same time (DDP702), in different libraries, and those that one rank fetches."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import torchaudio\nimport torchaudio.datasets as sounds\nimport torchvision\n"
    "from torchvision.datasets.utils import download_and_extract_archive, download_url\n"
)
FETCHED = {
    "a data set of sounds": "torchaudio.datasets.GTZAN('data', download=True)",
    "another one, by another name": "sounds.SPEECHCOMMANDS(root='data', download=True)",
    "pictures": "torchvision.datasets.CIFAR10('data', download=True)",
    "an archive": "download_and_extract_archive('http://host/a.zip', 'data')",
    "a file": "download_url('http://host/a.bin', root='data')",
}
SPAWNED = (
    "def main(rank, world):\n    dist.init_process_group('gloo', rank=rank, world_size=world)\n{0}\n"
    "if __name__ == '__main__':\n    torch.multiprocessing.spawn(main, args=(2,), nprocs=2)\n"
)
LAUNCHED = "dist.init_process_group('gloo')\nrank = dist.get_rank()\n{0}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("fetch", FETCHED.values(), ids=FETCHED)
def test_every_rank_fetches(fetch: str, tmp_path: Path) -> None:
    (found,) = findings("DDP702", audited(tmp_path, START + LAUNCHED.format(fetch)))
    assert "at the same time" in found.message
    assert findings("DDP702", audited(tmp_path, START + SPAWNED.format("    " + fetch)))
    assert findings("DDP702", audited(tmp_path, START + f"def load():\n    return {fetch}\n" + LAUNCHED.format("data = load()")))


@pytest.mark.parametrize("fetch", FETCHED.values(), ids=FETCHED)
def test_one_rank_fetches(fetch: str, tmp_path: Path) -> None:
    first = f"if rank == 0:\n    {fetch}\ndist.barrier()"
    own = fetch.replace("'data'", "f'data{rank}'")
    for text in (first, own, fetch.replace("download=True", "download=False") if "download=True" in fetch else first):
        assert not findings("DDP702", audited(tmp_path, START + LAUNCHED.format(text)))
    before = f"if __name__ == '__main__':\n    {fetch}\n" + SPAWNED.format("    pass").rpartition("if __name__ == '__main__':\n")[2]
    assert not findings("DDP702", audited(tmp_path, START + SPAWNED.format("    pass").partition("if __name__")[0] + before))
