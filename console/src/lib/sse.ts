import { base } from "./base";
import { Failure, failureOf } from "./call";

export interface ServerEvent {
  id: string;
  kind: string;
  data: string;
}

// silence is how long a stream may be silent before it counts as broken. The gateway sends a
// comment at least every 15 s.
const silence = 40_000;

// readStream reads server-sent events until the stream ends or signal aborts it. In contrast
// to EventSource, it reports the error of a refused request, and every kind of event.
export async function readStream(
  url: string,
  lastId: string,
  signal: AbortSignal,
  opened: () => void,
  receive: (e: ServerEvent) => void,
): Promise<void> {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), silence);
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const answer = await fetch(base + url, { headers, cache: "no-store", signal: AbortSignal.any([signal, quiet.signal]) });
    if (!answer.ok || !answer.body) throw await failureOf(answer);
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), silence);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        const event = parse(block);
        if (event) receive(event);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function parse(block: string): ServerEvent | null {
  const event: ServerEvent = { id: "", kind: "message", data: "" };
  let some = false;
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at <= 0) continue; // a comment
    const value = line.slice(at + 2);
    switch (line.slice(0, at)) {
      case "id":
        event.id = value;
        break;
      case "event":
        event.kind = value;
        break;
      case "data":
        event.data += (some ? "\n" : "") + value;
        some = true;
    }
  }
  return some ? event : null;
}

// follow reads a stream again and again, each time from the last event, until signal aborts
// it or the gateway refuses it. It pauses for 0.25 s to 5 s between attempts.
export async function follow(
  url: string,
  signal: AbortSignal,
  on: { open?: () => void; event: (e: ServerEvent) => void; broken?: (err: Failure | null) => void },
  lastId = "",
): Promise<void> {
  let pause = 250;
  while (!signal.aborted) {
    let failure: Failure | null = null;
    try {
      await readStream(url, lastId, signal, () => on.open?.(), (e) => {
        pause = 250;
        if (e.id) lastId = e.id;
        on.event(e);
      });
    } catch (err) {
      failure = err instanceof Failure ? err : null;
    }
    if (signal.aborted) return;
    on.broken?.(failure);
    if (failure && failure.http >= 400 && failure.http < 500 && failure.http !== 429) return;
    await new Promise((resolve) => setTimeout(resolve, pause * (0.75 + Math.random() / 2)));
    pause = Math.min(pause * 2, 5000);
  }
}
