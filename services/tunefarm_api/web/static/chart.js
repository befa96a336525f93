// What all charts share.
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const fmt = (ms) => ms == null ? "–" : ms >= 1000 ? `${(ms / 1000).toPrecision(3)} s` : ms >= 1 ? `${ms.toPrecision(3)} ms` : `${(ms * 1000).toPrecision(3)} µs`;
export const HEIGHT = 300;

// What spans more than a factor of ten is read better by its logarithm.
export function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  return high > 10 * low
    ? { distr: 3, range: (_, from, to) => [from / 1.3, to * 1.3] }
    : { range: (_, from, to) => [Math.max(from - 0.12 * (to - from || to), 0), to + 0.08 * (to - from || to)] };
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

export function axes(acrossText, { whole = false } = {}) {
  const ink = css("--ink-soft"), line = css("--line");
  const common = { stroke: ink, grid: { stroke: line }, ticks: { stroke: line } };
  return [
    { ...common, ...(whole ? { incrs: WHOLE } : {}), values: (_, ticks) => ticks.map(acrossText) },
    { ...common, size: 70, splits, values: (_, ticks) => ticks.map((v) => v == null ? "" : fmt(v)), filter: sparse },
  ];
}

// Draws anew when the reader changes between light and dark, and fits the width.
export function follow(host, plot, redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => plot() && plot().setSize({ width: host.clientWidth, height: HEIGHT })).observe(host);
}
