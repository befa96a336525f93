// A stream of server-sent events, shared by all tabs of this browser. It ends with the last tab.
const ports = new Set();
let source = null;
let live = false;

onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = () => {
    ports.delete(port);
    if (!ports.size) close();
  };
  if (!source) open();
  else if (live) port.postMessage({ kind: "hello" });
};

function open() {
  source = new EventSource("/live");
  source.addEventListener("hello", () => { live = true; tell({ kind: "hello" }); });
  source.addEventListener("changed", (event) => tell({ kind: "changed", topics: JSON.parse(event.data) }));
  source.onerror = () => {
    live = false;
    tell({ kind: "away" });
    // After a refusal (signed out, a proxy's error) the source stays closed: open another. After a network error it reconnects.
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => { if (ports.size && !source) open(); }, 5000);
    }
  };
}

function close() {
  if (source) source.close();
  source = null;
  live = false;
}

function tell(message) {
  for (const port of ports) port.postMessage(message);
}
