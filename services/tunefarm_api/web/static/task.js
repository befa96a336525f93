// All trials of a kernel: points for those that work, crosses at the upper edge for those that fail, a line for the best.
import { HEIGHT, atRest, axes, css, fmt, follow, scaleOf } from "./chart.js";
import { NONE } from "./units.js";

const host = document.getElementById("scatter");
let plot = null;
let data = null;

function crosses(u, seriesAt) {
  const { ctx } = u;
  const size = 3 * devicePixelRatio, top = u.bbox.top + 2 * size;
  ctx.save();
  ctx.strokeStyle = css("--bad");
  ctx.lineWidth = 1.2 * devicePixelRatio;
  ctx.beginPath();
  u.data[0].forEach((x, i) => {
    if (u.data[seriesAt][i] == null) return;
    const at = u.valToPos(x, "x", true);
    ctx.moveTo(at - size, top - size);
    ctx.lineTo(at + size, top + size);
    ctx.moveTo(at - size, top + size);
    ctx.lineTo(at + size, top - size);
  });
  ctx.stroke();
  ctx.restore();
  return null;
}

function draw() {
  if (plot) plot.destroy();
  plot = null;
  const values = data.ms.filter((ms) => ms != null);
  if (!data.trials) {
    host.textContent = "There are no trials yet.";
    return;
  }
  host.textContent = "";
  const failed = data.failed.map((isFailed) => isFailed ? 1 : null);
  const count = (v) => v == null ? NONE : v.toLocaleString();
  plot = new uPlot({
    width: host.clientWidth,
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: values.length ? scaleOf(values) : { range: [0, 1] }, failed: { range: [0, 1] } },
    axes: axes(),
    hooks: atRest,
    series: [
      { label: "trial", value: (_, v) => count(v) },
      { label: "works", stroke: css("--curve-time"), paths: () => null, points: { show: true, size: 5, fill: css("--curve-time") }, value: (_, v) => fmt(v) },
      { label: "best so far", stroke: css("--curve"), width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, v) => fmt(v) },
      { label: "fails", stroke: css("--bad"), scale: "failed", paths: crosses, points: { show: false }, value: (_, v) => v ? "yes" : "no" },
    ],
  }, [data.trial, data.ms, data.best, failed], host);
}

async function load() {
  const answer = await fetch(host.dataset.url).catch(() => null);
  if (!answer || !answer.ok) return;
  const before = data && data.trials;
  data = await answer.json();
  document.getElementById("scatter-text").textContent = data.every > 1 ? `one in ${data.every} of ${data.trials.toLocaleString()}, and all improvements` : "";
  if (data.trials !== before) draw();
}

follow(host, () => plot, () => data && draw());
document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt.id === "task") load(); });
load();
