// Python and the auditor, in a thread of their own: the page stays alive, and can end an audit that takes too long.

import { loadPyodide } from "./pyodide.mjs";

const ready = (async () => {
  const python = await loadPyodide({ indexURL: new URL("./", import.meta.url).href });
  const [packed, asked] = await Promise.all([fetched("ddp_audit.zip"), fetched("auditing.py")]);
  python.unpackArchive(await packed.arrayBuffer(), "zip", { extractDir: "/lib/audit" });
  python.FS.writeFile("/lib/audit/auditing.py", await asked.text());
  python.runPython("import sys; sys.path.insert(0, '/lib/audit')");
  return python.pyimport("auditing");
})();

async function fetched(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) {
    throw new Error(`${name}: ${answer.status}`);
  }
  return answer;
}

ready.then(
  () => postMessage({ ready: true }),
  (error) => postMessage({ failed: String(error) }),
);

onmessage = async ({ data }) => {
  try {
    const auditing = await ready;
    postMessage({ answer: JSON.parse(auditing.audited(data.text, data.worldSize)) });
  } catch (error) {
    // An error of Python leaves it usable; any other, such as an overflow of the browser's stack, may not.
    const lines = String(error).trim().split("\n");
    const isPython = error?.constructor?.name === "PythonError";
    postMessage({ answer: { error: isPython ? lines.at(-1) : "The script is nested too deeply for this page." }, ended: !isPython });
  }
};
