// A job's curve: the whole network as it was measured on the way, the sum of its kernels as an estimate, and the measured baselines as
// lines across.
import { names, series } from "./baselines.js";
import { HEIGHT, atRest, axes, css, fmt, follow, scaleOf } from "./chart.js";
import { NONE, duration } from "./units.js";

const host = document.getElementById("chart");
const note = document.getElementById("curve-note");

let data = null;
let etag = "";
let plot = null;
let drawn = "";

function axis() {
  return document.querySelector("input[name=axis]:checked").value;
}

// The horizontal axis begins at 0, to show how long it took until every kernel was measured.
function columns() {
  const sums = new Map(data[axis()].map((at, index) => [at, data.ms[index]]));
  const networks = new Map(data.networks.map((network) => [network[axis()], network.ms]));
  const across = [...new Set([0, ...sums.keys(), ...networks.keys()])].sort((a, b) => a - b);
  // A curve holds its value until its next point; both end at the right.
  const held = (points) => {
    let last = null;
    return across.map((at) => (last = points.get(at) ?? last));
  };
  return [across, held(sums), held(networks), ...data.baselines.map((baseline) => across.map(() => baseline.ms))];
}

// The points at which the network was measured, with their 95 % intervals.
function measured() {
  return {
    hooks: {
      draw: [(u) => {
        const { ctx } = u, ratio = devicePixelRatio;
        ctx.save();
        ctx.strokeStyle = ctx.fillStyle = css("--curve");
        ctx.lineWidth = 2 * ratio;
        for (const network of data.networks) {
          const x = u.valToPos(network[axis()], "x", true);
          if (network.low != null) {
            ctx.beginPath();
            ctx.moveTo(x, u.valToPos(network.low, "y", true));
            ctx.lineTo(x, u.valToPos(network.high, "y", true));
            ctx.stroke();
          }
          ctx.beginPath();
          ctx.arc(x, u.valToPos(network.ms, "y", true), 4 * ratio, 0, 2 * Math.PI);
          ctx.fill();
        }
        ctx.restore();
      }],
    },
  };
}

function options() {
  const byTime = axis() === "sec";
  const stepped = uPlot.paths.stepped({ align: 1 });
  const thin = data.networks.length > 0;
  const ends = data.networks.flatMap((network) => [network.ms, network.low, network.high]);
  const scale = scaleOf([...data.ms, ...ends, ...data.baselines.map((baseline) => baseline.ms)].filter((ms) => ms != null));
  const inSight = ends.filter((ms) => ms != null);
  return {
    width: host.clientWidth,
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    hooks: atRest,
    plugins: [measured(), names(data.baselines)],
    scales: {
      x: { time: false },
      y: { ...scale, range: (u, from, to) => scale.range(u, Math.min(from, ...inSight), Math.max(to, ...inSight)) },
    },
    axes: axes({ time: byTime }),
    series: [
      { label: byTime ? "after" : "trials", value: (_, v) => v == null ? NONE : byTime ? duration(v) : v.toLocaleString() },
      {
        label: "kernels' sum, an estimate", stroke: css("--curve"), width: thin ? 1 : 2.5, alpha: thin ? 0.5 : 1, paths: stepped,
        points: { show: !thin && data.ms.length < 40, size: 5, fill: css("--curve") }, value: (_, v) => fmt(v),
      },
      { label: "network, measured", show: thin, stroke: css("--curve"), width: 2.5, paths: stepped, points: { show: false }, value: (_, v) => fmt(v) },
      ...series(data.baselines),
    ],
  };
}

function draw() {
  note.textContent = data.note;
  const blank = !data.ms.length && !data.networks.length;
  host.classList.toggle("blank", blank);
  if (blank) {
    if (plot) plot.destroy();
    plot = null;
    host.textContent = data.blank;
    drawn = "";
    return;
  }
  const shape = axis() + JSON.stringify([data.baselines, data.networks]);
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
