"""The page of a comparison: what is in it, and how it behaves in a headless Chromium."""

from __future__ import annotations

import html
import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
from flight_dumps import Recorder, steps, write
from generated_traces import generate

from ddp_audit.cli import main
from ddp_audit.cli.recorded import read_compared
from ddp_audit.findings import Finding, Fix, Span
from ddp_audit.report import page
from ddp_audit.report.selection import select

HOSTILE = "</script><script>alert(1)</script>"


class Outside(html.parser.HTMLParser):
    """Collects what a page would load, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")
        self.loads += [f"{tag} {name}" for name, value in attrs if name in ("src", "href", "srcset", "action") and value]

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def shown_page(folder: Path, path: Path, code: int = 1) -> str:
    assert main(["diff", str(folder), "--format", "html", "--output", str(path)]) == code
    return path.read_text("utf-8")


def parsed(text: str) -> Outside:
    found = Outside()
    found.feed(text)
    return found


def hostile(folder: Path) -> Path:
    made = [Recorder(rank, 2) for rank in range(2)]
    for one in made:
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
        one.entries[-1]["frames"][2].update(name=HOSTILE, filename="/home/me/数据/<b>&amp;'\"/train.py")
    return write(folder, made)


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    generate(tmp_path / "trace", 4, 300, "size", 2)
    text = shown_page(tmp_path / "trace", tmp_path / "page.html")
    found = parsed(text)
    assert found.loads == [] and "link" not in found.tags and "iframe" not in found.tags
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(found.scripts) == 2


def test_no_text_of_a_trace_ends_its_element(tmp_path: Path) -> None:
    found = parsed(shown_page(hostile(tmp_path / "dumps"), tmp_path / "page.html"))
    assert len(found.scripts) == 2
    data = json.loads(found.scripts[0])
    assert data["things"][data["lanes"][0]["cells"][0][1]][3][0][1] == HOSTILE


def test_many_ranks_share_lanes_and_sides(tmp_path: Path) -> None:
    generate(tmp_path, 40, 200, "size", 7)
    run, comparison = read_compared(str(tmp_path))
    data = page.as_object(select(run, comparison, page.MOST), comparison)
    assert [lane["name"] for lane in data["lanes"]] == ["rank 7", "ranks 0-6 and 8-39"]
    (divergence,) = data["divergences"]
    wanted = ["all_reduce of 2 float32 (sum)", "all_reduce of 1 float32 (sum)"]
    lines = [["train.py:240", "train", ""], ["train.py:300", "<module>", ""]]
    assert divergence["sides"] == [["rank 7", 1, wanted[0], lines, 0], ["ranks 0-6 and 8-39", 0, wanted[1], lines, 0]]
    cells = [next(cell for cell in lane["cells"] if cell[0] == divergence["column"]) for lane in data["lanes"]]
    assert [data["things"][cell[1]][1] for cell in cells] == wanted


def test_a_page_of_a_traced_run_has_verdicts_and_the_log(tmp_path: Path) -> None:
    generate(tmp_path, 2, 200, "none", 0)
    run, comparison = read_compared(str(tmp_path))
    finding = Finding("DDP301", "data-not-sharded", "error", "likely", Span("train.py", 3, 1, 3, 9), "All ranks read all.")
    finding.verdict = "not-observed"
    text = page.render(select(run, comparison, page.MOST), comparison, None, [finding], ["What the log says", "  a: b"])
    data = json.loads(parsed(text).scripts[0])
    assert data["findings"] == [["not-observed", "train.py:3", "DDP301 data-not-sharded", "All ranks read all."]]
    assert data["log"] == ["What the log says", "  a: b"]


# ---- in a browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH to open the page in")

BEFORE = "<script>const problems = []; window.onerror = (text) => problems.push(text); window.alert = (text) => problems.push(text);</script>"
TOOLS = """
const get = (id) => document.getElementById(id);
const numbers = () => [...document.querySelectorAll("#columns th:not(.gap)")].slice(1).map((cell) => cell.firstChild?.textContent ?? "");
const texts = (query) => [...document.querySelectorAll(query)].map((element) => element.textContent);
const set = (id, value, kind) => { get(id)[typeof value === "boolean" ? "checked" : "value"] = value; get(id).dispatchEvent(new Event(kind || "change")); };
const press = (key, target) => (target || document.activeElement).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const inView = (box) => {
  const cell = box.getBoundingClientRect(), lanes = get("lanes").getBoundingClientRect();
  const left = document.querySelector("#columns th").getBoundingClientRect().right;
  const top = document.querySelector("#columns th").getBoundingClientRect().bottom;
  return cell.left >= left - 1 && cell.right <= Math.min(lanes.right, innerWidth) + 1 && cell.top >= top - 1 && cell.top < lanes.bottom;
};
const apart = () => document.querySelector("td.apart");
"""


def in_chromium(text: str, folder: Path, script: str, width: int = 1280) -> dict[str, Any]:
    """What a script says (`said`) that runs behind the page's own, with layout, and that no error came to the console."""
    assert BROWSER is not None
    path = folder / "driven.html"
    end = f"<script>{{ const said = {{}}; {TOOLS} {script}; said.problems = problems; const out = document.createElement('pre'); "
    end += "out.id = 'said'; out.textContent = JSON.stringify(said); document.body.append(out); }</script></body>"
    path.write_text(text.replace('<script id="data"', f'{BEFORE}<script id="data"').replace("</body>", end), "utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
    ]
    options += [f"--window-size={width},800", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    run = subprocess.run([BROWSER, *options], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="said">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found is not None, run.stdout[-2000:] + run.stderr[-2000:]
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
    said: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert said["problems"] == []
    return said


WALK = """
said.headline = get("headline").textContent;
said.seen = inView(apart());
said.detail = texts("#detail b"); said.returned = texts(".side .dim");
said.all = numbers();
set("search", "all_gather", "input"); said.searched = numbers(); said.hits = texts("td.hit");
said.count = get("count").textContent;
press("Enter", get("search")); said.found = texts(".side.here");
press("Escape", get("search")); said.after = [numbers().length, inView(document.querySelector("td.chosen"))];
set("search", "tp 1", "input"); said.numbered = numbers();
set("search", "no such thing", "input"); said.nothing = [numbers(), get("nothing").hidden];
set("search", "", "input"); said.gone = get("nothing").hidden;
set("differing", true); said.differing = numbers(); set("differing", false);
set("origin", "DDP buffer broadcast"); said.buffers = numbers(); set("origin", "");
set("group", "7 (tp)"); said.group = numbers(); get("first").click(); said.reset = [numbers().length, inView(apart())];
get("lanes").scrollLeft = 0; said.away = inView(apart());
press("d", document.body); said.back = inView(apart());
apart().click(); said.clicked = texts("#detail b");
press("ArrowLeft"); said.left = texts("#detail b")[0];
press("ArrowDown"); said.down = [texts("#detail b")[0], document.activeElement.parentNode.firstChild.firstChild.textContent];
press("/"); said.focus = document.activeElement.id;
"""


@in_browser
def test_the_page_shows_finds_and_filters(tmp_path: Path) -> None:
    made = [Recorder(rank, 3, groups={("7", "tp"): [0, 1, 2]}) for rank in range(3)]
    for one in made:
        steps(one, 20)
        one.add("all_reduce", [4], line=29, group=("7", "tp"))
        one.add("all_gather" if one.rank == 2 else "all_reduce", [4], line=30, done=False)
    text = shown_page(write(tmp_path / "dumps", made), tmp_path / "page.html")
    said = in_chromium(text, tmp_path, WALK)
    assert said["headline"] == "The 3 ranks diverged." and said["seen"]
    title = "Collective 41 of the default group"
    assert said["detail"] == [f"{title}: different operations", "rank 2 (odd)", "ranks 0 and 1"]
    assert said["returned"] == ["did not return", "did not return"]
    assert said["all"] == [*map(str, range(1, 41)), "1", "41"]
    assert said["searched"] == ["41"] and said["count"] == "1 of 42 collectives"
    assert len(said["hits"]) == 1 and said["hits"][0].startswith("all_gather of 4 float32")
    assert len(said["found"]) == 1 and "did not return on rank 2" in said["found"][0]
    assert said["after"] == [42, True] and said["numbered"] == ["1"]
    assert said["nothing"] == [[], False] and said["gone"]
    assert said["differing"] == ["41"] and said["group"] == ["1"]
    assert said["buffers"] == [str(number) for number in range(1, 41, 2)]
    assert said["reset"] == [42, True] and not said["away"] and said["back"]
    assert said["clicked"] == [title, "rank 2", "ranks 0 and 1"]
    assert said["left"] == "Collective 1 of group 7 (tp)"
    assert said["down"] == ["Collective 1 of group 7 (tp)", "rank 0"] and said["focus"] == "search"


@in_browser
def test_ranks_outside_of_a_group_are_not_missing_in_it(tmp_path: Path) -> None:
    group, members = ("7", "tp"), [0, 1]
    made = [Recorder(rank, 4, groups={group: members}) for rank in range(4)]
    for one in made:
        one.add("all_reduce", [4], line=28)
        if one.rank in members:
            one.add("all_reduce", [4], line=29, group=group)
        one.add("all_reduce", [5 if one.rank == 3 else 4], line=30, done=False)
    text = shown_page(write(tmp_path / "dumps", made), tmp_path / "page.html")
    look = "set('group', '7 (tp)'); said.cells = texts('#rows td:not(.gap)'); document.querySelector('td:not(.none)').click();"
    look += "said.sides = texts('.side b'); set('group', ''); set('differing', true); said.differing = numbers();"
    said = in_chromium(text, tmp_path, look)
    own = "all_reduce of 4 float32/home/me/train.py:29"
    assert sorted(said["cells"]) == [own, own, "not in the group", "not in the group"]
    assert said["sides"] == ["ranks 0 and 1"] and said["differing"] == ["2"]


@in_browser
def test_a_narrow_page_of_many_ranks_shows_the_divergence(tmp_path: Path) -> None:
    generate(tmp_path / "trace", 64, 3000, "reduce-op", 33)
    text = shown_page(tmp_path / "trace", tmp_path / "page.html")
    look = "said.seen = inView(apart()); said.lanes = texts('#rows th'); said.wide = document.body.scrollWidth - innerWidth;"
    said = in_chromium(text, tmp_path, look, width=520)
    assert said["seen"] and said["wide"] <= 0
    assert [lane.partition("exited")[0] for lane in said["lanes"]] == ["rank 33", "ranks 0-32 and 34-63"]


LONG = """
said.seen = inView(apart()); said.cells = document.querySelectorAll("td").length;
const wide = get("lanes").scrollWidth, first = numbers()[0];
get("lanes").scrollLeft = 0; scrolled(); said.start = [numbers()[0], get("lanes").scrollWidth === wide];
get("lanes").scrollLeft = wide; scrolled(); said.end = numbers().at(-1);
press("d", document.body); said.back = [inView(apart()), numbers()[0] === first];
set("search", "default 1200", "input"); said.searched = numbers(); press("Enter", get("search"));
press("Escape", get("search")); said.after = inView(document.querySelector("td.chosen"));
document.querySelector("td[tabindex='0']").focus(); for (let n = 0; n < 300; n++) press("ArrowRight");
said.far = [texts("#detail b")[0], inView(document.activeElement)];
"""


@in_browser
def test_a_long_page_draws_what_is_in_view(tmp_path: Path) -> None:
    generate(tmp_path / "trace", 4, 2900, "size", 2)
    text = shown_page(tmp_path / "trace", tmp_path / "page.html")
    run, _ = read_compared(str(tmp_path / "trace"))
    last = max(event.index for event in run.ranks[0].events if event.index is not None)
    said = in_chromium(text, tmp_path, LONG)
    assert said["seen"] and said["cells"] <= 4 * 402
    assert said["start"] == ["0", True] and said["end"] == str(last) and said["back"] == [True, True]
    assert said["searched"] == ["1200"] and said["after"] is True
    assert said["far"] == ["Collective 1500 of the default group", True]


@in_browser
def test_hostile_names_are_text(tmp_path: Path) -> None:
    text = shown_page(hostile(tmp_path / "dumps"), tmp_path / "page.html")
    look = "said.detail = get('detail').textContent; said.bold = document.querySelectorAll('b').length; apart().click();"
    said = in_chromium(text, tmp_path, look)
    assert HOSTILE in said["detail"] and "/home/me/数据/<b>&amp;'\"/train.py:30" in said["detail"]
    assert said["bold"] == 4  # what to do, the title and a side for each rank


@in_browser
def test_a_page_without_a_divergence(tmp_path: Path) -> None:
    generate(tmp_path / "trace", 3, 200, "none", 0)
    text = shown_page(tmp_path / "trace", tmp_path / "page.html", code=0)
    look = "said.off = get('first').disabled; said.told = get('detail').textContent; set('differing', true); said.left = numbers();"
    said = in_chromium(text, tmp_path, look)
    assert said["off"] and said["told"].startswith("A click on a cell") and said["left"] == []


def test_the_page_starts_with_what_happened_and_what_to_do(tmp_path: Path) -> None:
    index = generate(tmp_path, 4, 300, "operation", 2)
    run, comparison = read_compared(str(tmp_path))
    run.meta |= {"launch": "torchrun --nproc-per-node 4 train.py", "torch": "2.13.0", "start": 1e9}
    finding = Finding(
        "DDP401", "rank0-forward", "error", "likely", Span("train.py", 3, 1, 3, 9), "It hangs.", fix=Fix("unsafe", "all")
    )
    chosen = select(run, comparison, page.MOST)
    alone = json.loads(parsed(page.render(chosen, comparison)).scripts[0])
    assert alone["happened"].startswith(f"Collective {index} of the default group") and "the same collectives" in alone["todo"][0]
    finding.verdict = "confirmed"
    judged = json.loads(parsed(page.render(chosen, comparison, None, [finding])).scripts[0])
    assert judged["todo"] == ["train.py:3 DDP401: all"]
    rows = dict(judged["run"])
    assert rows["command"] == "torchrun --nproc-per-node 4 train.py" and (rows["ranks"], rows["torch"]) == ("4", "2.13.0")


def test_a_page_of_ranks_that_agree_asks_for_nothing(tmp_path: Path) -> None:
    generate(tmp_path, 2, 100, "none", 0)
    run, comparison = read_compared(str(tmp_path))
    data = json.loads(parsed(page.render(select(run, comparison, page.MOST), comparison)).scripts[0])
    assert (data["happened"], data["todo"]) == ("", [])


FRAME = """
const frame = document.createElement("iframe");
frame.style.cssText = "width: 420px; height: 800px; border: 0";
frame.srcdoc = get("inner").textContent;
frame.onload = () => {
  const inner = frame.contentDocument, root = inner.documentElement;
  const wide = [...inner.querySelectorAll("header *")].filter((one) => one.getBoundingClientRect().right > 421);
  get("out").textContent = JSON.stringify({
    wide: root.scrollWidth, cut: wide.map((one) => one.id || one.tagName), lanes: inner.getElementById("lanes").clientHeight,
    happened: inner.getElementById("happened").textContent, todo: inner.getElementById("todo").textContent,
    command: inner.getElementById("run").textContent,
  });
};
document.body.append(frame);
"""


@in_browser
def test_the_page_fits_420_pixels(tmp_path: Path) -> None:
    """A frame of that width: the windows of a headless Chromium are no narrower than 500."""
    assert BROWSER is not None
    generate(tmp_path / "trace", 16, 400, "operation", 3)
    run, comparison = read_compared(str(tmp_path / "trace"))
    run.meta |= {"launch": "torchrun --nproc-per-node 16 /a/very/long/path/to/" + "x" * 80 + "/train.py", "torch": "2.13.0"}
    text = page.render(select(run, comparison, page.MOST), comparison)
    outer = f'<pre id="inner" hidden>{html.escape(text)}</pre><pre id="out"></pre><script>{TOOLS} {FRAME}</script>'
    (tmp_path / "outer.html").write_text(f"<!doctype html><body>{outer}</body>", "utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=900,900",
    ]
    words = [BROWSER, *options, "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "outer.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="out">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-1000:] + done.stderr[-2000:]
    said = json.loads(html.unescape(found[1]))
    assert said["wide"] <= 420 and said["cut"] == []
    assert said["lanes"] >= 120 and said["happened"] and said["todo"] and "torchrun" in said["command"]
