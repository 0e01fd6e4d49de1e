"""The language server protocol over standard input and output (pygls): diagnostics, related places, hover, quick fixes.

`Server` audits open documents a moment after they change and publishes what was found; `serve` is the entrance.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ddp_audit import __version__
from ddp_audit.findings import Finding, Related
from ddp_audit.server.documents import Document, path_of
from ddp_audit.server.schedule import QUIET, Schedule, Worker
from ddp_audit.server.session import Change, Outcome, Session, changes_of, page, warm_up
from ddp_audit.source.config import SETTINGS
from ddp_audit.source.files import SourceError
from ddp_audit.source.notebook import SUFFIX
from ddp_audit.source.problems import said_of

_WATCHED = (*SETTINGS, "*.json", "*.py")  # a baseline is a .json mostly; which one it is the settings say
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class Server(LanguageServer):
    """One workspace. All state is the event loop's; the worker's thread gets texts and returns outcomes."""

    def __init__(self) -> None:
        super().__init__("ddp-audit", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.session = Session()
        self.is_shut_down = False
        self.worker = Worker()
        self.schedule = Schedule(self._audit)
        self._changes: dict[str, tuple[str, list[list[Change]]]] = {}  # by document, with the text that they are for
        self._troubles: dict[str, str] = {}  # by document, so that a message is shown once as long as it holds
        self._logged: set[str] = set()

    def open(self, item: types.TextDocumentItem) -> None:
        """Takes up a document, and lets it be audited at once."""
        path = path_of(item.uri, self._root())
        if path is None or path.endswith(SUFFIX) or not (path.endswith(".py") or item.language_id == "python"):
            return
        document = self.session.documents[item.uri] = Document(item.uri, path, "")
        document.change(item.text, item.version)
        self.schedule.add(item.uri)

    def close(self, uri: str) -> None:
        """Forgets a document: the others see what the disk holds in its place."""
        document = self.session.documents.get(uri)
        if document is None:
            return
        self.schedule.drop(uri)
        self._changes.pop(uri, None)
        self._troubles.pop(uri, None)
        for other in self.session.close(document):
            self.schedule.add(other.uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def look_again(self) -> None:
        """Audits every open document again: what changed on the disk may concern any of them."""
        for uri in self.session.documents:
            self.schedule.add(uri)

    def changed_on_disk(self, path: str, is_there: bool) -> None:
        """Audits again what a changed file concerns. `is_there` says that it was made or removed."""
        if path.endswith(SETTINGS) or path in self.session.baselines:
            self.look_again()
        elif path.endswith(".py") and self.session.at(path) is None:
            for other in self.session.others(path, is_there):
                self.schedule.add(other.uri)

    async def changes(self, document: Document) -> list[list[Change]]:
        """What can be done about each of a document's findings; nothing while they are those of another text."""
        text, findings = document.text, document.findings
        if text != document.good:
            return []
        known = self._changes.get(document.uri)
        if known is None or known[0] != text:
            try:
                made = await self.worker.run(lambda: changes_of(text, findings))
            except Exception as error:  # no fixes are offered; what was found stays
                self._log([f"the fixes of {document.uri} failed: {said_of(error)}"])
                made = [[] for _ in findings]
            known = self._changes[document.uri] = (text, made)
        return known[1] if document.text == text and document.findings is findings else []

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Writes an error of the server into the client's log, once. A message box would come back with every key."""
        self._log([said_of(error)])

    def watch(self) -> None:
        """Asks the client to report changes of settings, baselines and modules, where it can."""
        workspace = self.client_capabilities.workspace
        able = None if workspace is None else workspace.did_change_watched_files
        if able is None or not able.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(f"**/{name}") for name in _WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        registration = types.Registration("ddp-audit-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        self.client_register_capability(types.RegistrationParams([registration]))

    def positions(self, document: Document) -> Positions:
        """Where places of a document's present text are in the protocol's units."""
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return Positions(document.text.split("\n"), str(getattr(encoding, "value", encoding)))

    def diagnostics(self, document: Document) -> list[types.Diagnostic]:
        """What is published of a document: why its text does not parse, and what was found in the last one that did."""
        positions = self.positions(document)
        errors = [document.broken] if document.broken is not None else document.errors
        found = [self.diagnostic(finding, positions) for finding in document.shown]
        return [*found, *map(_unreadable, errors)]

    def diagnostic(self, finding: Finding, positions: Positions) -> types.Diagnostic:
        """A finding as the protocol has it."""
        link = self.session.link(finding.code)
        return types.Diagnostic(
            range=positions.range(finding),
            message=f"{finding.message}\n{finding.explanation}".strip(),
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            code_description=None if link is None else types.CodeDescription(link),
            source="ddp-audit",
            related_information=[self._related(related) for related in finding.related],
        )

    def action(self, document: Document, change: Change, about: types.Diagnostic) -> types.CodeAction:
        """A change as a quick fix for a diagnostic."""
        lines = change.text if document.newline == "\n" else change.text.replace("\n", document.newline)
        where = types.Range(types.Position(change.start, 0), types.Position(change.end, 0))
        edit = types.TextEdit(where, lines)
        able = self.client_capabilities.workspace and self.client_capabilities.workspace.workspace_edit
        if able and able.document_changes:
            identifier = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
            edits = types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(identifier, [edit])])
        else:
            edits = types.WorkspaceEdit(changes={document.uri: [edit]})
        return types.CodeAction(change.title, types.CodeActionKind.QuickFix, [about], is_preferred=change.safe, edit=edits)

    async def _audit(self, uri: str) -> None:
        try:
            await self._audited(uri)
        except Exception as error:  # the next document waits
            self._log([f"{uri}: {said_of(error)}"])

    async def _audited(self, uri: str) -> None:
        document = self.session.documents.get(uri)
        if document is None:
            return
        texts = self.session.texts()
        outcome = await self.worker.run(lambda: self.session.audit(document, texts))
        if self.session.documents.get(uri) is not document:
            return
        self._tell(document, outcome)
        if outcome.text != document.text:
            return  # a newer text waits already
        for other in self.session.take(document, outcome):
            self.schedule.add(other.uri)
        found = types.PublishDiagnosticsParams(uri, self.diagnostics(document), document.version)
        self.text_document_publish_diagnostics(found)
        if not self.schedule.is_waiting(uri):
            await self.changes(document)

    def _tell(self, document: Document, outcome: Outcome) -> None:
        """Shows the user what is wrong with settings, once, and writes what is wrong with the auditor into the log."""
        self._log(outcome.internal)
        if outcome.withheld:
            self._log([outcome.withheld], types.MessageType.Warning)
        if outcome.trouble and outcome.trouble not in self._troubles.values():
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"ddp-audit: {outcome.trouble}"))
        self._troubles[document.uri] = outcome.trouble

    def _log(self, lines: Sequence[str], kind: types.MessageType = types.MessageType.Error) -> None:
        for line in lines:
            if line not in self._logged:
                self._logged.add(line)
                self.window_log_message(types.LogMessageParams(kind, f"ddp-audit: {line}"))

    def _related(self, related: Related) -> types.DiagnosticRelatedInformation:
        path = str(Path(related.path).absolute())
        document = self.session.at(path)
        uri = (from_fs_path(path) or "") if document is None else document.uri
        place = types.Position(max(related.line, 1) - 1, 0)
        return types.DiagnosticRelatedInformation(types.Location(uri, types.Range(place, place)), f"{related.role}: {related.text}")

    def _root(self) -> str:
        return self.workspace.root_path or str(Path.cwd())


