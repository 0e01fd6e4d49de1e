"""What an editor sees of its open documents: other documents, versions, syntax errors, documents without a file, the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.editor import Editor, Json

pytest.importorskip("pygls")

from ddp_audit.audit import UsageError
from ddp_audit.server import session as sessions
from ddp_audit.server.documents import Document, as_bytes, moved
from ddp_audit.server.protocol import make_server
from ddp_audit.server.session import Session

EVALUATES = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from {module} import make

dist.init_process_group("gloo")
model = DDP(make())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.ones(4, 4)).sum()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        model(torch.ones(4, 4))
dist.destroy_process_group()
"""
WITH_BUFFERS = "import torch.nn as nn\n\ndef make():\n    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))\n"
WITHOUT = WITH_BUFFERS.replace("nn.BatchNorm1d(4)", "nn.LayerNorm(4)")
GUARDED = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    return tmp_path


def has(*codes: str) -> Any:
    return lambda found: set(codes) <= found


def lacks(*codes: str) -> Any:
    return lambda found: not set(codes) & found


def test_after_shutdown_and_exit_the_code_is_0_and_nothing_is_complained_of(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("train.py", GUARDED)
        editor.codes("train.py", has("DDP201"))
        assert editor.leave() == (0, "")


def test_an_exit_without_shutdown_ends_with_1(folder: Path) -> None:
    with Editor(folder) as editor:
        assert editor.leave(shut_down=False) == (1, "")


def test_a_client_that_goes_away_ends_the_server(folder: Path) -> None:
    with Editor(folder) as editor:
        assert editor.process.stdin is not None
        editor.process.stdin.close()
        assert editor.process.wait(timeout=60) == 1


def test_an_exit_during_an_audit_does_not_wait_for_it(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("train.py", GUARDED + "x = [" + "0, " * 1_000_000 + "]\n")
        assert editor.leave()[0] == 0
        assert editor.published == []


def test_a_changed_document_brings_findings_in_those_that_import_it(folder: Path) -> None:
    (folder / "mymodel.py").write_text(WITHOUT)
    (folder / "train.py").write_text(EVALUATES.format(module="mymodel"))
    (folder / "alone.py").write_text(GUARDED)
    with Editor(folder) as editor:
        editor.open("train.py", EVALUATES.format(module="mymodel"))
        editor.open("alone.py", GUARDED)
        editor.open("mymodel.py", WITHOUT)
        editor.codes("mymodel.py", lacks("DDP401"))
        editor.codes("train.py", lacks("DDP401"))
        editor.codes("alone.py", has("DDP201"))
        editor.change("mymodel.py", WITH_BUFFERS, 2)
        editor.codes("train.py", has("DDP401"))
        editor.close("mymodel.py")  # what the disk holds counts again
        editor.codes("train.py", lacks("DDP401"))
        assert len([one for one in editor.published if one["uri"] == editor.uri("alone.py")]) == 1


@pytest.mark.parametrize("name", ["newmod.py", "newmod/__init__.py", "untitled"])
def test_a_module_that_is_a_document_alone_is_found_by_imports(folder: Path, name: str) -> None:
    name = f"untitled:{folder}/newmod.py" if name == "untitled" else name
    with Editor(folder) as editor:
        editor.open("train.py", EVALUATES.format(module="newmod"))
        editor.codes("train.py", lacks("DDP401"))
        editor.open(name, WITH_BUFFERS)
        editor.codes("train.py", has("DDP401"))
        editor.close(name)
        editor.codes("train.py", lacks("DDP401"))


def test_a_submodule_and_its_package_may_both_be_documents_alone(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("lib/__init__.py", "")
        editor.open("lib/nets.py", "from .parts import make\n")
        editor.open("lib/parts.py", WITH_BUFFERS)
        editor.open("train.py", EVALUATES.format(module="lib.nets"))
        editor.codes("train.py", has("DDP401"))


def test_a_document_without_a_file_is_audited_and_imports_what_lies_in_the_folder(folder: Path) -> None:
    (folder / "mymodel.py").write_text(WITH_BUFFERS)
    with Editor(folder) as editor:
        editor.open("untitled:Untitled-1", EVALUATES.format(module="mymodel"))
        found = editor.codes("untitled:Untitled-1", has("DDP401"))
        wrap = [one for d in found for one in d["relatedInformation"] if one["location"]["uri"].startswith("untitled:")]
        assert wrap  # places in it lead back to it
        editor.open("vscode-notebook-cell:/nb.ipynb#W0", GUARDED)
        editor.open("nb.ipynb", "{}")
        code, said = editor.leave()
        assert code == 0, said
        assert {one["uri"] for one in editor.published} == {"untitled:Untitled-1"}


def test_findings_stay_during_a_syntax_error(folder: Path) -> None:
    (folder / "mymodel.py").write_text(WITH_BUFFERS)
    train = EVALUATES.format(module="mymodel")
    with Editor(folder) as editor:
        editor.open("mymodel.py", WITH_BUFFERS)
        editor.open("train.py", train)
        (before,) = [d for d in editor.codes("train.py", has("DDP401")) if d.get("code") == "DDP401"]
        broken = train.replace("optimizer = ", "\n\ndef f(:\noptimizer = ")
        editor.change("train.py", broken, 2)
        found = {d.get("code", "error"): d for d in editor.codes("train.py", has("DDP401", "error"), 2)}
        assert found["DDP401"]["range"]["start"]["line"] == before["range"]["start"]["line"] + 3
        assert found["error"]["range"]["start"]["line"] == 9
        asked = {"textDocument": {"uri": editor.uri("train.py")}, "position": found["DDP401"]["range"]["start"]}
        assert "DDP401" in editor.ask("textDocument/hover", asked)["contents"]["value"]
        editor.change("mymodel.py", WITH_BUFFERS + "def g(:\n", 2)  # those that import it keep theirs too
        editor.codes("mymodel.py", has("error"), 2)
        editor.change("train.py", "\n" + train, 3)
        found = {d.get("code", "error"): d for d in editor.codes("train.py", lacks("error"), 3)}
        assert found["DDP401"]["range"]["start"]["line"] == before["range"]["start"]["line"] + 1


def test_a_document_that_was_never_right_shows_its_syntax_error(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("train.py", "def f(:\n")
        (found,) = editor.codes("train.py", has("error"))
        assert (found["severity"], found["range"]["start"]["line"]) == (1, 0)
        editor.change("train.py", GUARDED, 2)
        editor.codes("train.py", lambda codes: "DDP201" in codes and "error" not in codes, 2)


def test_many_changes_at_once_are_audited_once(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("train.py", GUARDED)
        editor.codes("train.py", has("DDP201"), 1)
        editor.published.clear()
        for version in range(2, 22):
            editor.change("train.py", GUARDED + "# " + "x" * version, version)
        editor.codes("train.py", has("DDP201"), 21)
        editor.drain(3)
        assert [one["version"] for one in editor.published][-1] == 21
        assert len(editor.published) <= 2


def test_what_is_published_has_the_documents_version_and_the_rules_page(folder: Path) -> None:
    with Editor(folder) as editor:
        editor.open("train.py", GUARDED, 7)
        (found,) = [d for d in editor.codes("train.py", has("DDP201"), 7) if d.get("code") == "DDP201"]
        assert found["codeDescription"]["href"] == "https://ddp-audit.github.io/ddp-audit/rules/DDP201/"


def test_the_page_of_a_rule_of_the_users_own_is_its_file(folder: Path) -> None:
    class Own:
        code = "OWN001"

    session = Session(rules=[Own()])  # type: ignore[list-item]
    assert session.link("OWN001") == Path(__file__).absolute().as_uri()
    assert session.link("DDP901") == "https://ddp-audit.github.io/ddp-audit/rules/DDP901/"


@pytest.mark.parametrize(("encodings", "before"), [([], 14), (["utf-16"], 14), (["utf-8"], 16), (["utf-32", "utf-16"], 13)])
def test_positions_are_in_the_units_that_were_agreed_on(folder: Path, encodings: list[str], before: int) -> None:
    text = GUARDED.replace("    dist.barrier", '    s = "\N{ROCKET}"; dist.barrier')
    with Editor(folder, {"general": {"positionEncodings": encodings}} if encodings else None) as editor:
        assert editor.capabilities["positionEncoding"] == (encodings[0] if encodings else "utf-16")
        editor.open("train.py", text)
        (found,) = [d for d in editor.codes("train.py", has("DDP201")) if d.get("code") == "DDP201"]
        assert found["range"]["start"] == {"line": 4, "character": before}


def test_lines_end_as_the_protocol_says(folder: Path) -> None:
    text = 'a = "\N{LINE SEPARATOR}\x0c"\r\n' + GUARDED.replace("\n", "\r\n")
    with Editor(folder) as editor:
        editor.open("train.py", text)
        (found,) = [d for d in editor.codes("train.py", has("DDP201")) if d.get("code") == "DDP201"]
        assert found["range"]["start"] == {"line": 5, "character": 4}
        fix = next(a for a in editor.actions("train.py", found) if "move" in a["title"])
        (edit,) = fix["edit"]["changes"][editor.uri("train.py")]
        assert edit["newText"] == "dist.barrier()\r\n"


def test_a_quick_fix_names_its_own_edit_and_the_version_it_is_for(folder: Path) -> None:
    able: Json = {"workspace": {"workspaceEdit": {"documentChanges": True}}}
    with Editor(folder, able) as editor:
        editor.open("train.py", GUARDED, 3)
        (found,) = [d for d in editor.codes("train.py", has("DDP201")) if d.get("code") == "DDP201"]
        titles = [action["title"] for action in editor.actions("train.py", found)]
        assert titles == ["DDP201: move the collective out of the rank test", "DDP201: keep it, with a comment"]
        (change,) = editor.actions("train.py", found)[0]["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": editor.uri("train.py"), "version": 3}
        editor.change("train.py", "\n" + GUARDED, 4)  # asked at once: for the text that is there
        found["range"] = {end: {**place, "line": place["line"] + 1} for end, place in found["range"].items()}
        (change,) = editor.actions("train.py", found)[0]["edit"]["documentChanges"]
        assert (change["textDocument"]["version"], change["edits"][0]["range"]["start"]["line"]) == (4, 4)


def test_findings_move_with_the_lines_around_a_change() -> None:
    session = Session()
    outcome = session.audit(Document("file:///none/train.py", "/none/train.py", GUARDED), {})
    (found,) = [finding for finding in outcome.findings or [] if finding.code == "DDP201"]
    lines = GUARDED.split("\n")

    def place(after: str) -> list[int]:
        return [finding.span.line for finding in moved([found], GUARDED, after)]

    assert place(GUARDED) == [5]
    assert place("import os\n\n" + GUARDED) == [7]
    assert place(GUARDED + "x = (\n") == [5]
    assert place("\n".join(lines[2:])) == [3]
    assert place(GUARDED.replace("dist.barrier()", "dist.barrier(")) == [5]
    assert place("x = (\n") == [1]
    assert place("") == [1]


def test_a_text_is_saved_in_the_encoding_that_its_comment_names() -> None:
    text = '# -*- coding: latin-1 -*-\ns = "\N{LATIN SMALL LETTER E WITH ACUTE}"\n'
    assert as_bytes(text) == text.encode("latin-1")
    assert as_bytes(text.replace("latin-1", "nothing")) == text.replace("latin-1", "nothing").encode()
    assert as_bytes('s = "\N{ROCKET}"\n') == 's = "\N{ROCKET}"\n'.encode()
    as_bytes('s = "\ud83d"\n')  # half of a character is the parser's business


def test_an_internal_error_goes_to_the_log_once_and_takes_no_findings_away(monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    logged: list[str] = []
    shown: list[str] = []
    monkeypatch.setattr(type(server), "window_log_message", lambda _, params: logged.append(params.message))
    monkeypatch.setattr(type(server), "window_show_message", lambda _, params: shown.append(params.message))
    document = Document("file:///none/train.py", "/none/train.py", GUARDED)
    outcome = server.session.audit(document, {})
    server.session.take(document, outcome)
    found = list(document.findings)
    assert found

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by chance")

    monkeypatch.setattr(sessions, "audit", fails)
    for number in range(3):
        document.change(GUARDED + "#" * number, number)
        outcome = server.session.audit(document, {})
        server._tell(document, outcome)
        server.session.take(document, outcome)
        server.report_server_error(ValueError("of the protocol"), ValueError)
    assert document.findings == found
    assert shown == [] and len(logged) == 2 and "ZeroDivisionError: by chance" in logged[0]


def test_settings_that_cannot_be_followed_are_shown_once_and_take_no_findings_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_server()
    shown: list[str] = []
    monkeypatch.setattr(type(server), "window_show_message", lambda _, params: shown.append(params.message))

    def fails(*_: object, **__: object) -> None:
        raise UsageError("no such rule: DDP999")

    monkeypatch.setattr(sessions, "audit", fails)
    for name in ("a", "b"):
        document = Document(f"file:///none/{name}.py", f"/none/{name}.py", GUARDED)
        for _ in range(2):
            server._tell(document, server.session.audit(document, {}))
    assert shown == ["ddp-audit: no such rule: DDP999"]
