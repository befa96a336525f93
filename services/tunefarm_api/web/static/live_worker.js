// A stream of server-sent events, shared by all tabs of this browser. It ends with the last tab.
import { openStream } from "./live_stream.js";

const ports = new Set();
let close = null;
let state = null; // what a new tab is told at once

onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = () => {
    ports.delete(port);
    if (ports.size) return;
    close();
    close = state = null;
  };
  if (!close) close = openStream(tell);
  else if (state) port.postMessage(state);
};

function tell(message) {
  if (message.kind !== "changed") state = message;
  for (const port of ports) port.postMessage(message);
}
