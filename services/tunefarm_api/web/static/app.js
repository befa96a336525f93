// What all pages share: times in the reader's zone, filters that apply themselves, and regions that stay up to date.
import { keep } from "./keep.js";
import { listen } from "./live.js";
import { duration } from "./units.js";

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

function localTimes(root) {
  for (const element of root.querySelectorAll("time[data-local]")) {
    const when = new Date(element.dateTime);
    const today = when.toDateString() === new Date().toDateString();
    element.textContent = element.dataset.local === "full" ? absolute.format(when) : (today ? near : day).format(when);
    element.title = absolute.format(when);
  }
}

// Advances the clocks of running phases between updates from the server.
function tick() {
  for (const clock of document.querySelectorAll("[data-ticks]")) {
    clock.dataset.from ??= String(performance.now());
    clock.textContent = duration(Number(clock.dataset.ticks) + (performance.now() - Number(clock.dataset.from)) / 1000);
  }
}

// Tells screen readers the text of [data-announce] when it has changed.
const announced = new Map();
function announce(root) {
  for (const element of root.querySelectorAll("[data-announce]")) {
    const before = announced.get(element.id), text = element.dataset.announce;
    announced.set(element.id, text);
    if (before !== undefined && before !== text) {
      document.getElementById("announce").textContent = text;
    }
  }
}

for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

// A page that answers a form has an address that can be opened: "back" and "reload" do not send the form again.
if ("posted" in document.body.dataset) history.replaceState(null, "", location.href);

document.addEventListener("click", (event) => {
  for (const fold of document.querySelectorAll("details.fold[open]")) {
    if (!fold.contains(event.target)) fold.open = false;
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy).textContent;
    navigator.clipboard?.writeText(text).then(() => { copy.textContent = "Copied"; });
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const fold of document.querySelectorAll("details.fold[open]")) {
    fold.open = false;
    fold.querySelector("summary").focus();
  }
});

// A region in use (an open fold, a form that was begun or opened further) is not replaced until the user leaves it.
document.addEventListener("input", (event) => {
  const form = event.target.closest("[data-live] form");
  if (form) form.dataset.begun = "";
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.querySelector("details.fold[open], form details[open], form[data-begun]")) event.detail.shouldSwap = false;
});
document.addEventListener("toggle", (event) => {
  const region = event.target.closest("[data-live]");
  if (!region || event.target.open) return;
  for (const form of event.target.querySelectorAll("form[data-begun]")) delete form.dataset.begun;
  region.dispatchEvent(new CustomEvent("live"));
}, true);
// Right after a swap, before anybody sees the UTC times that are there for browsers without scripts.
for (const swapped of ["htmx:afterSwap", "htmx:oobAfterSwap"]) document.addEventListener(swapped, () => localTimes(document));
document.addEventListener("htmx:afterSettle", () => {
  localTimes(document);
  announce(document);
  tick();
});
document.addEventListener("htmx:responseError", (event) => {
  let text = `The server answered ${event.detail.xhr.status}.`;
  try { text = JSON.parse(event.detail.xhr.responseText).detail; } catch { /* no problem document */ }
  document.getElementById("announce").textContent = text;
});

localTimes(document);
announce(document);
keep();
tick();
setInterval(tick, 1000);
listen();
