// What all charts share.
import { latency, mark } from "./units.js";

export { latency as fmt };
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const HEIGHT = matchMedia("(max-width: 600px)").matches ? 240 : 300;

// What spans more than a factor of ten is read better by its logarithm.
export function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  return high > 10 * low
    ? { distr: 3, range: (_, from, to) => [from / 1.3, to * (to / from) ** 0.12] }
    : { range: (_, from, to) => [Math.max(from - 0.12 * (to - from || to), 0), to + 0.12 * (to - from || to)] };
}

// On a logarithmic scale: lines at 1, 2 and 5 of every power of ten.
function splits(u, _axis, low, high, step) {
  const found = [];
  if (u.scales.y.distr !== 3) {
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
    return found;
  }
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const one of [1, 2, 5]) if (one * 10 ** power >= low && one * 10 ** power <= high) found.push(one * 10 ** power);
  }
  return found;
}

// Label what is far enough apart to be read.
function sparse(u, ticks) {
  let last = Infinity;
  return ticks.map((tick) => {
    const at = u.valToPos(tick, "y");
    if (Math.abs(last - at) < 26) return null;
    last = at;
    return tick;
  });
}

const WHOLE = [1, 2, 5].flatMap((one) => [...Array(9).keys()].map((power) => one * 10 ** power)).sort((a, b) => a - b);
const HOUR = 3600;
const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * HOUR)];

// Across: a whole number of trials, or time.
export function axes({ time = false } = {}) {
  const ink = css("--ink-soft"), line = css("--line");
  const common = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const across = time
    ? { incrs: TIMES, space: 85, values: (_u, ticks, _axis, _space, apart) => ticks.map((v) => mark(v, apart)) }
    : { incrs: WHOLE, values: (_, ticks) => ticks.map((v) => v.toLocaleString()) };
  return [
    { ...common, ...across },
    { ...common, size: 70, splits, values: (_, ticks) => ticks.map((v) => v == null ? "" : latency(v)), filter: sparse },
  ];
}

// The legend tells of where the pointer is; of the newest point where there is none.
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
