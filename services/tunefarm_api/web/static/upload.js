// Sends a model's file as it is, and shows how far it is. XMLHttpRequest, for fetch tells nothing while it sends.
const form = document.getElementById("upload");
const drop = document.getElementById("drop");
const file = document.getElementById("file");
const at = (id) => document.getElementById(id);
let request = null;

const size = (bytes) => bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

function fail(text) {
  at("sending").hidden = true;
  drop.hidden = false;
  at("upload-error").textContent = text;
  at("upload-error").hidden = false;
  request = null;
}

function send(chosen) {
  if (!chosen || request) return;
  at("upload-error").hidden = true;
  if (chosen.size > Number(form.dataset.max)) {
    fail(`${chosen.name} has ${size(chosen.size)}: that is more than this farm takes.`);
    return;
  }
  const query = new URLSearchParams({ name: chosen.name });
  for (const line of at("shapes").value.split("\n")) if (line.trim()) query.append("shape", line.trim());
  request = new XMLHttpRequest();
  request.open("POST", `${form.dataset.url}?${query}`);
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.upload.onprogress = (event) => {
    at("sent").value = event.total ? event.loaded / event.total : 0;
    at("sent-text").textContent = `${size(event.loaded)} of ${size(event.total)}`;
  };
  request.onerror = () => fail("The connection broke. Nothing was kept: send the file again.");
  request.onabort = () => fail("Stopped. Nothing was kept.");
  request.onload = () => {
    let answer = {};
    try { answer = JSON.parse(request.responseText); } catch { /* not ours */ }
    if (request.status === 200 && answer.url) location.assign(answer.url);
    else if (request.status === 401) location.reload();
    else fail(answer.detail ? `The server refused it: ${answer.detail}.` : `The server answered ${request.status}.`);
  };
  at("sent-name").textContent = chosen.name;
  at("sent-text").textContent = "";
  at("sent").value = 0;
  drop.hidden = true;
  at("sending").hidden = false;
  request.send(chosen);
}

form.addEventListener("submit", (event) => event.preventDefault());
file.addEventListener("change", () => { send(file.files[0]); file.value = ""; });
at("stop").addEventListener("click", () => request && request.abort());
// A file that misses the field must not take the place of the page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, () => drop.classList.add("over"));
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => send(event.dataTransfer.files[0]));
if (file.files.length) send(file.files[0]); // chosen before this script was there
