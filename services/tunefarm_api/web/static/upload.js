// The field for models: one line for each file, with its progress and its buttons. Files are sent one at a time.
import { Resumable } from "./resumable.js";
import { size } from "./units.js";

const MOST_OF_SWEEP = 64;
const form = document.getElementById("upload");
const drop = document.getElementById("drop");
const file = document.getElementById("file");
const list = document.getElementById("uploads");
const error = document.getElementById("upload-error");
const line = document.getElementById("upload-line");
const sweep = document.getElementById("sweep-of");
const queue = [];
const seen = new Set(); // the names of all files that were chosen
const uploaded = new Set(); // ids of models
let running = null;
let chosen = 0;

function fail(name, text) {
  const paragraph = document.createElement("p");
  const isolated = document.createElement("bdi"); // a name may hold direction marks, which would reverse the text after it
  isolated.textContent = name;
  paragraph.append(isolated, text);
  error.append(paragraph);
  error.hidden = false;
}

// A text for a single file begins with the file's name: "a.onnx:x=1,3,224,224". Other colons belong to the names of inputs.
const OWNED = /^([^=]*\.(?:onnx|tflite)):/i;
const inputOf = (text) => text.slice(0, text.lastIndexOf("="));

// Returns the texts of the fields by kind, one for each input. A line may also be the command's options, as errors propose them.
function written() {
  const texts = { shape: [], value: [] };
  for (const kind of ["shape", "value"]) {
    for (const text of document.getElementById(`${kind}s`).value.split("\n")) {
      const [plain, ...options] = text.split(/(?:^|\s)--(shape|value)[\s=]+/);
      texts[kind].push(plain);
      for (let at = 0; at < options.length; at += 2) texts[options[at]].push(options[at + 1].trim().replace(/^'(.*)'$/, "$1"));
    }
    texts[kind] = texts[kind].map((text) => text.trim()).filter(Boolean);
  }
  return texts;
}

// Returns what the fields say of a file: what is bound, one input per line, tags and a note. The file's own texts come before those for all.
function bindings(name) {
  const of = (texts) => {
    const own = texts.filter((text) => text.startsWith(`${name}:`)).map((text) => text.slice(name.length + 1));
    const isOwn = (text) => own.some((other) => inputOf(other) === inputOf(text));
    const common = texts.filter((text) => !text.startsWith(`${name}:`) && !OWNED.test(text) && !isOwn(text));
    return [...common, ...own].join("\n");
  };
  const { shape, value } = written();
  const labels = Object.fromEntries(["tags", "note"].map((label) => [label, document.getElementById(`upload-${label}`).value.trim()]));
  return { shapes: of(shape), values: of(value), ...labels };
}

// Names the files for which the fields have texts, but which were not chosen.
function warnOfStrangers() {
  const { shape, value } = written();
  const owners = new Set([...shape, ...value].filter((text) => OWNED.test(text)).map((text) => OWNED.exec(text)[1]));
  for (const owner of owners) {
    if (!seen.has(owner)) fail(owner, " has shapes or values above, but no file with this name was chosen.");
  }
}

class Line {
  constructor(model) {
    this.model = model;
    this.root = line.content.firstElementChild.cloneNode(true);
    this.part = (name) => this.root.querySelector(`[data-part=${name}]`);
    this.part("name").textContent = model.name;
    this.part("bar").setAttribute("aria-label", `${model.name}: uploaded`);
    this.part("stop").setAttribute("aria-label", `Stop ${model.name}`);
    this.part("resume").setAttribute("aria-label", `Resume ${model.name}`);
    this.part("stop").addEventListener("click", () => this.stop());
    this.part("resume").addEventListener("click", () => this.resume());
    this.sending = new Resumable(form.dataset.url, model, bindings(model.name), this);
    this.say("Waiting for the previous file");
    list.append(this.root);
    list.hidden = false;
  }

  async run() {
    this.say(this.sending.at ? "Continuing" : "Sending");
    this.part("resume").hidden = true;
    await this.sending.start();
  }

  progress(sent) {
    this.part("bar").value = this.model.size ? sent / this.model.size : 0;
    this.part("sent").textContent = `${size(sent)} of ${size(this.model.size)}`;
    if (this.waits) this.say("Sending");
    this.waits = false;
    this.part("resume").hidden = true;
  }

  waiting(milliseconds, why) {
    this.waits = true;
    this.say(`Interrupted (${why}). Trying again.`);
    this.part("resume").hidden = false;
  }

  paused(why) {
    this.waits = true;
    this.isPaused = true;
    this.say(`Interrupted: ${why}. The sent part is kept: resume, or choose the same file later.`);
    this.part("resume").hidden = false;
  }

  done(modelId) {
    const url = `/models/${modelId}`;
    if (chosen === 1) {
      location.assign(url);
      return;
    }
    this.say("");
    const link = document.createElement("a");
    link.href = url;
    link.textContent = `Open ${this.model.name}`;
    this.part("said").append(link);
    for (const part of ["stop", "resume"]) this.part(part).hidden = true;
    uploaded.add(modelId);
    sweep.hidden = uploaded.size < 2;
    sweep.firstElementChild.href = `/sweeps/new?${[...uploaded].slice(-MOST_OF_SWEEP).map((id) => `model=${encodeURIComponent(id)}`).join("&")}`;
  }

  failed(why) {
    fail(this.model.name, `: refused by the server: ${why}.`);
    this.remove();
  }

  resume() {
    if (!this.isPaused) {
      this.sending.hurry();
      return;
    }
    this.isPaused = false;
    this.part("stop").focus(); // the button that has the focus disappears
    queue.unshift(this);
    next();
  }

  stop() {
    const at = queue.indexOf(this);
    if (at >= 0) queue.splice(at, 1);
    this.sending.stop();
    this.remove();
    file.focus();
  }

  remove() {
    this.root.remove();
    list.hidden = !list.children.length;
    chosen -= 1;
  }

  say(text) { this.part("said").textContent = text; }
}

async function next() {
  if (running || !queue.length) return;
  running = queue.shift();
  try {
    await running.run();
  } finally {
    running = null;
  }
  next();
}

function take(files) {
  error.hidden = true;
  error.replaceChildren();
  for (const model of files) seen.add(model.name);
  warnOfStrangers();
  for (const model of files) {
    if (model.size > Number(form.dataset.max)) {
      fail(model.name, ` has ${size(model.size)}: larger than this farm's limit.`);
      continue;
    }
    chosen += 1;
    queue.push(new Line(model));
  }
  next();
}

form.addEventListener("submit", (event) => event.preventDefault());
file.addEventListener("change", () => { take([...file.files]); file.value = ""; });
addEventListener("online", () => running && running.sending.hurry());
// A file dropped beside the field must not replace the page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, () => drop.classList.add("over"));
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => take([...event.dataTransfer.files]));
if (file.files.length) take([...file.files]); // chosen before this script was loaded
