// Quantities as people read them, as `tunefarm_text/quantities.py` writes them on the server. A test compares the two.
export const NONE = "–";

const twoDigits = (value) => String(Math.floor(value)).padStart(2, "0");

export function duration(sec) {
  if (sec == null) return NONE;
  if (sec < 59.5) return `${sec >= 0.05 && sec < 9.95 ? sec.toFixed(1) : sec.toFixed(0)} s`;
  const rounded = Math.round(sec), minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} min ${twoDigits(rounded % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${twoDigits(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function latency(ms) {
  if (ms == null) return NONE;
  const units = [[1e-3, "s"], [1, "ms"], [1e3, "µs"], [1e6, "ns"]];
  const [factor, unit] = units.find(([factor]) => ms * factor >= 1) ?? units.at(-1);
  const value = ms * factor;
  return `${value < 999.5 ? +value.toPrecision(3) : value.toFixed(0)} ${unit}`;
}

export function percent(share) {
  if (share == null) return NONE;
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return `${(share * 100).toFixed(share >= 0.0995 ? 0 : 1)} %`;
}

export function size(bytes) {
  if (bytes == null) return NONE;
  if (bytes < 1e3) return `${bytes} B`;
  const [factor, unit] = bytes < 1e6 ? [1e3, "kB"] : bytes < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(bytes / factor).toFixed(1)} ${unit}`;
}

export const temperature = (celsius) => celsius == null ? NONE : `${celsius.toFixed(0)} °C`;

export const clock = (ghz) => ghz == null ? NONE : `${ghz.toFixed(2)} GHz`;

// A mark on an axis of time: short, and never the same for two neighbours.
export function mark(sec, apart) {
  if (!sec) return "0";
  if (sec < 60) return `${+sec.toFixed(1)} s`;
  if (apart < 60) return `${Math.floor(sec / 60)}:${twoDigits(sec % 60)} min`;
  if (sec < 3600) return `${sec / 60} min`;
  if (apart < 3600) return `${Math.floor(sec / 3600)}:${twoDigits((sec % 3600) / 60)} h`;
  return `${sec / 3600} h`;
}
