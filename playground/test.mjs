// The built page in a headless Chromium: SITE is its folder, BROWSER the program.

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";

import puppeteer from "puppeteer-core";

const KINDS = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm" };
const site = path.resolve(process.env.SITE ?? "../site/playground");
const asked = [];
let server, browser, page;

before(async () => {
  server = http.createServer((request, answer) => {
    const name = new URL(request.url, "http://localhost").pathname;
    asked.push(name);
    const file = path.join(site, path.normalize(name === "/" ? "index.html" : name));
    if (!file.startsWith(site) || !fs.existsSync(file)) {
      answer.writeHead(404).end();
      return;
    }
    answer.writeHead(200, { "Content-Type": KINDS[path.extname(file)] ?? "application/octet-stream" });
    fs.createReadStream(file).pipe(answer);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  browser = await puppeteer.launch({
    executablePath: process.env.BROWSER ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"], protocolTimeout: 240_000,
  });
  page = await browser.newPage();
  page.problems = [];
  page.elsewhere = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.problems.push(message.text()));
  const own = `http://127.0.0.1:${server.address().port}/`;
  page.on("request", (request) => request.url().startsWith(own) || page.elsewhere.push(request.url()));
  await page.goto(own);
  await page.waitForFunction(() => !document.getElementById("go").disabled, { timeout: 240_000 });
});

after(async () => {
  await browser?.close();
  server?.close();
});

async function audited(text, ranks = 2) {
  await page.evaluate((script, count) => {
    if (script !== null) {
      document.getElementById("text").value = script;
    }
    document.getElementById("ranks").value = count;
    document.getElementById("go").click();
  }, text, ranks);
  await page.waitForFunction(() => !document.getElementById("go").disabled, { timeout: 120_000 });
  return page.evaluate(() => ({
    summary: document.querySelector("#answer h2")?.textContent,
    findings: [...document.querySelectorAll("#answer > article")].map((one) => one.textContent),
    heads: [...document.querySelectorAll("#answer th")].map((one) => one.textContent),
    apart: [...document.querySelectorAll("tr.apart")].map((row) => [...row.cells].map((cell) => cell.textContent)),
    text: document.getElementById("answer").textContent,
  }));
}

const GOOD = `import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
`;

test("the example: its findings, and the ranks side by side where they diverge", async () => {
  const found = await audited(null);
  assert.match(found.summary, /^1 error/);
  assert.match(found.findings[0], /DDP401 .*in line 20/s);
  assert.match(found.findings[0], /Fix: /);
  assert.deepEqual(found.heads, ["#", "rank 0", "rank 1"]);
  assert.match(found.text, /Predicted run on 2 ranks: The run hangs\./);
  assert.match(found.apart.at(-1)[1], /^broadcast of 64 float32DDP buffer broadcast, train\.py:20/);
  assert.match(found.apart.at(-1)[2], /^barriercall of the script, train\.py:22/);
});

test("a script without a hazard", async () => {
  const found = await audited(GOOD, 3);
  assert.match(found.summary, /^No hazards found in 1 file/);
  assert.match(found.text, /Coverage: 1 file read; train\.py followed to the end/);
  assert.match(found.text, /Predicted run on 3 ranks: The run completes\./);
  assert.equal(found.heads.length, 4);
  assert.deepEqual(found.apart, []);
});

test("a script that does not parse", async () => {
  const found = await audited("import torch\nx = (\n");
  assert.match(found.text, /Line 2/);
});

test("what a script holds is text on the page, and is not executed", async () => {
  const evil = `import os\nos.mkdir("/tmp/ran")\n${GOOD}if dist.get_rank() == "<img src=x onerror=alert(1)>":\n    dist.barrier()\n`;
  const found = await audited(evil);
  assert.ok(found.text);
  assert.equal(await page.evaluate(() => document.querySelectorAll("#answer img, #answer script").length), 0);
});

for (const [kind, opened, closed, times] of [["brackets", "(", ")", 150], ["minus signs", "-", "", 3000], ["lists", "[", "]", 150]]) {
  test(`${times} nested ${kind}: the page says so, or audits them, and goes on`, async () => {
    const before = page.problems.length;
    const deep = await audited(`import torch.distributed\nx = ${opened.repeat(times)}1${closed.repeat(times)}\n`);
    assert.ok(deep.text);
    assert.match((await audited(GOOD)).summary, /^No hazards/);
    page.problems.splice(before); // the browser's own word on an overflow of its stack
  });
}

test("at 420 pixels nothing is cut off", async () => {
  await page.setViewport({ width: 420, height: 800 });
  await audited(null);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 420, `${wide}`);
});

test("nothing is sent anywhere, and nothing went wrong", () => {
  assert.deepEqual(page.elsewhere, []);
  assert.deepEqual(page.problems, []);
  assert.deepEqual(asked.filter((name) => !fs.existsSync(path.join(site, name))), []);
});
