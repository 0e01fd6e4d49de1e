// The page: the script goes to the worker, the answer is shown as findings and as the predicted run, rank by rank.

const SECONDS = 60; // of one audit
const EXAMPLE = `import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(16, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 1 and rank == 0:
            model.eval()
            with torch.no_grad():
                print(step, model(torch.randn(16, 8)).mean())
            model.train()
        dist.barrier()
    dist.destroy_process_group()


main()
`;
const ORIGINS = {
  user: "call of the script", "ddp-constructor": "DDP constructor", "ddp-buffers": "DDP buffer broadcast",
  "ddp-bucket": "DDP bucket all-reduce", "ddp-rebuild": "DDP bucket rebuild",
};
const ENDS = {
  completes: "The run completes.", hangs: "The run hangs.", aborts: "The run is aborted.", fails: "The run fails.",
  "goes on": "The run goes on, as far as it was followed.", "nothing predicted": "Nothing is predicted.",
};

const text = document.getElementById("text");
const go = document.getElementById("go");
const ranks = document.getElementById("ranks");
const state = document.getElementById("state");
const answer = document.getElementById("answer");
let worker;
let limit;

function start() {
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  worker.onerror = (event) => say(`Python cannot be loaded: ${event.message ?? "the worker did not start"}`);
  worker.onmessage = ({ data }) => {
    if (data.ready) {
      say("Ready");
      go.disabled = false;
    } else if (data.failed) {
      say(`Python cannot be loaded: ${data.failed}`);
    } else {
      clearTimeout(limit);
      show(data.answer);
      if (data.ended) {
        worker.terminate();
        say("Loading Python again ..");
        start();
        return;
      }
      go.disabled = false;
      say("Done");
    }
  };
}

function say(what) {
  state.textContent = what;
}

function audit() {
  const worldSize = Math.min(16, Math.max(1, Math.trunc(Number(ranks.value)) || 2));
  ranks.value = worldSize;
  go.disabled = true;
  say("Auditing ..");
  limit = setTimeout(() => {
    worker.terminate();
    say("Loading Python again ..");
    show({ error: `The audit was ended after ${SECONDS} seconds.` });
    start();
  }, SECONDS * 1000);
  worker.postMessage({ text: text.value, worldSize });
}

/** An element with classes and children; texts are texts, whatever is in them. */
function element(name, classes, ...children) {
  const made = document.createElement(name);
  made.className = classes;
  made.append(...children);
  return made;
}

function show(found) {
  answer.replaceChildren();
  if (found.error) {
    answer.append(element("p", "error", found.error));
    return;
  }
  answer.append(element("h2", "", found.summary));
  for (const error of found.errors) {
    answer.append(element("p", "error", `${error.line ? `Line ${error.line}: ` : ""}${error.message}`));
  }
  const folded = element("details", "", element("summary", "", "Infos"));
  for (const finding of found.findings) {
    (finding.severity === "info" ? folded : answer).append(article(finding));
  }
  if (folded.children.length > 1) {
    folded.firstChild.textContent = `Infos (${folded.children.length - 1})`;
    answer.append(folded);
  }
  answer.append(element("p", "", found.coverage));
  if (found.run) {
    answer.append(...predicted(found.run));
  }
}

function article(finding) {
  const made = element("article", finding.severity);
  const link = element("a", "", `${finding.code} ${finding.name}`);
  link.href = finding.url;
  link.rel = "noopener";
  made.append(element("h3", finding.severity, element("span", "", `${finding.severity} `), link, ` in line ${finding.line}`));
  made.append(element("p", "", finding.message));
  if (finding.steps.length) {
    made.append(element("ol", "", ...finding.steps.map((step) => element("li", "", `line ${step.line}: ${step.text || step.role}`))));
  }
  if (finding.fix) {
    made.append(element("p", "", element("strong", "", "Fix: "), finding.fix));
  }
  if (finding.explanation) {
    made.append(element("details", "", element("summary", "", "Why"), element("p", "", finding.explanation)));
  }
  return made;
}

/** The predicted run: the n-th collective of a rank meets the n-th of the others. */
function predicted(run) {
  const names = Object.keys(run.ranks);
  const columns = names.map((name) => rows(run.ranks[name]));
  const body = element("tbody", "");
  const length = Math.max(0, ...columns.map((column) => column.length));
  for (let at = 0; at < length; at += 1) {
    const cells = columns.map((column) => column[at]);
    const steps = cells.map((cell) => cell?.steps ?? []);
    for (let n = 0; n < Math.max(...steps.map((own) => own.length)); n += 1) {
      body.append(element("tr", "step", element("td", ""), ...steps.map((own) => element("td", "", own[n] ?? ""))));
    }
    if (cells.every((cell) => !cell?.what)) {
      continue;
    }
    const apart = new Set(cells.map((cell) => cell?.key ?? "")).size > 1;
    body.append(
      element("tr", apart ? "apart" : "", element("td", "", String(at)),
        ...cells.map((cell) => (cell?.what ? element("td", "", cell.what, element("small", "", cell.from)) : element("td", "", "-")))),
    );
  }
  const head = element("tr", "", element("th", "", "#"), ...names.map((name) => element("th", "", `rank ${name}`)));
  const parts = [
    element("h2", "", `Predicted run on ${run.world_size} ranks: ${ENDS[run.outcome] ?? run.outcome}`),
  ];
  if (run.explanation && ["hangs", "aborts"].includes(run.outcome)) {
    parts.push(element("p", "error", run.explanation));
  }
  for (const divergence of run.divergences.slice(0, 1)) {
    parts.push(element("p", "", divergence.explanation));
  }
  if (length) {
    parts.push(element("div", "scroll", element("table", "", element("thead", "", head), body)));
  }
  const left = [...run.assumptions.map((one) => `taken as ${one.taken}: ${one.text} (line ${one.line})`), ...run.bounds];
  if (left.length) {
    parts.push(element("details", "", element("summary", "", "What the prediction rests on"),
      element("ol", "", ...left.map((one) => element("li", "", one)))));
  }
  return parts;
}

/** The collectives of one rank, each with the optimizer steps before it; the last row may hold steps alone. */
function rows(events) {
  const found = [];
  let steps = [];
  for (const event of events) {
    if (event.kind === "step") {
      const local = event.local?.length ? `LOCAL gradients: ${event.local.slice(0, 2).join(", ")}` : "averaged gradients";
      steps.push(`step, ${local}, ${event.site}`);
    } else if (event.kind === "collective") {
      const size = event.numel === null ? "" : ` of ${event.numel} ${event.dtype}`;
      const what = `${event.op}${size}`;
      const from = `${ORIGINS[event.origin] ?? event.origin}, ${event.site ?? "an unknown place"}`;
      found.push({ what, from, key: `${what} ${event.root} ${event.reduce_op} ${event.group}`, steps });
      steps = [];
    }
  }
  return steps.length ? [...found, { steps }] : found;
}

text.value = EXAMPLE;
go.addEventListener("click", audit);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !go.disabled) {
    audit();
  }
});
start();
