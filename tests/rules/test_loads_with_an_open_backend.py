"""Checkpoints that every rank loads onto the saver's device, where a configuration names the backend (DDP603)."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

PROGRAM = HEAD + (
    "def main(rank, config, path):\n    dist.init_process_group(backend={0}, rank=rank, world_size=2)\n"
    "    model = torch.nn.Linear(4, 1){1}\n"
    "    if path is not None:\n        checkpoint = torch.load(path{2})\n        model.load_state_dict(checkpoint['model'])\n"
    "    model = DDP(model)\n    if rank == 0:\n        torch.save({{'model': model.module.state_dict()}}, path)\n"
    "if __name__ == '__main__':\n    import json\n    config = json.load(open('config.json'))\n"
    "    torch.multiprocessing.spawn(main, args=(config, 'a.pt'), nprocs=2)\n"
)
OPEN = ("config['backend']", "config.get('backend')")
ON_CUDA = {
    "a format with a number": ".to(torch.device('cuda:{:d}'.format(rank)))",
    "a plain format": ".to('cuda:{}'.format(rank))",
    "per cent": ".to('cuda:%d' % rank)",
    "an f-string": ".to(f'cuda:{rank}')",
    "cuda()": ".cuda(rank)",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("backend", OPEN)
@pytest.mark.parametrize("place", ON_CUDA.values(), ids=ON_CUDA)
def test_a_model_on_cuda(place: str, backend: str, tmp_path: Path) -> None:
    assert findings("DDP603", audited(tmp_path, PROGRAM.format(backend, place, "")))
    assert not findings("DDP603", audited(tmp_path, PROGRAM.format(backend, place, ", map_location='cpu'")))
    assert not findings("DDP603", audited(tmp_path, PROGRAM.format(backend, place, ", map_location=f'cuda:{rank}'")))


@pytest.mark.parametrize("place", ["", ".to('cpu')", ".to('cpu:{:d}'.format(0))"])
def test_a_model_that_stays_on_the_cpu(place: str, tmp_path: Path) -> None:
    assert not findings("DDP603", audited(tmp_path, PROGRAM.format(OPEN[0], place, "")))
