// Python with the planner, as WebAssembly: Pyodide. It is told {number, question, given, chinese}.

import {loadPyodide} from "../pyodide/pyodide.mjs";

const here = path => new URL(`../${path}`, import.meta.url).href;
const overNetwork = fetch;
let loaded = 0, total = Infinity;

// The bytes that arrive are counted, whoever asks for them.
globalThis.fetch = async (...asked) => {
  const reply = await overNetwork(...asked);
  if (!reply.body) return reply;
  const counter = new TransformStream({transform(piece, controller) {
    loaded += piece.byteLength;
    postMessage({loaded: Math.min(loaded / total, 0.99)});
    controller.enqueue(piece);
  }});
  return new Response(reply.body.pipeThrough(counter), {status: reply.status, headers: reply.headers});
};

async function load() {
  total = (await (await overNetwork(here("planner.json"))).json()).bytes;
  const [python, planner] = await Promise.all([loadPyodide({indexURL: here("pyodide/")}), fetch(here("planner.zip"))]);
  python.unpackArchive(await planner.arrayBuffer(), "zip", {extractDir: "/planner"});
  python.FS.chdir("/planner");
  const answers = python.runPython("import sys; sys.path.insert(0, '/planner'); from launch.studio import answers; answers");
  postMessage({loaded: 1});
  return answers;
}

const ready = load();
onmessage = async ({data: {number, question, given, chinese}}) => {
  try {
    postMessage({number, answer: (await ready).answer_in_json(question, given, chinese)});
  } catch (error) {
    postMessage({number, answer: JSON.stringify({detail: error.message})});
  }
};