def serve(*, allow_rules: bool = False) -> int:
    """Speaks the protocol until the client ends. Returns the exit code: 0 after a shutdown, else 1, as the protocol says.

    `allow_rules` loads the rules that a project's settings name, which executes code of the project.
    """
    server = make_server()
    server.session.allow_rules = allow_rules
    # What a print of anything here would write must not come between the messages.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stdout:
        sys.stdout.flush()
        sys.stdout = sys.stderr
        server.start_io(stdout=stdout)
    return 0 if server.is_shut_down else 1


def make_server() -> Server:
    """The server with its features."""
    server = Server()
    documents = server.session.documents

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        options = params.initialization_options
        allowed = options.get("allowProjectRules") if isinstance(options, dict) else getattr(options, "allowProjectRules", None)
        server.session.allow_rules = server.session.allow_rules or allowed is True

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        server.watch()
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()

    @server.feature(types.SHUTDOWN)
    def shut_down(*params: object) -> None:
        server.is_shut_down = True

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed_on_disk(params: types.DidChangeWatchedFilesParams) -> None:
        for change in params.changes:
            path = to_fs_path(change.uri)
            if path is not None:
                server.changed_on_disk(path, change.type != types.FileChangeType.Changed)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        document = documents.get(params.text_document.uri)
        if document is not None:
            source = server.workspace.get_text_document(document.uri).source
            document.change(source, params.text_document.version)
            server.schedule.add(document.uri, QUIET)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.look_again()  # settings may have been saved, by an editor that does not report changed files

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        document = documents.get(params.text_document.uri)
        line = params.position.line + 1
        found = [f for f in document.shown if f.span.line <= line <= f.span.end_line] if document is not None else []
        if not found:
            return None
        told = [f"**{f.code} {f.name}** ({f.severity}, {f.confidence})\n\n{f.message}\n\n{f.explanation}" for f in found]
        pages = [page(code, server.session.rules) for code in dict.fromkeys(f.code for f in found)]
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join([*told, *pages])))

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))
    async def code_actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        await server.schedule.settled(uri)
        document = documents.get(uri)
        if document is None:
            return []
        first, last = params.range.start.line + 1, params.range.end.line + 1
        changes = await server.changes(document)
        positions = server.positions(document)
        return [
            server.action(document, change, server.diagnostic(finding, positions))
            for finding, every in zip(document.findings, changes, strict=False)
            if finding.span.line <= last and first <= finding.span.end_line
            for change in every
        ]

    return server


class Positions:
    """The lines of a text, and places in them: ours in characters from 1, the protocol's from 0 in units of an encoding."""

    def __init__(self, lines: list[str], encoding: str) -> None:
        self._lines = lines
        self._encoding = encoding

    def range(self, finding: Finding) -> types.Range:
        """The place of a finding."""
        span = finding.span
        return types.Range(self._position(span.line, span.column), self._position(span.end_line, span.end_column))

    def _position(self, line: int, column: int) -> types.Position:
        before = self._lines[line - 1][: column - 1] if line <= len(self._lines) else ""
        if self._encoding == types.PositionEncodingKind.Utf32.value:
            units = len(before)
        elif self._encoding == types.PositionEncodingKind.Utf8.value:
            units = len(before.encode("utf-8", "surrogatepass"))
        else:
            units = len(before.encode("utf-16-le", "surrogatepass")) // 2
        return types.Position(line - 1, units)


def _unreadable(error: SourceError) -> types.Diagnostic:
    place = types.Position((error.line or 1) - 1, 0)
    return types.Diagnostic(types.Range(place, place), error.message, types.DiagnosticSeverity.Error, source="ddp-audit")
