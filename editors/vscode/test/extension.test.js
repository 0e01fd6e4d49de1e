// The bundled extension with its language client, against the real language server, in a stand-in for the editor.
//
// DDP_AUDIT is the program; without it, the one of the repository's environment or of the PATH.

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const { after, before, test } = require("node:test");

const vscode = require("./vscode.js");
const { editor } = vscode;

const resolve = Module._resolveFilename;
Module._resolveFilename = (name, ...rest) => (name === "vscode" ? require.resolve("./vscode.js") : resolve(name, ...rest));

const own = path.resolve(__dirname, "../../../.venv/bin/ddp-audit");
const program = process.env.DDP_AUDIT ?? (fs.existsSync(own) ? own : "ddp-audit");
const extension = require("../dist/extension.js");

const HANG = `import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        dist.barrier()
`;

let folder;
const context = { subscriptions: [] };

/** The diagnostics of a document, once some condition holds of them. */
function diagnostics(document, holds) {
  const uri = document.uri.toString();
  const now = () => editor.diagnostics.get(uri);
  return new Promise((found, failed) => {
    const limit = setTimeout(() => failed(new Error(`not within 60 s: ${JSON.stringify(now())} ${editor.log.join("\n")}`)), 60_000);
    const look = () => {
      if (now() !== undefined && holds(now())) {
        clearTimeout(limit);
        watching.dispose();
        found(now());
      }
    };
    const watching = editor.published.event(look);
    look();
  });
}

before(async () => {
  folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "ddp-audit-vscode-")));
  editor.root = folder;
  editor.settings["ddp-audit.path"] = program;
  await extension.activate(context);
});

after(async () => {
  await extension.deactivate();
  fs.rmSync(folder, { recursive: true, force: true });
});

test("findings are shown where they are, with their rule", async () => {
  const file = path.join(folder, "train.py");
  fs.writeFileSync(file, HANG);
  const document = editor.open(file, HANG);
  const found = await diagnostics(document, (all) => all.length > 0);
  const hang = found.find((one) => (one.code?.value ?? one.code) === "DDP201");
  assert.ok(hang, JSON.stringify(found));
  assert.equal(hang.severity, vscode.DiagnosticSeverity.Error);
  assert.equal(hang.range.start.line, 11);
  assert.equal(hang.source, "ddp-audit");
  assert.match(String(hang.code.target), /rules\/DDP201\/$/);
  assert.equal(hang.relatedInformation[0].location.range.start.line, 10);
});

test("a finding goes when its cause goes", async () => {
  const document = editor.documents[0];
  editor.change(document, HANG.replace("    if dist.get_rank() == 0:\n        dist.barrier()\n", ""));
  await diagnostics(document, (all) => !all.some((one) => (one.code?.value ?? one.code) === "DDP201"));
  editor.change(document, HANG);
  await diagnostics(document, (all) => all.some((one) => (one.code?.value ?? one.code) === "DDP201"));
});

test("the page of the rule on hover", async () => {
  const token = new vscode.CancellationTokenSource().token;
  const [provider] = editor.providers.hover;
  const hover = await provider.provideHover(editor.documents[0], new vscode.Position(11, 10), token);
  const text = [hover.contents].flat().map((part) => part.value ?? part).join("\n");
  assert.match(text, /DDP201/);
});

test("a quick fix, and a comment that keeps the finding", async () => {
  const document = editor.documents[0];
  const all = editor.diagnostics.get(document.uri.toString());
  const hang = all.find((one) => (one.code?.value ?? one.code) === "DDP201");
  const token = new vscode.CancellationTokenSource().token;
  const [provider] = editor.providers.actions;
  const actions = await provider.provideCodeActions(document, hang.range, { diagnostics: [hang], triggerKind: 1 }, token);
  const titles = actions.map((action) => action.title);
  assert.deepEqual(titles, ["DDP201: move the collective out of the rank test", "DDP201: keep it, with a comment"]);
});

test("the server is ended and started again", async () => {
  await editor.commands.get("ddp-audit.restart")();
  const found = await diagnostics(editor.documents[0], (all) => all.length > 0);
  assert.ok(found.length > 0);
});

test("switched off, nothing is shown", async () => {
  editor.settings["ddp-audit.enable"] = false;
  editor.fire("onDidChangeConfiguration", { affectsConfiguration: () => true });
  await editor.commands.get("ddp-audit.restart")();
  assert.equal(editor.diagnostics.size, 0);
  delete editor.settings["ddp-audit.enable"];
});

test("a workspace that is not trusted loads no rules, whatever the arguments say", { skip: process.platform === "win32" }, async () => {
  const noted = path.join(folder, "noted");
  const noting = path.join(folder, "noting");
  fs.writeFileSync(noting, `#!/bin/sh\necho "$@" >> '${noted}'\nexec '${program}' "$@"\n`, { mode: 0o755 });
  Object.assign(editor.settings, { "ddp-audit.path": noting, "ddp-audit.arguments": ["--color", "never", "--allow-project-rules"] });
  for (const trusted of [true, false]) {
    editor.trusted = trusted;
    await editor.commands.get("ddp-audit.restart")();
  }
  const started = fs.readFileSync(noted, "utf8").trim().split("\n");
  assert.match(started[0], /^server --color never --allow-project-rules/);
  assert.match(started[1], /^server --color never/);
  assert.doesNotMatch(started[1], /project-rules/);
  editor.trusted = true;
  editor.settings["ddp-audit.path"] = program;
  delete editor.settings["ddp-audit.arguments"];
});

test("a program that is not there is reported with what to do", async () => {
  editor.settings["ddp-audit.path"] = path.join(folder, "nowhere");
  await editor.commands.get("ddp-audit.restart")();
  assert.match(editor.warnings.at(-1), /pip install 'ddp-audit\[lsp\]'/);
  editor.settings["ddp-audit.path"] = program;
});

test("the page of a rule is opened by its code, and nothing else is", async () => {
  for (const typed of ["ddp401", "../../evil", undefined]) {
    editor.typed = typed;
    await editor.commands.get("ddp-audit.explain")();
  }
  assert.deepEqual(editor.opened, ["https://ddp-audit.github.io/ddp-audit/rules/DDP401/"]);
});
