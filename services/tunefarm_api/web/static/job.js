// A job's curve: best latency over time or trials, with the measured baselines as lines across.
import { names, series } from "./baselines.js";
import { HEIGHT, atRest, axes, css, fmt, follow, scaleOf } from "./chart.js";
import { NONE, duration } from "./units.js";

const host = document.getElementById("chart");

let data = null;
let etag = "";
let plot = null;
let drawn = "";

function axis() {
  return document.querySelector("input[name=axis]:checked").value;
}

// The horizontal axis begins at 0, to show how long it took until every kernel was measured.
function columns() {
  const x = data[axis()];
  const begins = x[0] > 0;
  const across = begins ? [0, ...x] : x;
  return [across, begins ? [null, ...data.ms] : data.ms, ...data.baselines.map((baseline) => across.map(() => baseline.ms))];
}

function options() {
  const byTime = axis() === "sec";
  const stepped = uPlot.paths.stepped({ align: 1 });
  return {
    width: host.clientWidth,
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    hooks: atRest,
    plugins: [names(data.baselines)],
    scales: {
      x: { time: false },
      y: scaleOf([...data.ms, ...data.baselines.map((baseline) => baseline.ms)].filter((ms) => ms != null)),
    },
    axes: axes({ time: byTime }),
    series: [
      { label: byTime ? "after" : "trials", value: (_, v) => v == null ? NONE : byTime ? duration(v) : v.toLocaleString() },
      { label: "kernels' best", stroke: css("--curve"), width: 2.5, paths: stepped, points: { show: data.ms.length < 40, size: 5, fill: css("--curve") }, value: (_, v) => fmt(v) },
      ...series(data.baselines),
    ],
  };
}

function draw() {
  host.classList.toggle("blank", !data.ms.length);
  if (!data.ms.length) {
    host.textContent = data.blank;
    drawn = "";
    return;
  }
  const shape = axis() + JSON.stringify(data.baselines);
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
  if (data) draw();
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
// The page's head is replaced whenever the job changes; the curve may have changed, too.
document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt.id === "head") load(); });
load();
