// The language server of ddp-audit in VS Code: started for Python files, restarted when a setting changes.

import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, RevealOutputChannelOn, ServerOptions } from "vscode-languageclient/node";

import { findProgram } from "./program";

const PAGES = "https://ddp-audit.github.io/ddp-audit/rules/";
const INSTALL = "https://ddp-audit.github.io/ddp-audit/editors/";

let client: LanguageClient | undefined;
let output: vscode.OutputChannel | undefined;
let change: Promise<void> = Promise.resolve();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  output = vscode.window.createOutputChannel("ddp-audit");
  context.subscriptions.push(
    output,
    vscode.commands.registerCommand("ddp-audit.restart", restart),
    vscode.commands.registerCommand("ddp-audit.showLog", () => output?.show()),
    vscode.commands.registerCommand("ddp-audit.explain", explain),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("ddp-audit")) {
        void restart();
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void restart()),
  );
  await restart();
}

export async function deactivate(): Promise<void> {
  await inOrder(stop);
}

/** Starts the server again, or ends it where it is switched off. One change after the other. */
function restart(): Promise<void> {
  return inOrder(async () => {
    await stop();
    await start();
  });
}

function inOrder(step: () => Promise<void>): Promise<void> {
  change = change.then(step, step);
  return change;
}

async function start(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("ddp-audit");
  if (!settings.get<boolean>("enable", true)) {
    return;
  }
  const program = findProgram({
    configured: settings.get<string>("path", ""),
    interpreter: await selectedInterpreter(),
    searchPath: process.env.PATH ?? "",
    platform: process.platform,
  });
  if (program === undefined) {
    await tellToInstall("ddp-audit is not installed in the selected Python environment.");
    return;
  }
  const allowed = (argument: string) => vscode.workspace.isTrusted || argument !== "--allow-project-rules";
  const run = { command: program, args: ["server", ...settings.get<string[]>("arguments", []).filter(allowed)] };
  const serverOptions: ServerOptions = { run, debug: run };
  const clientOptions: LanguageClientOptions = {
    documentSelector: [
      { scheme: "file", language: "python" },
      { scheme: "untitled", language: "python" },
    ],
    outputChannel: output,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    // Rules of a project are code: never in a workspace that is not trusted.
    initializationOptions: {
      allowProjectRules: vscode.workspace.isTrusted && settings.get<boolean>("allowProjectRules", false),
    },
  };
  client = new LanguageClient("ddp-audit", "ddp-audit", serverOptions, clientOptions);
  try {
    await client.start();
  } catch (error) {
    output?.appendLine(`${program} server: ${String(error)}`);
    client = undefined;
    await tellToInstall(`${program} server does not start. Is the extra [lsp] installed?`);
  }
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  if (running !== undefined) {
    try {
      await running.dispose(5000);
    } catch (error) {
      output?.appendLine(`the server did not end in order: ${String(error)}`);
    }
  }
}

async function explain(): Promise<void> {
  const code = await vscode.window.showInputBox({ prompt: "The code of a rule", placeHolder: "DDP401" });
  if (code !== undefined && /^DDP\d{3}$/i.test(code.trim())) {
    await vscode.env.openExternal(vscode.Uri.parse(`${PAGES}${code.trim().toUpperCase()}/`));
  }
}

async function tellToInstall(problem: string): Promise<void> {
  const answer = await vscode.window.showWarningMessage(`${problem} Run: pip install 'ddp-audit[lsp]'`, "How to install", "Show log");
  if (answer === "How to install") {
    await vscode.env.openExternal(vscode.Uri.parse(INSTALL));
  } else if (answer === "Show log") {
    output?.show();
  }
}

/** The interpreter that the Python extension has selected, if that extension is there. */
async function selectedInterpreter(): Promise<string | undefined> {
  const python = vscode.extensions.getExtension("ms-python.python");
  if (python === undefined) {
    return undefined;
  }
  try {
    const api = python.isActive ? python.exports : await python.activate();
    const resource = vscode.workspace.workspaceFolders?.[0]?.uri;
    const environment = await api.environments.resolveEnvironment(api.environments.getActiveEnvironmentPath(resource));
    return environment?.executable?.uri?.fsPath;
  } catch (error) {
    output?.appendLine(`the selected Python is not known: ${String(error)}`);
    return undefined;
  }
}
