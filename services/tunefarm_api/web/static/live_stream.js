// The farm's stream of server-sent events. It is opened again after it broke off, and after a refusal: then once the server's
// Retry-After has passed, which EventSource neither waits for nor tells.
const BROKEN_MS = 1000;
const REFUSED_SEC = 5;

// Calls `tell` with every event, and with { kind: "away", why, detail } while there is no stream. Returns what closes it.
export function openStream(tell) {
  const closing = new AbortController();
  run(tell, closing.signal);
  return () => closing.abort();
}

async function run(tell, signal) {
  while (!signal.aborted) {
    let away = { kind: "away", why: "reconnecting", detail: "" }, waitMs = BROKEN_MS;
    try {
      const answer = await fetch("/live", { headers: { Accept: "text/event-stream" }, cache: "no-store", signal });
      if (answer.ok && answer.headers.get("Content-Type")?.startsWith("text/event-stream")) {
        await read(answer.body, tell);
      } else {
        const sec = Number(answer.headers.get("Retry-After")) || REFUSED_SEC;
        if (answer.status === 429) away.why = `too many requests, trying again in ${sec} s`;
        waitMs = 1000 * sec;
        away.detail = (await answer.json()).detail ?? "";
      }
    } catch { /* the network, or an answer that is no problem document */ }
    if (signal.aborted) return;
    tell(away);
    await new Promise((resume) => { setTimeout(resume, waitMs); });
  }
}

async function read(body, tell) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? [];
      if (kind) tell({ kind, topics: JSON.parse(data) });
    }
  }
}
