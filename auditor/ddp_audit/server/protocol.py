"""The language server protocol over standard input and output (pygls): diagnostics, related places, hover, quick fixes."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ddp_audit import __version__
from ddp_audit.findings import Finding, Related
from ddp_audit.server.session import Change, Session, page
from ddp_audit.source.config import SETTINGS
from ddp_audit.source.files import SourceError

_WATCHED = (*SETTINGS, "*.json")  # a baseline is a .json mostly; which one it is the settings say
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class Server(LanguageServer):
    """One workspace."""

    def __init__(self) -> None:
        super().__init__("ddp-audit", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.session = Session()
        self._told: dict[str, str] = {}  # by document, so that a message does not come back with every key

    def look_at(self, uri: str, text: str | None = None) -> None:
        """Audits a document and publishes what was found in it."""
        path = to_fs_path(uri)
        if path is None:
            return
        if text is not None:
            self.session.texts[path] = text.replace("\r\n", "\n")
        trouble = self.session.audit(path)
        if trouble != self._told.get(path, "") and trouble:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"ddp-audit: {trouble}"))
        self._told[path] = trouble
        lines = self.session.texts.get(path, "").split("\n")
        found = [diagnostic(finding, lines) for finding in self.session.findings[path]]
        found += [_unreadable(error) for error in self.session.errors[path]]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))

    def look_again(self) -> None:
        """Audits every open document anew: what changed on the disk may concern any of them."""
        for path in list(self.session.texts):
            uri = from_fs_path(path)
            if uri is not None:
                self.look_at(uri)

    def watch(self) -> None:
        """Asks the client to tell of changes of settings and baselines, where it can."""
        workspace = self.client_capabilities.workspace
        able = None if workspace is None else workspace.did_change_watched_files
        if able is None or not able.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(f"**/{name}") for name in _WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        registration = types.Registration("ddp-audit-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        self.client_register_capability(types.RegistrationParams([registration]))


def serve() -> None:
    """Speaks the protocol until the client ends."""
    make_server().start_io()


def make_server() -> Server:
    """The server with its features."""
    server = Server()

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        server.watch()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed_on_disk(params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path for change in params.changes if (path := to_fs_path(change.uri)) is not None]
        if any(path.endswith(SETTINGS) or path in server.session.baselines for path in paths):
            server.look_again()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.look_at(params.text_document.uri, params.text_document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        document = server.workspace.get_text_document(params.text_document.uri)
        server.look_at(params.text_document.uri, document.source)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.look_again()  # what was saved may be imported by the others

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        path = to_fs_path(params.text_document.uri)
        if path is not None:
            server.session.close(path)
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        path = to_fs_path(params.text_document.uri)
        found = server.session.at(path, params.position.line + 1) if path is not None else []
        if not found:
            return None
        told = [f"**{f.code} {f.name}** ({f.severity}, {f.confidence})\n\n{f.message}\n\n{f.explanation}" for f in found]
        pages = [page(code, server.session.rules) for code in dict.fromkeys(f.code for f in found)]
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join([*told, *pages])))

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))
    def code_actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        path = to_fs_path(params.text_document.uri)
        if path is None or path not in server.session.texts:
            return []
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        found = {id(f): f for line in lines for f in server.session.at(path, line)}.values()
        text = server.session.texts[path].split("\n")
        return [
            _action(params.text_document.uri, change, diagnostic(finding, text))
            for finding in found
            for change in server.session.changes(path, finding)
        ]

    return server


def diagnostic(finding: Finding, lines: list[str]) -> types.Diagnostic:
    """A finding as the protocol has it; `lines` is the text of its file."""
    span = finding.span
    where = types.Range(_position(lines, span.line, span.column), _position(lines, span.end_line, span.end_column))
    return types.Diagnostic(
        range=where,
        message=f"{finding.message}\n{finding.explanation}".strip(),
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        source="ddp-audit",
        related_information=[_related(related) for related in finding.related],
    )


def _position(lines: list[str], line: int, column: int) -> types.Position:
    """A place of ours, in characters from 1, as one of the protocol's, in UTF-16 units from 0."""
    before = lines[line - 1][: column - 1] if line <= len(lines) else ""
    return types.Position(line - 1, len(before.encode("utf-16-le")) // 2)


def _related(related: Related) -> types.DiagnosticRelatedInformation:
    uri = from_fs_path(str(Path(related.path).absolute())) or ""
    place = types.Position(max(related.line, 1) - 1, 0)
    return types.DiagnosticRelatedInformation(types.Location(uri, types.Range(place, place)), f"{related.role}: {related.text}")


def _unreadable(error: SourceError) -> types.Diagnostic:
    place = types.Position((error.line or 1) - 1, 0)
    return types.Diagnostic(types.Range(place, place), error.message, types.DiagnosticSeverity.Error, source="ddp-audit")


def _action(uri: str, change: Change, about: types.Diagnostic) -> types.CodeAction:
    where = types.Range(types.Position(change.start, 0), types.Position(change.end, 0))
    edit = types.WorkspaceEdit(changes={uri: [types.TextEdit(where, change.text)]})
    return types.CodeAction(change.title, types.CodeActionKind.QuickFix, [about], is_preferred=change.safe, edit=edit)
