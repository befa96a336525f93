// Sends a file of samples for the form of a new job, waits for its check, and selects it there. A form that is sent meanwhile waits.
import { size } from "./units.js";

const POLL_MS = 500;
let selected = ""; // kept here: the form may be replaced by a newer version
let checking = null; // the file whose check is under way
let waiting = null; // the button that sends the form when the check has ended

function say(text) {
  const line = document.getElementById("samples-said");
  if (line) line.textContent = text;
}

async function answer(url, options) {
  const response = await fetch(url, { headers: { Accept: "application/json" }, ...options });
  const json = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(json.detail || `the server answered ${response.status}`);
  return json;
}

async function checked(url, samples) {
  while (samples.state === "checking") {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    samples = await answer(`${url}/${samples.id}`);
  }
  if (samples.state === "failed") throw new Error((samples.error || {}).message || "they do not fit the model");
  return samples;
}

function select(samples) {
  const field = document.getElementById("samples");
  if (!field) return;
  if (![...field.options].some((option) => option.value === samples.id)) {
    field.append(new Option(`${samples.name}: ${samples.sets} sample set${samples.sets === 1 ? "" : "s"}`, samples.id));
  }
  field.value = selected = samples.id;
}

async function send(field) {
  const file = field.files[0], { url, max } = field.dataset;
  field.value = ""; // the same file can be chosen again
  if (!file) return;
  if (file.size > Number(max)) {
    checking = waiting = null;
    say(`${file.name} has ${size(file.size)}: larger than this farm's limit.`);
    return;
  }
  checking = file;
  let fits = false;
  try {
    say(`Sending ${file.name} (${size(file.size)})`);
    const headers = { "Content-Type": "application/octet-stream", Accept: "application/json" };
    const sent = await answer(`${url}?name=${encodeURIComponent(file.name.slice(0, 200))}`, { method: "POST", body: file, headers });
    say(`Checking ${file.name}`);
    const samples = await checked(url, sent);
    if (checking !== file) return; // another file was chosen meanwhile
    select(samples);
    say(`${file.name} fits the model.`);
    fits = true;
  } catch (error) {
    if (checking !== file) return;
    say(`${file.name} was refused: ${error.message}.${waiting ? " No job was started." : ""}`);
  }
  checking = null;
  const button = waiting && document.querySelector(waiting);
  waiting = null;
  if (fits && button) button.form.requestSubmit(button);
  document.getElementById("its-samples")?.dispatchEvent(new CustomEvent("live"));
}

document.addEventListener("change", (event) => {
  if (event.target.id === "samples-file") send(event.target);
  if (event.target.id === "samples") selected = event.target.value;
});
document.addEventListener("submit", (event) => {
  if (event.target.id !== "new-job" || !checking) return;
  event.preventDefault();
  waiting = event.submitter?.name === "no_search" ? "#new-job [name=no_search]" : "#new-job .button.main";
  say(`Checking ${checking.name}. The job starts when it fits the model.`);
});
document.addEventListener("htmx:afterSwap", () => {
  const field = document.getElementById("samples");
  if (field && selected && [...field.options].some((option) => option.value === selected)) field.value = selected;
});
