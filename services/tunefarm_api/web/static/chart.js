// Axes, scales and colours of all charts.
import { latency, mark } from "./units.js";

export { latency as fmt };
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const HEIGHT = matchMedia("(max-width: 600px)").matches ? 240 : 300;

// A logarithmic scale if the values span more than a factor of ten.
export function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  return high > 10 * low
    ? { distr: 3, range: (_, from, to) => [from / 1.3, to * (to / from) ** 0.12] }
    : { range: (_, from, to) => [Math.max(from - 0.12 * (to - from || to), 0), to + 0.12 * (to - from || to)] };
}

// On a logarithmic scale: lines at 1, 2 and 5 of every power of ten.
function splits(u, _axis, low, high, step) {
  const positions = [];
  if (u.scales.y.distr !== 3) {
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) positions.push(value);
    return positions;
  }
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const value of [1, 2, 5].map((digit) => digit * 10 ** power)) if (value >= low && value <= high) positions.push(value);
  }
  return positions;
}

// Omits labels that are too close to their neighbour to be read.
function sparse(u, ticks) {
  let last = Infinity;
  return ticks.map((tick) => {
    const at = u.valToPos(tick, "y");
    if (Math.abs(last - at) < 26) return null;
    last = at;
    return tick;
  });
}

const COUNT_STEPS = [1, 2, 5].flatMap((digit) => [...Array(9).keys()].map((power) => digit * 10 ** power)).sort((a, b) => a - b);
const HOUR = 3600;
const TIME_STEPS_SEC = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * HOUR)];

// Across: a whole number of trials, or time.
export function axes({ time = false } = {}) {
  const ink = css("--ink-soft"), line = css("--line");
  const common = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const across = time
    ? { incrs: TIME_STEPS_SEC, space: 85, values: (_u, ticks, _axis, _space, apart) => ticks.map((v) => mark(v, apart)) }
    : { incrs: COUNT_STEPS, values: (_, ticks) => ticks.map((v) => v.toLocaleString()) };
  return [
    { ...common, ...across },
    { ...common, size: 70, splits, values: (_, ticks) => ticks.map((v) => v == null ? "" : latency(v)), filter: sparse },
  ];
}

// Without a pointer over the chart, the legend shows the newest point.
export const atRest = {
  setLegend: [(u) => {
    const last = u.data[0].length - 1;
    if (u.legend.idx == null && last >= 0) u.setLegend({ idx: last }, false);
  }],
};

// Draws anew when the reader changes between light and dark, and fits the width.
export function follow(host, plot, redraw, height = HEIGHT) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => plot() && plot().setSize({ width: host.clientWidth, height })).observe(host);
}
