// A device's charts: its use over time as stacked bars, the machine's state as lines, its calibrations with their limits.
import { css, fmt, follow, scaleOf } from "./chart.js";
import { NONE, clock, percent, temperature } from "./units.js";

const TALL = 260, LOW = 165;
const NARROW_PX = 520;
const EVERY_MS = 4000;
const use = document.getElementById("use-chart");
const calibration = document.getElementById("calibration-chart");
const plots = new Map();
let used = null;
let calibrated = null;

const timeOfDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const full = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const when = (sec) => sec == null ? NONE : full.format(sec * 1000);

function timeAxis(u, ticks) {
  const far = u.scales.x.max - u.scales.x.min > 2.5 * 86400;
  return ticks.map((sec) => {
    const at = new Date(sec * 1000);
    return far || (at.getHours() === 0 && at.getMinutes() === 0) ? day.format(at) : timeOfDay.format(at);
  });
}

function axes(text, host) {
  const line = css("--line"), common = { stroke: css("--ink-soft"), grid: { stroke: line }, ticks: { stroke: line } };
  return [
    { ...common, space: host.clientWidth < NARROW_PX ? 70 : 85, values: timeAxis },
    { ...common, size: 78, values: (_, ticks) => ticks.map((v) => v == null ? "" : text(v)) },
  ];
}

function put(host, height, options, columns) {
  const before = plots.get(host);
  if (before) before.destroy();
  host.textContent = "";
  plots.set(host, new uPlot({ width: host.clientWidth, height, padding: [12, 26, 0, 0], cursor: { drag: { x: true, y: false } }, ...options }, columns, host));
}

function say(host, words) {
  const before = plots.get(host);
  if (before) before.destroy();
  plots.delete(host);
  host.classList.add("soft");
  host.textContent = words;
}

// The bars overlap: leased time at the back, then time for jobs, then time of measuring.
function drawUse() {
  const half = used.width_sec / 2, end = used.at.at(-1) + used.width_sec;
  const thin = use.clientWidth / used.at.length < 8;  // an outline would cover thin bars
  const all = used.work.map((work, i) => Math.min(work + used.calibration[i], 100));
  const bars = uPlot.paths.bars({ size: [0.86, 60] });
  const bar = (label, colour, values, stroke) => ({
    label, paths: bars, points: { show: false }, width: stroke && !thin ? 1 : 0, fill: css(colour), stroke: css(stroke || colour), value: (_, _v, _s, i) => i == null ? NONE : percent(values[i] / 100),
  });
  put(use, TALL, {
    scales: { x: { time: true, range: [used.at[0], end] }, y: { range: [0, 100] } },
    axes: axes((v) => `${v} %`, use),
    series: [
      { label: "from", value: (_, v) => when(v == null ? null : v - half) },
      bar("calibrating", "--base-a", used.calibration),
      bar("for a job", "--use-work", used.work, "--curve"),
      bar("measuring", "--curve", used.measured),
    ],
  }, [used.at.map((at) => at + half), all, used.work, used.measured]);
}

const LINES = [
  ["temperature", "hottest", "--base-a", temperature],
  ["load", "load", "--curve-time", (v) => `${+v.toFixed(2)}`],
  ["clock", "clock", "--base-b", clock],
];

function drawVitals() {
  let any = false;
  for (const [name, label, colour, text] of LINES) {
    const figure = document.getElementById(name), host = figure.lastElementChild;
    const known = used[name].filter((v) => v != null);
    figure.hidden = !known.length;
    if (!known.length) continue;
    any = true;
    const half = used.width_sec / 2;
    put(host, LOW, {
      scales: { x: { time: true, range: [used.at[0], used.at.at(-1) + used.width_sec] }, y: level(name, known) },
      axes: axes(text, host),
      series: [
        { label: "from", value: (_, v) => when(v == null ? null : v - half) },
        { label, stroke: css(colour), width: 2, points: { show: known.length < 30, size: 5, fill: css(colour) }, value: (_, v) => v == null ? NONE : text(v) },
      ],
    }, [used.at.map((at) => at + half), used[name]]);
  }
  document.getElementById("no-vitals").hidden = any;
}

