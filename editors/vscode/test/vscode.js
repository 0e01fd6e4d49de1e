// A stand-in for the part of VS Code's API that the extension and its language client touch, for tests under node.
//
// Documents, diagnostics, commands, settings and providers are kept in `editor`; everything else of the API is there in name only.

"use strict";

const { EventEmitter } = require("node:events");
const path = require("node:path");
const { pathToFileURL, fileURLToPath } = require("node:url");

class Disposable {
  constructor(dispose = () => {}) {
    this.dispose = dispose;
  }
  static from(...all) {
    return new Disposable(() => all.forEach((one) => one.dispose()));
  }
}

class Emitter {
  #events = new EventEmitter();
  event = (listener, self, disposables) => {
    const bound = self === undefined ? listener : listener.bind(self);
    this.#events.on("event", bound);
    const disposable = new Disposable(() => this.#events.off("event", bound));
    if (disposables) {
      disposables.push(disposable);
    }
    return disposable;
  };
  fire(value) {
    this.#events.emit("event", value);
  }
  dispose() {
    this.#events.removeAllListeners();
  }
}

class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}

class Range {
  constructor(a, b, c, d) {
    this.start = typeof a === "number" ? new Position(a, b) : a;
    this.end = typeof a === "number" ? new Position(c, d) : b;
  }
}

class Uri {
  constructor(text) {
    this.text = text;
    const found = /^([a-z]+):(?:\/\/([^/]*))?(.*)$/s.exec(text);
    [, this.scheme, this.authority = "", this.path] = found;
    this.fsPath = this.scheme === "file" ? fileURLToPath(text) : this.path;
  }
  static parse(text) {
    return new Uri(text);
  }
  static file(file) {
    return new Uri(pathToFileURL(file).href);
  }
  toString() {
    return this.text;
  }
}

class Plain {
  constructor(...values) {
    this.values = values;
  }
}

class Diagnostic {
  constructor(range, message, severity) {
    Object.assign(this, { range, message, severity });
  }
}

class Location {
  constructor(uri, range) {
    Object.assign(this, { uri, range });
  }
}

class DiagnosticRelatedInformation {
  constructor(location, message) {
    Object.assign(this, { location, message });
  }
}

class MarkdownString {
  constructor(value = "") {
    this.value = value;
  }
  appendMarkdown(text) {
    this.value += text;
    return this;
  }
}

class Hover {
  constructor(contents, range) {
    Object.assign(this, { contents, range });
  }
}

class CodeAction {
  constructor(title, kind) {
    Object.assign(this, { title, kind });
  }
}

class WorkspaceEdit {
  edits = [];
  set(uri, edits) {
    this.edits.push([uri, edits]);
  }
  replace(uri, range, text) {
    this.edits.push([uri, [{ range, newText: text }]]);
  }
}

class TextEdit {
  constructor(range, newText) {
    Object.assign(this, { range, newText });
  }
}

class CodeActionKind {
  constructor(value) {
    this.value = value;
  }
  static Empty = new CodeActionKind("");
  static QuickFix = new CodeActionKind("quickfix");
}

