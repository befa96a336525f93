// A job's curve: best latency over time or trials, with the measured baselines as lines across.
import { HEIGHT, axes, css, fmt, follow, scaleOf } from "./chart.js";

const host = document.getElementById("chart");
const clock = (sec) => sec < 60 ? `${+sec.toFixed(sec < 10 ? 1 : 0)} s` : sec < 3600 ? `${+(sec / 60).toFixed(1)} min` : `${+(sec / 3600).toFixed(2)} h`;
const DASHES = { onnxruntime: [10, 5], untuned: [3, 4], tuned: [14, 4, 2, 4] };
const COLOURS = { onnxruntime: "--base-b", untuned: "--base-a", tuned: "--curve-time" };

let data = null;
let etag = "";
let plot = null;
let drawn = "";

function axis() {
  return document.querySelector("input[name=axis]:checked").value;
}

function columns() {
  const x = data[axis()];
  const lines = data.baselines.map((one) => x.map(() => one.ms));
  return [x, data.ms, ...lines];
}

function options() {
  const byTime = axis() === "sec";
  const stepped = uPlot.paths.stepped({ align: 1 });
  return {
    width: host.clientWidth,
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false },
      y: scaleOf([...data.ms, ...data.baselines.map((one) => one.ms)].filter((ms) => ms != null)),
    },
    axes: axes(byTime ? clock : (v) => v.toLocaleString(), { whole: !byTime || data.sec.at(-1) > 20 }),
    series: [
      { label: byTime ? "searched" : "trials", value: (_, v) => v == null ? "–" : byTime ? clock(v) : v.toLocaleString() },
      { label: "kernels' best", stroke: css("--curve"), width: 2.5, paths: stepped, points: { show: data.ms.length < 40, size: 5, fill: css("--curve") }, value: (_, v) => fmt(v) },
      ...data.baselines.map((one) => ({ label: `${one.name} ${fmt(one.ms)}`, stroke: css(COLOURS[one.key]), width: 2, dash: DASHES[one.key], points: { show: false }, value: () => "" })),
    ],
  };
}

function draw() {
  if (!data || !data.ms.length) {
    host.classList.add("soft");
    host.textContent = data && data.running ? "The curve begins when every kernel has been measured once." : "Nothing was measured.";
    drawn = "";
    return;
  }
  const shape = axis() + data.baselines.map((one) => one.key).join();
  if (plot && shape === drawn) {
    plot.setData(columns());
    return;
  }
  if (plot) plot.destroy();
  host.textContent = "";
  plot = new uPlot(options(), columns(), host);
  drawn = shape;
}

function redraw() {
  drawn = "";
  draw();
}

async function load() {
  const answer = await fetch(host.dataset.url, { headers: etag ? { "If-None-Match": etag } : {} }).catch(() => null);
  if (!answer || answer.status !== 200) return;
  etag = answer.headers.get("ETag");
  data = await answer.json();
  draw();
}

document.querySelector(".choice").addEventListener("change", redraw);
follow(host, () => plot, redraw);
// The head is renewed whenever the job changes: then the curve may have, too.
document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt.id === "head") load(); });
load();
