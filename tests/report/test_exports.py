"""Exports of a comparison: Perfetto's JSON, a Parquet table, and the page, whose script runs in node under a small DOM."""

from __future__ import annotations

import html.parser
import importlib.util
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
from ddp_audit.report import page, perfetto
from ddp_audit.report.selection import select

RANKS, EVENTS, ODD = 4, 300, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trace")
    generate(made, RANKS, EVENTS, "size", ODD)
    return made


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Three ranks of which the last waits elsewhere."""
    made = [Recorder(rank, 3) for rank in range(3)]
    for one in made:
        steps(one, 4)
        one.add("all_gather" if one.rank == 2 else "all_reduce", [4], line=30, done=False)
    return write(tmp_path / "dumps", made)


def exported(folder: Path, path: Path) -> list[dict[str, Any]]:
    assert main(["diff", str(folder), "--export", "perfetto", str(path)]) == 1
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_perfetto_has_a_process_a_rank_and_a_thread_a_group(folder: Path, tmp_path: Path) -> None:
    events = exported(folder, tmp_path / "p.json")
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {rank: f"rank {rank} (exited)" for rank in range(RANKS)}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert threads[0, 1] == "group default"
    run, _ = read_compared(str(folder))
    count = sum(event.kind == "collective" for rank in run.ranks.values() for event in rank.events)
    bars = [event for event in events if event["ph"] == "X" and event["tid"] > 0]
    assert len(bars) == count
    assert {event["ph"] for event in events} <= {"M", "X", "i"}
    assert all(event["ts"] >= 0 for event in events if event["ph"] != "M")


def test_bars_of_a_thread_do_not_overlap(folder: Path, tmp_path: Path) -> None:
    """Perfetto puts overlapping bars of one thread into a stack, as if one had called the other."""
    ends: dict[tuple[int, int], float] = {}
    for event in exported(folder, tmp_path / "p.json"):
        if event["ph"] == "X" and event["tid"] > 0:
            key = (event["pid"], event["tid"])
            assert event["ts"] >= ends.get(key, 0.0) - 0.01
            ends[key] = event["ts"] + event["dur"]


def test_perfetto_marks_the_divergence(dumps: Path, tmp_path: Path) -> None:
    events = exported(dumps, tmp_path / "p.json")
    (line,) = [event for event in events if event.get("s") == "g"]
    assert line["name"] == "divergence (operation) in collective 9 of group default"
    marked = [event for event in events if event.get("cname") == "terrible"]
    assert [(event["pid"], event["args"]["op"], event["args"]["returned"]) for event in marked] == [
        (0, "all_reduce", False), (1, "all_reduce", False), (2, "all_gather", False),
    ]  # fmt: skip
    odd = {event["pid"]: event["args"]["odd"] for event in events if event["name"].startswith("parts here")}
    assert odd == {0: False, 1: False, 2: True}


def test_large_runs_are_exported_around_the_divergence(folder: Path) -> None:
    run, comparison = read_compared(str(folder))
    selection = select(run, comparison, 200)
    assert not selection.is_whole and "around the first divergence" in selection.told()
    for rank in range(RANKS):
        found = [event for event in selection.events(rank) if selection.is_apart(event)]
        assert len(found) == 1 and len(selection.events(rank)) <= 60
    whole = select(run, comparison, perfetto.MOST)
    assert whole.is_whole and list(whole.events(0)) == list(run.ranks[0].events)


@pytest.mark.parametrize("words", [("nothing", "x"), ("perfetto", "no/such/folder/x"), ("parquet", "x.parquet")])
def test_exports_that_cannot_be(folder: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "parquet" and importlib.util.find_spec("pyarrow") is not None:
        pytest.skip("pyarrow is installed")
    assert main(["diff", str(folder), "--export", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    if words[0] == "parquet":
        assert "ddp-audit[parquet]" in said


def test_parquet(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    assert main(["diff", str(folder), "--export", "parquet", str(path)]) == 1
    rows = parquet.read_table(path).to_pylist()
    run, comparison = read_compared(str(folder))
    assert len(rows) == sum(len(rank.events) for rank in run.ranks.values())
    apart = [row for row in rows if row["apart"]]
    assert [(row["rank"], row["numel"]) for row in apart] == [(0, 1), (1, 1), (2, 2), (3, 1)]
    assert {row["index"] for row in apart} == {comparison.parted[0].index}
    assert apart[0]["stack"] == ["train.py:240 train", "train.py:300 <module>"]


# ---- the page


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


def shown_page(folder: Path, tmp_path: Path) -> tuple[str, Outside]:
    path = tmp_path / "page.html"
    assert main(["diff", str(folder), "--format", "html", "--output", str(path)]) == 1
    text = path.read_text("utf-8")
    found = Outside()
    found.feed(text)
    return text, found


def test_the_page_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    text, found = shown_page(folder, tmp_path)
    assert found.loads == [] and "link" not in found.tags and "iframe" not in found.tags
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(found.scripts) == 2


def test_no_text_of_a_trace_ends_its_element(tmp_path: Path) -> None:
    made = [Recorder(rank, 2) for rank in range(2)]
    for one in made:
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
        one.entries[-1]["frames"][2]["name"] = "</script><script>alert(1)</script>"
    _, found = shown_page(write(tmp_path / "dumps", made), tmp_path)
    assert len(found.scripts) == 2
    assert json.loads(found.scripts[0])["lanes"][0]["cells"][0][6][0][1] == "</script><script>alert(1)</script>"


DOM = """
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.listeners = {}; this.value = ""; this.checked = false;
    this.className = ""; this.id = ""; this.title = ""; this.own = ""; }
  set textContent(text) { this.own = text; this.children = []; }
  get textContent() { return this.own + this.children.map((child) => child.textContent).join(" "); }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren(...children) { this.own = ""; this.children = children; }
  addEventListener(name, call) { (this.listeners[name] ||= []).push(call); }
  fire(name) { for (const call of this.listeners[name] || []) call(); }
  scrollIntoView() { scrolled.push(this.id); }
  *all() { yield this; for (const child of this.children) yield* child.all(); }
}
const scrolled = [];
const roots = new Map();
for (const id of IDS) { const element = new Element("x"); element.id = id; roots.set(id, element); }
roots.get("data").own = DATA;
const document = {
  createElement: (tag) => new Element(tag),
  getElementById: (id) => {
    if (roots.has(id)) return roots.get(id);
    for (const root of roots.values()) for (const element of root.all()) if (element.id === id) return element;
    return null;
  },
};
"""
CHECK = """
const get = (id) => document.getElementById(id);
const header = () => get("columns").children[0].children.slice(1).map((cell) => cell.own);
const boxes = () => [...get("rows").all()].filter((element) => element.tag === "td");
const said = { headline: get("headline").textContent, scrolled: [...scrolled], detail: get("detail").textContent };
said.apart = boxes().filter((box) => box.className.includes("apart")).map((box) => box.textContent);
said.all = header().length;
get("search").value = "all_gather"; get("search").fire("input"); said.searched = header();
get("search").value = "no such thing"; get("search").fire("input"); said.nothing = header();
get("search").value = ""; get("differing").checked = true; get("differing").fire("change"); said.differing = header();
get("differing").checked = false; get("origin").value = "DDP buffer broadcast"; get("origin").fire("change"); said.buffers = header();
get("origin").value = ""; get("group").value = "7 (tp)"; get("group").fire("change"); said.group = header();
get("group").value = "default"; get("group").fire("change"); said.default = header().length;
get("first").fire("click"); said.again = scrolled.length;
boxes().find((box) => box.className.includes("apart")).fire("click"); said.clicked = get("detail").textContent;
console.log(JSON.stringify(said));
"""


def test_the_pages_script_shows_finds_and_filters(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to run the page's script")
    made = [Recorder(rank, 3, groups={("7", "tp"): [0, 1, 2]}) for rank in range(3)]
    for one in made:
        steps(one, 4)
        one.add("all_reduce", [4], line=29, group=("7", "tp"))
        one.add("all_gather" if one.rank == 2 else "all_reduce", [4], line=30, done=False)
    text, found = shown_page(write(tmp_path / "dumps", made), tmp_path)
    ids = re.findall(r' id="(\w+)"', text)
    script = DOM.replace("IDS", json.dumps(ids)).replace("DATA", json.dumps(found.scripts[0])) + found.scripts[1] + CHECK
    done = subprocess.run([node, "-"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["headline"] == "The 3 ranks diverged."
    assert said["scrolled"] == ["apart9-0"] and "different operations" in said["detail"]
    assert len(said["apart"]) == 3 and "all_gather of 4 float32" in said["apart"][0]  # the odd rank comes first
    assert (said["all"], said["searched"], said["nothing"], said["differing"]) == (10, ["9"], [], ["9"])
    assert said["buffers"] == ["1", "3", "5", "7"] and said["group"] == ["1"] and said["default"] == 9
    assert said["again"] == 2
    assert "not returned" in said["clicked"] and "train.py:30" in said["clicked"]


def test_many_ranks_share_lanes(tmp_path: Path) -> None:
    generate(tmp_path, 40, 200, "size", 7)
    run, comparison = read_compared(str(tmp_path))
    data = page.as_object(select(run, comparison, page.MOST), comparison)
    assert [lane["name"] for lane in data["lanes"]] == ["rank 7", "ranks 0-6 and 8-39"]
    assert data["divergences"][0]["odd"] == "rank 7"
    column = data["divergences"][0]["column"]
    assert [next(cell[2] for cell in lane["cells"] if cell[0] == column) for lane in data["lanes"]] == [
        "all_reduce of 2 float32 (sum)", "all_reduce of 1 float32 (sum)",
    ]  # fmt: skip
