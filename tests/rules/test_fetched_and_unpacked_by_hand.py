"""DDP701 and DDP702: files that every rank fetches or unpacks by itself, in forms of the standard library and of requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import shutil, tarfile, tempfile, zipfile\nimport urllib.request\nfrom pathlib import Path\nimport requests\n"
    "from torchvision.datasets.utils import extract_archive\n"
)
JOB = "dist.init_process_group('gloo')\nrank = dist.get_rank()\n"
COPY = (
    "def fetch(path, url):\n    path = Path(path)\n    path.parent.mkdir(parents=True, exist_ok=True)\n    if not path.exists():\n"
)
COPY += (
    "        with urllib.request.urlopen(url) as response, open(path, 'wb') as f:\n            shutil.copyfileobj(response, f)\n"
)
CHUNKS = "def fetch(path, url):\n    if not os.path.isfile(path):\n        answer = requests.get(url, stream=True)\n"
CHUNKS += (
    "        with open(path, 'wb') as f:\n            for chunk in answer.iter_content(1024):\n                f.write(chunk)\n"
)
GET = "fetch('cache/a.pt', 'http://host/a.pt')\n"

FETCHED = {
    "copied": f"{COPY}{JOB}{GET}",
    "in pieces": f"{CHUNKS}{JOB}{GET}",
    "at once": f"{JOB}with open('a.pt', 'wb') as f:\n    f.write(requests.get('http://host/a.pt').content)\n",
    "as text": f"{JOB}if not os.path.exists('a.txt'):\n    text = urllib.request.urlopen('http://host/a.txt').read().decode()\n"
    "    Path('a.txt').write_text(text)\n",
    "in an object": "class Rows(Dataset):\n    def __init__(self, path):\n        if not os.path.exists(path):\n"
    "            with open(path, 'wb') as f:\n                shutil.copyfileobj(urllib.request.urlopen('http://host/a'), f)\n"
    f"{JOB}rows = Rows('rows.bin')\n",
}
UNPACKED = {
    "a tar": f"{JOB}if not os.path.isdir('data'):\n    with tarfile.open('a.tar.gz') as t:\n        t.extractall('data')\n",
    "a zip": f"{JOB}zipfile.ZipFile('a.zip').extractall('data')\n",
    "by shutil": f"def unpack(name):\n    if not Path('data').exists():\n        shutil.unpack_archive(name, 'data')\n{JOB}unpack('a.zip')\n",
    "by torchvision": f"{JOB}extract_archive('a.zip', 'data')\n",
    "where it stands": f"{JOB}archive = zipfile.ZipFile('a.zip', 'r')\narchive.extractall()\narchive.close()\n",
}
QUIET = {
    "one rank": f"{COPY}{JOB}if rank == 0:\n    {GET}dist.barrier()\n",
    "a file of its own": f"{COPY}{JOB}fetch(f'cache/{{rank}}.pt', 'http://host/a.pt')\n",
    "put in place at the end": f"{JOB}with tempfile.NamedTemporaryFile(delete=False) as f:\n"
    "    f.write(requests.get('http://host/a').content)\nmodel = torch.load(f.name)\n",
    "only read": f"{JOB}with zipfile.ZipFile('a.zip') as z:\n    text = z.read(z.namelist()[0])\n",
    "unpacked by one": f"{JOB}if rank == 0:\n    with tarfile.open('a.tar') as t:\n        t.extractall('data')\ndist.barrier()\n",
    "unpacked into a folder of its own": f"{JOB}zipfile.ZipFile('a.zip').extractall(f'data/{{rank}}')\n",
    "unpacked into a temporary one": f"{JOB}with tempfile.TemporaryDirectory() as d:\n    shutil.unpack_archive('a.zip', d)\n",
    "before the ranks start": f"{COPY}def work(rank):\n    dist.init_process_group('gloo', rank=rank, world_size=2)\n"
    f"if __name__ == '__main__':\n    {GET}    torch.multiprocessing.spawn(work, nprocs=2)\n",
    "a table": f"class Table:\n    def extractall(self, where):\n        return where\n{JOB}Table().extractall('data')\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", FETCHED)
def test_fetched_by_every_rank(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP701", audited(tmp_path, START + FETCHED[form]))
    assert finding.severity == "warning" and "downloads" in finding.message


@pytest.mark.parametrize("form", UNPACKED)
def test_unpacked_by_every_rank(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP702", audited(tmp_path, START + UNPACKED[form]))
    assert finding.severity == "warning" and "unpacks an archive" in finding.message


@pytest.mark.parametrize("form", QUIET)
def test_fetched_and_unpacked_once(form: str, tmp_path: Path) -> None:
    context = audited(tmp_path, START + QUIET[form])
    assert findings("DDP701", context) == [] and findings("DDP702", context) == []
