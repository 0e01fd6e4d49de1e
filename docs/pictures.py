"""Makes the pictures of the README and the guides from what the program prints: `python docs/pictures.py` (make pictures).

Those of a traced run need torch, and that of the page a Chromium on the PATH. `python docs/pictures.py audit batch` makes these two
alone.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text
from rooms import drawing
from terminal import at_terminal

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
WIDTH = 84

# As rich's own frame, without fonts that a page would have to load.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def printed(words: Sequence[str], folder: Path) -> str:
    """What `ddp-audit` with these words prints in a folder to a terminal of WIDTH columns."""
    return at_terminal(words, folder, WIDTH, {"TERM": "xterm"})[1]


def picture(name: str, text: str) -> str:
    """The SVG of what stands in a terminal."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in Text.from_ansi(text).split("\n"):
        line.rstrip()
        console.print(line, overflow="crop", no_wrap=True)
    svg = console.export_svg(title="ddp-audit", theme=DIMMED_MONOKAI, code_format=FRAME, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def session(name: str, folder: Path, words: str) -> str:
    """The picture of a command and what it prints."""
    return picture(name, f"\x1b[1m$ ddp-audit {words}\x1b[0m\n{printed(words.split(), folder).rstrip()}")


def example(folder: Path) -> Path:
    """A copy of the example."""
    return Path(shutil.copytree(DOCS / "example", folder / "example"))


def audit(folder: Path) -> str:
    return session("audit", example(folder), "train.py --select DDP401")


def batch(folder: Path) -> str:
    return session("batch", example(folder), "batch gpt/train.py --config-file gpt/config/large.py --from 8 --to 16")


def baseline(folder: Path) -> str:
    at = example(folder)
    printed(["train.py", "--select", "DDP4,DDP6", "--write-baseline", "known.json"], at)
    return session("baseline", at, "train.py --baseline known.json --statistics")


def rooms(folder: Path) -> str:
    return drawing()


STATIC: dict[str, Callable[[Path], str]] = {"audit": audit, "batch": batch, "baseline": baseline, "rooms": rooms}


def traced(folder: Path) -> None:
    """The pictures of a run that hangs: its diff in the terminal, and the page of it."""
    at = example(folder)
    words = ["trace", "--stall-after", "5", "--on-stall", "kill", "--prediction", "off", "--"]
    launch = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    text = printed([*words, sys.executable, "-m", "torch.distributed.run", *launch[1:]], at)
    begin = text.rindex("\n", 0, text.index("The 2 ranks diverged.")) + 1  # with the line's colour
    report = text[begin:].partition("What the log says")[0].rstrip()
    shown = f"\x1b[1m$ ddp-audit {' '.join(words)} \\\n    {' '.join(launch)}\x1b[0m\n..\n{report}"
    (PICTURES / "hang.svg").write_text(picture("hang", shown), "utf-8")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if browser is None:
        print("no Chromium on the PATH: page.png stays as it is", file=sys.stderr)
        return
    printed(["diff", "ddp-trace", "--format", "html", "--output", "page.html"], at)
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}"]
    options += ["--window-size=1100,560", "--virtual-time-budget=3000", f"--screenshot={PICTURES / 'page.png'}"]
    subprocess.run([browser, *options, (at / "page.html").as_uri()], check=True, capture_output=True, timeout=120)


def main(names: Sequence[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, make in STATIC.items():
        if not names or name in names:
            with tempfile.TemporaryDirectory() as folder:
                (PICTURES / f"{name}.svg").write_text(make(Path(folder)), "utf-8")
    if not names or "traced" in names:
        with tempfile.TemporaryDirectory() as folder:
            traced(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
