import { useEffect, useRef, useState } from "preact/hooks";
import { base } from "../lib/base";
import { useSession } from "../lib/session";
import { quote } from "../lib/text";
import type { Caller } from "../lib/types";
import { announce } from "./notices";

// Command is a call of the API and the command of berth that does the same.
export interface Command {
  what: string;
  method?: string;
  path: string;
  body?: unknown;
  stream?: boolean;
  berth: string[];
}

// credentials returns the options with which a command has the identity of the page. A browser
// proves it with a session or a certificate.
function credentials({ identity, session }: Caller): { curl: string; berth: string } {
  const encrypted = location.protocol === "https:";
  if (!encrypted && !identity) return { curl: "", berth: "" };
  if (identity && !session) {
    return { curl: " --cert client.crt --key client.key", berth: " --tls-cert client.crt --tls-key client.key" };
  }
  return {
    curl: ` -H "Authorization: Bearer $(cat berth.token)"`,
    berth: encrypted ? " --token-file berth.token" : "",
  };
}

export function curlOf(c: Command, caller: Caller): string {
  const method = c.method && c.method !== "GET" ? ` -X ${c.method}` : "";
  const body = c.body === undefined ? "" : ` -H 'Content-Type: application/json' -d ${quote(JSON.stringify(c.body))}`;
  const stream = c.stream ? " -N -H 'Accept: text/event-stream'" : "";
  return `curl -sS${stream}${method}${credentials(caller).curl}${body} ${quote(location.origin + base + c.path)}`;
}

export function berthOf(c: Command, caller: Caller): string {
  const gateway = ` --gateway ${quote(location.origin + base)}`;
  const at = c.berth.indexOf("--");
  const words = c.berth.map(quote);
  const options = gateway + credentials(caller).berth;
  if (at < 0) return `berth ${words.join(" ")}${options}`;
  return `berth ${words.slice(0, at).join(" ")}${options} ${words.slice(at).join(" ")}`;
}

async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context there is no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area); // the page behind a dialog is inert
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`Copied the ${what} command`);
}

// CommandText shows the two forms of a command, each with a button that copies it.
export function CommandText({ of }: { of: Command }) {
  const { caller } = useSession();
  return (
    <div class="command">
      <p>{of.what}</p>
      {(["curl", "berth"] as const).map((form) => {
        const text = form === "curl" ? curlOf(of, caller) : berthOf(of, caller);
        return (
          <div class="command-line" key={form}>
            <code tabIndex={0}>{text}</code>
            <button type="button" aria-label={`Copy ${form} command: ${of.what}`} onClick={() => void copy(text, form)}>
              Copy
            </button>
          </div>
        );
      })}
    </div>
  );
}

// Commands is a button that shows the commands that print what the view shows.
export function Commands({ of }: { of: Command[] }) {
  const [open, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  return (
    <>
      <button type="button" class="quiet" onClick={() => setOpen(true)}>
        Copy as command
      </button>
      {open && (
        <dialog ref={dialog} onClose={() => setOpen(false)} aria-labelledby="commands-title">
          <h2 id="commands-title">Commands for this view</h2>
          {of.map((c) => (
            <CommandText key={c.what} of={c} />
          ))}
          <form method="dialog" class="buttons">
            <button>Close</button>
          </form>
        </dialog>
      )}
    </>
  );
}
