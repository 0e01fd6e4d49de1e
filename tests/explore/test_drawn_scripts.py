"""Random training scripts, predicted and run on two to four real ranks."""

from __future__ import annotations

import random
from pathlib import Path

from drawing_scripts import draw_script
from forked_ranks import ForkedRanks, held


def test_random_scripts_are_predicted_event_by_event(forked: ForkedRanks, tmp_path: Path) -> None:
    sizes = set()
    for seed in range(25):
        world_size, text = draw_script(random.Random(seed))
        script = tmp_path / f"script{seed}.py"
        script.write_text(text)
        sizes.add(world_size)
        assert held(forked, script, world_size) is None, text
    assert sizes == {2, 3, 4}
