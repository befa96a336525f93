// Sends a file in parts, and continues after an interruption (tus 1.0). It uses XMLHttpRequest, since fetch reports no progress.
// The server keeps how far an upload is. The browser keeps only which upload a file belongs to, to continue after a reload.
const PART_BYTES = 32 * 2 ** 20; // a proxy may buffer a part until it is complete
const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15000, 15000, 30000, 30000, 30000, 30000, 30000];
const AGAIN = new Set([408, 409, 423, 429, 500, 502, 503, 504]);
const KEPT_MS = 48 * 3600 * 1000;
const PREFIX = "tunefarm-upload ";

class Broken extends Error {}
class Stopped extends Error {}
export class Refused extends Error {}

export class Resumable {
  // `tell` has: progress(sent), waiting(milliseconds, why), paused(why), done(model id), failed(why).
  constructor(url, file, bindings, tell) {
    Object.assign(this, { url, file, bindings, tell });
    this.memory = new Memory(`${PREFIX}${url} ${file.name} ${file.size} ${file.lastModified} ${bindings.shapes}${bindings.values && ` ${bindings.values}`}`);
    this.at = this.memory.read();
    this.reached = 0;
    this.request = null;
    this.wake = null;
    this.stopped = false;
  }

  // Runs until the upload is complete, refused, stopped, or makes no progress for long. Then `start` resumes it.
  async start() {
    let failures = 0;
    while (!this.stopped) {
      const before = this.reached;
      try {
        const model = await this.attempt();
        this.memory.forget();
        this.tell.done(model);
        return;
      } catch (error) {
        if (error instanceof Stopped || this.stopped) return;
        if (error instanceof Refused) {
          this.memory.forget();
          this.tell.failed(error.message);
          return;
        }
        if (!(error instanceof Broken)) throw error;
        failures = this.reached > before ? 0 : failures + 1;
        if (error.lasting || failures >= WAITS_MS.length) {
          this.tell.paused(error.message);
          return;
        }
        await this.pause(WAITS_MS[failures], error.message);
      }
    }
  }

  // Ends a pause between attempts early.
  hurry() { if (this.wake) this.wake(); }

  // Ends the upload for good; the server deletes the sent parts.
  async stop() {
    this.stopped = true;
    if (this.request) this.request.abort();
    this.hurry();
    this.memory.forget();
    if (this.at) await this.call("DELETE", this.at).catch(() => {}); // else it expires
  }

  async attempt() {
    let offset = this.at ? await this.ask() : null;
    if (offset === null) offset = await this.begin();
    while (offset < this.file.size) {
      this.saw(offset);
      const part = this.file.slice(offset, offset + PART_BYTES);
      const answer = await this.call("PATCH", this.at, {
        "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(offset),
      }, part, offset);
      if (answer.status === 404) { // it was stopped, or has expired
        this.at = null;
        throw new Broken("the upload has expired on the server");
      }
      expect(answer, 204);
      offset = Number(answer.header("Upload-Offset"));
    }
    this.saw(offset);
    const end = expect(await this.call("GET", this.at), 200).json();
    return end.model_id;
  }

  // Returns the offset to continue at; null if there is no upload to continue.
  async ask() {
    const answer = await this.call("GET", this.at);
    if (answer.status === 404) return null;
    const upload = expect(answer, 200).json();
    return upload.state === "failed" ? null : upload.offset_bytes;
  }

  async begin() {
    const facts = { filename: this.file.name, ...this.bindings };
    const metadata = Object.entries(facts).filter(([, text]) => text).map(([name, text]) => `${name} ${base64(text)}`);
    const answer = expect(await this.call("POST", this.url, {
      "Upload-Length": String(this.file.size), "Upload-Metadata": metadata.join(","),
    }), 201);
    this.at = answer.header("Location");
    this.memory.write(this.at);
    return 0;
  }

  saw(sent) {
    this.reached = Math.max(this.reached, sent);
    this.tell.progress(sent);
  }

  call(method, url, headers = {}, body = null, offset = 0) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      this.request = request;
      request.open(method, url);
      request.setRequestHeader("Tus-Resumable", "1.0.0");
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      if (body) request.upload.onprogress = (event) => this.tell.progress(offset + event.loaded);
      request.onerror = () => reject(new Broken("the connection broke"));
      request.onabort = () => reject(new Stopped());
      request.onload = () => resolve({
        status: request.status,
        header: (name) => request.getResponseHeader(name),
        json: () => { try { return JSON.parse(request.responseText); } catch { return {}; } },
      });
      request.send(body);
    });
  }

  pause(milliseconds, why) {
    this.tell.waiting(milliseconds, why);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => { clearTimeout(timer); resolve(); };
    }).finally(() => { this.wake = null; });
  }
}

function expect(answer, status) {
  if (answer.status === status) return answer;
  const why = answer.json().detail || `the server answered ${answer.status}`;
  if (AGAIN.has(answer.status)) throw new Broken(why);
  if (answer.status === 507) throw Object.assign(new Broken(why), { lasting: true });
  if (answer.status === 401) throw Object.assign(new Broken("your session has ended: sign in again, then choose the same file"), { lasting: true });
  throw new Refused(why);
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

// One entry of the browser's storage. Without storage, files are sent all the same.
class Memory {
  constructor(key) { this.key = key; }

  read() {
    try {
      for (const key of Object.keys(localStorage)) {
        if (key.startsWith(PREFIX) && !(JSON.parse(localStorage.getItem(key)).at > Date.now() - KEPT_MS)) localStorage.removeItem(key);
      }
      const entry = localStorage.getItem(this.key);
      return entry && JSON.parse(entry).url;
    } catch { return null; }
  }

  write(url) { try { localStorage.setItem(this.key, JSON.stringify({ url, at: Date.now() })); } catch { /* none */ } }

  forget() { try { localStorage.removeItem(this.key); } catch { /* none */ } }
}