// A load's axis begins at zero. Those of temperatures and clocks show changes, but are wide enough to hide noise.
function level(name, known) {
  const low = Math.min(...known), high = Math.max(...known);
  if (name === "load") return { range: [0, Math.max(high * 1.15, 1)] };
  const least = name === "temperature" ? 10 : 0.2, room = Math.max((least - (high - low)) / 2, (high - low) * 0.12);
  return { range: [Math.max(low - room, 0), high + room] };
}

function marks(u, seriesAt) {
  const { ctx } = u, size = 4 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = css("--bad");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  u.data[0].forEach((x, i) => {
    const value = u.data[seriesAt][i];
    if (value == null) return;
    const at = u.valToPos(x, "x", true), y = u.valToPos(value, "y", true);
    ctx.moveTo(at - size, y - size);
    ctx.lineTo(at + size, y + size);
    ctx.moveTo(at - size, y + size);
    ctx.lineTo(at + size, y - size);
  });
  ctx.stroke();
  ctx.restore();
  return null;
}

function drawCalibrations() {
  if (!calibrated.at.length) return say(calibration, "There are no calibrations yet.");
  calibration.classList.remove("soft");
  const c = calibrated;
  const values = [...c.ms, ...c.most, ...c.least].filter((v) => v != null);
  const scale = values.length ? scaleOf(values) : { range: [0, 1] };
  const top = values.length ? Math.max(...values) : 1;
  // A calibration that did not finish has no time: its mark is at the upper limit.
  const failed = c.outcome.map((outcome, i) => outcome === "clean" ? null : c.ms[i] ?? c.most[i] ?? top);
  const line = (label, colour, dash) => ({ label, stroke: css(colour), width: 1.5, dash, points: { show: c.at.length === 1, size: 4 }, spanGaps: true, value: (_, v) => fmt(v) });
  const only = c.at.length === 1 ? { range: [c.at[0] - 1800, c.at[0] + 1800] } : {};
  put(calibration, TALL, {
    scales: { x: { time: true, ...only }, y: scale },
    axes: axes(fmt, calibration),
    series: [
      { label: "at", value: (_, v) => when(v) },
      { label: "time", stroke: css("--curve"), width: 2, points: { show: c.at.length < 80, size: 5, fill: css("--curve") }, value: (_, v) => fmt(v) },
      line("reference", "--curve-time", [10, 5]),
      line("at most", "--base-b", [3, 4]),
      line("at least", "--base-b", [3, 4]),
      { label: "failed", stroke: css("--bad"), paths: marks, points: { show: false }, value: (_, v, _s, i) => v == null || i == null ? NONE : c.outcome[i] },
    ],
  }, [c.at, c.ms, c.reference, c.most, c.least, failed]);
}

async function get(url) {
  const answer = await fetch(url).catch(() => null);
  return answer && answer.ok ? answer.json() : null;
}

let loading = false, again = false;

async function load() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  const [newUse, newTimes] = await Promise.all([get(use.dataset.url), calibration ? get(calibration.dataset.url) : null]);
  // Not while the pointer is over a chart: drawing resets the legend and the zoom.
  const busy = document.querySelector(".chart:hover") !== null && used !== null;
  if (newUse && !busy) {
    used = newUse;
    drawUse();
    drawVitals();
  }
  again ||= busy;
  if (newTimes && !busy && JSON.stringify(newTimes) !== JSON.stringify(calibrated)) {
    calibrated = newTimes;
    drawCalibrations();
  }
  setTimeout(() => {
    loading = false;
    if (again) {
      again = false;
      load();
    }
  }, EVERY_MS);
}

follow(use, () => plots.get(use), () => used && drawUse(), TALL);
for (const [name] of LINES) {
  const host = document.getElementById(name).lastElementChild;
  follow(host, () => plots.get(host), () => used && drawVitals(), LOW);
}
if (calibration) follow(calibration, () => plots.get(calibration), () => calibrated && drawCalibrations(), TALL);
document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.elt.id === "head") load(); });
load();
