"""A session of a real client with the language server, over its standard input and output."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
s = "\N{ROCKET}"; loss = model(torch.ones(2)).sum()
model.require_backward_grad_sync = False
loss.backward()
if dist.get_rank() == 0:
    s = "\N{ROCKET}"; dist.barrier()
"""


CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
    )
)


class Client(LanguageClient):
    """Keeps the last diagnostics of each document."""

    def __init__(self) -> None:
        super().__init__("tests", "1")
        self.last: dict[str, list[types.Diagnostic]] = {}
        self.told: list[str] = []
        self.watched: list[str] = []
        self.came = asyncio.Event()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _published(params: types.PublishDiagnosticsParams) -> None:
            self.last[params.uri] = list(params.diagnostics)
            self.came.set()

        @self.feature(types.CLIENT_REGISTER_CAPABILITY)
        def _registered(params: types.RegistrationParams) -> None:
            self.watched += [watcher["globPattern"] for one in params.registrations for watcher in one.register_options["watchers"]]

        @self.feature(types.WINDOW_SHOW_MESSAGE)
        def _shown(params: types.ShowMessageParams) -> None:
            self.told.append(params.message)

    async def after(self, send: Callable[[], Any]) -> None:
        """Sends something and waits for the diagnostics that follow."""
        self.came.clear()
        send()
        await asyncio.wait_for(self.came.wait(), 60)


def in_session(folder: Path, talk: Callable[[Client, str], Awaitable[None]]) -> None:
    """Starts the server in a folder with train.py open and lets a test talk to it."""

    async def session() -> None:
        client = Client()
        await client.start_io(sys.executable, "-m", "ddp_audit", "server", cwd=str(folder))
        root = folder.as_uri()
        await client.initialize_async(types.InitializeParams(CAPABILITIES, root_uri=root))
        client.initialized(types.InitializedParams())
        uri = (folder / "train.py").as_uri()
        document = types.TextDocumentItem(uri, "python", 1, (folder / "train.py").read_text(encoding="utf-8"))
        await client.after(lambda: client.text_document_did_open(types.DidOpenTextDocumentParams(document)))
        await talk(client, uri)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(asyncio.wait_for(session(), 180))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def test_diagnostics_with_related_places(folder: Path) -> None:
    async def talk(client: Client, uri: str) -> None:
        found = {d.code: d for d in client.last[uri]}
        assert found["DDP201"].severity == types.DiagnosticSeverity.Error
        # The rocket before it takes two UTF-16 units.
        assert found["DDP201"].range.start == types.Position(10, 14)
        related = [
            (r.location.uri, r.location.range.start.line, r.message.split(":")[0]) for r in found["DDP201"].related_information
        ]
        assert (uri, 9, "guard") in related
        change = types.TextDocumentContentChangeWholeDocument(SCRIPT[: SCRIPT.index("if dist")])
        identifier = types.VersionedTextDocumentIdentifier(2, uri)
        await client.after(lambda: client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change])))
        assert "DDP201" not in {d.code for d in client.last[uri]} and "DDP112" in {d.code for d in client.last[uri]}
        closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        await client.after(lambda: client.text_document_did_close(closed))
        assert client.last[uri] == []

    in_session(folder, talk)


def test_hover_shows_the_page_and_quick_fixes_mend(folder: Path) -> None:
    async def talk(client: Client, uri: str) -> None:
        identifier = types.TextDocumentIdentifier(uri)
        hover = await client.text_document_hover_async(types.HoverParams(identifier, types.Position(10, 20)))
        assert hover is not None and isinstance(hover.contents, types.MarkupContent)
        assert "# DDP201 rank-guarded-collective" in hover.contents.value
        assert await client.text_document_hover_async(types.HoverParams(identifier, types.Position(0, 0))) is None
        flag = next(d for d in client.last[uri] if d.code == "DDP112")
        asked = types.CodeActionParams(identifier, flag.range, types.CodeActionContext([flag]))
        actions = await client.text_document_code_action_async(asked)
        fix, keep = [a for a in actions or [] if isinstance(a, types.CodeAction) and a.title.startswith("DDP112")]
        assert fix.edit is not None and fix.edit.changes is not None
        text = apply(SCRIPT, fix.edit.changes[uri])
        assert text.index("require_backward_grad_sync") < text.index("loss = model(")
        assert keep.edit is not None and keep.edit.changes is not None
        assert "# ddp-audit: ignore[DDP112]" in apply(SCRIPT, keep.edit.changes[uri])

    in_session(folder, talk)


def test_what_cannot_be_read_or_set_is_told(folder: Path) -> None:
    (folder / "train.py").write_text("def f(:\n", encoding="utf-8")

    async def talk(client: Client, uri: str) -> None:
        assert [(d.severity, d.range.start.line) for d in client.last[uri]] == [(types.DiagnosticSeverity.Error, 0)]
        (folder / "ddp-audit.toml").write_text("selct = []\n")
        saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
        await client.after(lambda: client.text_document_did_save(saved))
        assert len(client.told) == 1 and "did you mean 'select'" in client.told[0]

    in_session(folder, talk)


def test_what_the_baseline_knows_is_not_shown(folder: Path) -> None:
    (folder / "ddp-audit.toml").write_text("baseline = 'known.json'\nignore = ['DDP604']\n")

    async def talk(client: Client, uri: str) -> None:
        assert "**/ddp-audit.toml" in client.watched and "**/*.json" in client.watched
        assert {d.code for d in client.last[uri]} == {"DDP112", "DDP201"}
        assert len(client.told) == 1 and "known.json" in client.told[0]  # it is not there yet: all is new

        write = [sys.executable, "-m", "ddp_audit", ".", "--write-baseline", "known.json"]
        assert subprocess.run(write, cwd=folder, capture_output=True, check=False).returncode == 0
        event = types.FileEvent((folder / "known.json").as_uri(), types.FileChangeType.Created)
        changed = types.DidChangeWatchedFilesParams([event])
        await client.after(lambda: client.workspace_did_change_watched_files(changed))
        assert client.last[uri] == []

        new = "import os\n" + SCRIPT + "if dist.get_rank() == 1:\n    dist.all_reduce(torch.ones(1))\n"
        change = types.TextDocumentContentChangeWholeDocument(new)
        identifier = types.VersionedTextDocumentIdentifier(2, uri)
        await client.after(lambda: client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change])))
        assert [(d.code, d.range.start.line) for d in client.last[uri]] == [("DDP201", 13)]
        assert len(client.told) == 1

    in_session(folder, talk)


def apply(text: str, edits: Any) -> str:
    """A text after edits of whole lines."""
    lines = text.splitlines(keepends=True)
    for edit in edits:
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)