class CancellationTokenSource {
  #emitter = new Emitter();
  token = { isCancellationRequested: false, onCancellationRequested: this.#emitter.event };
  cancel() {
    this.token.isCancellationRequested = true;
    this.#emitter.fire();
  }
  dispose() {}
}

class CancellationError extends Error {}

const emitters = {};
const event = (name) => (emitters[name] ??= new Emitter()).event;
const fire = (name, value) => (emitters[name] ??= new Emitter()).fire(value);

const editor = {
  fire,
  settings: {},
  diagnostics: new Map(), // by URI
  published: new Emitter(),
  providers: { hover: [], actions: [] },
  commands: new Map(),
  log: [],
  warnings: [],
  opened: [],
  documents: [],
  trusted: true,
  root: "",
  open(file, text) {
    const document = {
      uri: Uri.file(file),
      fileName: file,
      languageId: "python",
      version: 1,
      isDirty: false,
      isClosed: false,
      eol: 1,
      text,
      getText: () => document.text,
      get lineCount() {
        return document.text.split("\n").length;
      },
    };
    editor.documents.push(document);
    fire("onDidOpenTextDocument", document);
    return document;
  },
  change(document, text) {
    const lines = document.text.split("\n");
    const range = new Range(0, 0, lines.length - 1, lines[lines.length - 1].length);
    const contentChanges = [{ range, rangeOffset: 0, rangeLength: document.text.length, text }];
    document.text = text;
    document.version += 1;
    fire("onDidChangeTextDocument", { document, contentChanges });
  },
};

const api = {
  Disposable, EventEmitter: Emitter, Position, Range, Uri, Diagnostic, Location, DiagnosticRelatedInformation, MarkdownString, Hover,
  CodeAction, CodeActionKind, WorkspaceEdit, TextEdit, CancellationTokenSource, CancellationError,
  version: "1.91.0",
  DiagnosticSeverity: { Error: 0, Warning: 1, Information: 2, Hint: 3 },
  DiagnosticTag: { Unnecessary: 1, Deprecated: 2 },
  env: { language: "en", appName: "stand-in", openExternal: async (uri) => editor.opened.push(uri.toString()) },
  extensions: { getExtension: () => editor.python, onDidChange: event("onDidChangeExtensions") },
  commands: {
    registerCommand(name, run) {
      editor.commands.set(name, run);
      return new Disposable(() => editor.commands.delete(name));
    },
    executeCommand: async (name, ...words) => editor.commands.get(name)?.(...words),
  },
  window: {
    createOutputChannel: () => ({
      append: (text) => editor.log.push(text), appendLine: (text) => editor.log.push(text), show() {}, clear() {}, dispose() {},
    }),
    showWarningMessage: async (text) => void editor.warnings.push(text),
    showErrorMessage: async (text) => void editor.warnings.push(text),
    showInformationMessage: async () => undefined,
    showInputBox: async () => editor.typed,
    onDidChangeActiveTextEditor: event("onDidChangeActiveTextEditor"),
    onDidChangeVisibleTextEditors: event("onDidChangeVisibleTextEditors"),
    visibleTextEditors: [],
    tabGroups: { all: [], onDidChangeTabs: event("onDidChangeTabs"), onDidChangeTabGroups: event("onDidChangeTabGroups") },
  },
  workspace: {
    get textDocuments() {
      return editor.documents;
    },
    get isTrusted() {
      return editor.trusted;
    },
    get workspaceFolders() {
      return [{ uri: Uri.file(editor.root), name: path.basename(editor.root), index: 0 }];
    },
    notebookDocuments: [],
    getWorkspaceFolder: () => api.workspace.workspaceFolders[0],
    getConfiguration: (section) => ({
      get: (name, value) => editor.settings[[section, name].filter(Boolean).join(".")] ?? value,
      inspect: () => undefined,
    }),
    createFileSystemWatcher: () => ({
      onDidCreate: event("created"), onDidChange: event("changed"), onDidDelete: event("deleted"), dispose() {},
    }),
    applyEdit: async () => true,
    fs: {},
  },
  languages: {
    match: (selector, document) =>
      [selector].flat().some((one) => one.language === document.languageId && (one.scheme ?? document.uri.scheme) === document.uri.scheme)
        ? 10
        : 0,
    createDiagnosticCollection: (name) => ({
      name,
      set(uri, diagnostics) {
        editor.diagnostics.set(uri.toString(), diagnostics ?? []);
        editor.published.fire(uri.toString());
      },
      delete: (uri) => editor.diagnostics.delete(uri.toString()),
      clear: () => editor.diagnostics.clear(),
      dispose: () => editor.diagnostics.clear(),
      has: (uri) => editor.diagnostics.has(uri.toString()),
      get: (uri) => editor.diagnostics.get(uri.toString()),
      forEach() {},
    }),
    registerHoverProvider(_, provider) {
      editor.providers.hover.push(provider);
      return new Disposable();
    },
    registerCodeActionsProvider(_, provider) {
      editor.providers.actions.push(provider);
      return new Disposable();
    },
  },
};

// What the language client only defines classes from, or registers at, and the server does not offer.
const NAMED = (target) =>
  new Proxy(target, {
    get(own, name) {
      if (name in own || typeof name === "symbol" || name === "then") {
        return own[name];
      }
      if (/^on(Did|Will)/.test(name)) {
        return event(name);
      }
      return /^register|^create|^set/.test(name) ? () => new Disposable() : (own[name] = class extends Plain {});
    },
  });

for (const room of ["workspace", "languages", "window"]) {
  api[room] = NAMED(api[room]);
}

module.exports = NAMED(api);
module.exports.editor = editor;
