// Numbers as the server writes them (`tunefarm_text/quantities.py`), for figures that the browser draws or counts on.
const two = (value) => String(Math.floor(value)).padStart(2, "0");

export function duration(sec) {
  if (sec == null) return "–";
  if (sec < 60) return `${sec >= 0.05 && sec < 9.95 ? sec.toFixed(1) : sec.toFixed(0)} s`;
  const whole = Math.round(sec), minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${two(whole % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${two(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const three = (value) => String(+value.toPrecision(3));

export function latency(ms) {
  if (ms == null) return "–";
  if (ms >= 1e3) return `${three(ms / 1e3)} s`;
  if (ms >= 1) return `${three(ms)} ms`;
  return ms >= 1e-3 ? `${three(ms * 1e3)} µs` : `${three(ms * 1e6)} ns`;
}

// A mark on an axis of time: short, and never the same for two neighbours.
export function mark(sec, apart) {
  if (!sec) return "0";
  if (sec < 60) return `${+sec.toFixed(1)} s`;
  if (apart < 60) return `${Math.floor(sec / 60)}:${two(sec % 60)} min`;
  if (sec < 3600) return `${sec / 60} min`;
  if (apart < 3600) return `${Math.floor(sec / 3600)}:${two((sec % 3600) / 60)} h`;
  return `${sec / 3600} h`;
}
