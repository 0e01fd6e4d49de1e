// Which program the extension starts.

"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { test } = require("node:test");
const esbuild = require("esbuild");

const source = path.join(__dirname, "../src/program.ts");
const built = esbuild.buildSync({ entryPoints: [source], bundle: true, platform: "node", format: "cjs", write: false });
const module_ = { exports: {} };
new Function("module", "exports", "require", built.outputFiles[0].text)(module_, module_.exports, require);
const { findProgram } = module_.exports;

const wanted = { configured: "", interpreter: "/env/bin/python", searchPath: "/usr/bin:/opt/bin", platform: "linux" };
const having = (...files) => (file) => files.includes(file);

test("the setting comes first", () => {
  assert.equal(findProgram({ ...wanted, configured: "/own/ddp-audit" }, having("/env/bin/ddp-audit")), "/own/ddp-audit");
});

test("then the selected environment, then the path", () => {
  assert.equal(findProgram(wanted, having("/env/bin/ddp-audit", "/usr/bin/ddp-audit")), "/env/bin/ddp-audit");
  assert.equal(findProgram(wanted, having("/opt/bin/ddp-audit")), "/opt/bin/ddp-audit");
  assert.equal(findProgram({ ...wanted, interpreter: undefined }, having("/usr/bin/ddp-audit")), "/usr/bin/ddp-audit");
});

test("no folder that is relative to the workspace is looked at", () => {
  const all = () => true;
  assert.equal(findProgram({ ...wanted, interpreter: "python", searchPath: ".::bin" }, all), undefined);
});

test("without a program there is none", () => {
  assert.equal(findProgram(wanted, having()), undefined);
});
