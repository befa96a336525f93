// What all pages share: times in the reader's zone, filters that apply themselves, and regions that stay up to date.
import { keep } from "./keep.js";
import { listen } from "./live.js";
import { duration } from "./units.js";

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

function localTimes(root) {
  for (const one of root.querySelectorAll("time[data-local]")) {
    const when = new Date(one.dateTime);
    const today = when.toDateString() === new Date().toDateString();
    one.textContent = one.dataset.local === "full" ? absolute.format(when) : (today ? near : day).format(when);
    one.title = absolute.format(when);
  }
}

// Phases that go on: their clocks do, too, between the news of them.
function tick() {
  for (const one of document.querySelectorAll("[data-ticks]")) {
    one.dataset.from ??= String(performance.now());
    one.textContent = duration(Number(one.dataset.ticks) + (performance.now() - Number(one.dataset.from)) / 1000);
  }
}

// What a page says aloud when it changes: the text of [data-announce], where it is not what it was.
const announced = new Map();
function announce(root) {
  for (const one of root.querySelectorAll("[data-announce]")) {
    const before = announced.get(one.id);
    announced.set(one.id, one.dataset.announce);
    if (before !== undefined && before !== one.dataset.announce) {
      document.getElementById("announce").textContent = one.dataset.announce;
    }
  }
}

for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

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

// A region in use (an open fold, a form that was begun) is left as it is until it is let go.
document.addEventListener("input", (event) => {
  const form = event.target.closest("[data-live] form");
  if (form) form.dataset.begun = "";
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.querySelector("details.fold[open], form[data-begun]")) event.detail.shouldSwap = false;
});
document.addEventListener("toggle", (event) => {
  const region = event.target.closest("[data-live]");
  if (!region || event.target.open) return;
  for (const form of event.target.querySelectorAll("form[data-begun]")) delete form.dataset.begun;
  region.dispatchEvent(new CustomEvent("live"));
}, true);
// At once, before anybody sees the text that is there for readers without scripts.
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
