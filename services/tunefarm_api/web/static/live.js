// Keeps [data-live] regions up to date. A region names the topics that it shows ("job:" means every job). When one of them
// changes, the region gets the event `live` and reloads itself: at most once a second, and not while the page is hidden or left by a form,
// which may delete what it shows.
import { openStream } from "./live_stream.js";

const EVERY_MS = 1000;
const LEAVING_MS = 20_000; // a form whose answer is no page stays; from then on the page is live again
const due = new Set();
let timer = 0;
let leaving = false;

export function listen() {
  const script = document.body.dataset.worker;
  if (!script) return;
  document.getElementById("link").hidden = false;
  document.addEventListener("visibilitychange", flush);
  addEventListener("submit", (event) => { if (!event.defaultPrevented) leave(); });
  if (window.SharedWorker) {
    // All tabs share a stream: browsers open at most six connections to a host, and each stream holds one.
    const worker = new SharedWorker(script, { name: "tunefarm", type: "module" });
    worker.port.onmessage = (event) => take(event.data);
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  } else {
    openStream(take);
  }
}

function take(message) {
  show(message);
  const regions = document.querySelectorAll("[data-live]");
  if (message.kind === "hello") {
    // From now on the stream reports every change. Changes before, or while it was interrupted, are unknown: renew all regions.
    regions.forEach((region) => due.add(region.id));
  } else if (message.kind === "changed") {
    const topics = Object.keys(message.topics);
    for (const region of regions) {
      const shown = region.dataset.live.split(" ");
      if (topics.some((topic) => shown.some((name) => (name.endsWith(":") ? topic.startsWith(name) : topic === name)))) {
        due.add(region.id);
      }
    }
  }
  if (due.size && !timer) flush();
}

function leave() {
  leaving = true;
  setTimeout(() => { leaving = false; flush(); }, LEAVING_MS);
}

function flush() {
  if (document.hidden || leaving || !due.size || timer) return;
  const ids = [...due];
  due.clear();
  timer = setTimeout(() => { timer = 0; flush(); }, EVERY_MS);
  for (const id of ids) {
    const region = document.getElementById(id);
    if (region) region.dispatchEvent(new CustomEvent("live", { bubbles: false }));
  }
}

function show({ kind, why, detail }) {
  const dot = document.getElementById("link");
  if (!dot) return;
  const away = kind === "away";
  dot.dataset.state = away ? "away" : "live";
  dot.title = away ? detail : "";
  dot.firstElementChild.textContent = away ? why : "live";
}
