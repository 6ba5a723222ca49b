import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, Failure, requestId } from "../lib/call";
import { now } from "../lib/live";
import { useMay } from "../lib/session";
import { Problem } from "./basics";
import { Command, CommandText } from "./commands";
import { announce } from "./notices";

export interface Field {
  name: string;
  label: string;
  hint?: string;
  value?: string;
}

export interface ActionProps {
  // label is the text of the button, and title the question in the dialog.
  label: string;
  title: string;
  // method is the method that the action calls, such as "Leaders/Resign".
  method: string;
  // effect says what happens, before the operator confirms it.
  effect: ComponentChildren;
  danger?: boolean;
  fields?: Field[];
  // command returns the call for the values of the fields.
  command: (values: Record<string, string>) => Command;
  // done describes the answer.
  done: (answer: any) => string;
}

// Action is a button that calls a method after a confirmation. Without the role it is
// disabled, and says so.
export function Action(props: ActionProps) {
  const allowed = useMay(props.method);
  const [open, setOpen] = useState(false);
  const missing = allowed ? undefined : `Your role may not call ${props.method}`;
  return (
    <>
      <button
        type="button"
        class={props.danger ? "danger" : undefined}
        aria-disabled={!allowed}
        title={missing}
        aria-label={missing ? `${props.label}. ${missing}` : props.label}
        onClick={() => allowed && setOpen(true)}
      >
        {props.label}
      </button>
      {open && <Confirm {...props} close={() => setOpen(false)} />}
    </>
  );
}

function Confirm({ close, ...current }: ActionProps & { close: () => void }) {
  // The dialog acts on what the operator has read, not on what has changed since then.
  const [props] = useState(current);
  const dialog = useRef<HTMLDialogElement>(null);
  const [values, setValues] = useState<Record<string, string>>(() =>
    Object.fromEntries((props.fields ?? []).map((f) => [f.name, f.value ?? ""])),
  );
  // A repeat after an error has the same ID, so it acts once.
  const [id] = useState(requestId);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Failure>();
  useEffect(() => dialog.current?.showModal(), []);
  // A repeat must be the same call, so its times are computed once.
  const { command, invalid } = useMemo((): { command: Command | null; invalid: string } => {
    try {
      return { command: props.command({ ...values, requestId: id }), invalid: "" };
    } catch (err) {
      return { command: null, invalid: (err as Error).message };
    }
  }, [values]);
  const confirm = async (e: Event) => {
    e.preventDefault();
    if (!command) return;
    setBusy(true);
    setError(undefined);
    try {
      const answer = await call(command.method ?? "POST", command.path, command.body);
      announce(props.done(answer));
      dialog.current?.close();
    } catch (err) {
      setError(err as Failure);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="action-title">
      <form onSubmit={(e) => void confirm(e)}>
        <h2 id="action-title">{props.title}</h2>
        <div class="effect">{props.effect}</div>
        {props.fields?.map((f) => (
          <label key={f.name} class="field">
            {f.label}
            <input
              name={f.name}
              value={values[f.name]}
              autocomplete="off"
              onInput={(e) => setValues({ ...values, [f.name]: (e.target as HTMLInputElement).value })}
            />
            {f.hint && <small>{f.hint}</small>}
          </label>
        ))}
        {invalid && <p class="problem">{invalid}</p>}
        <Problem error={error} />
        {command && (
          <details>
            <summary>As a command</summary>
            <CommandText of={command} />
          </details>
        )}
        <div class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Back
          </button>
          <button type="submit" class={props.danger ? "danger primary" : "primary"} disabled={busy || !command}>
            {props.label}
          </button>
        </div>
      </form>
    </dialog>
  );
}

// expiry turns the text of a field such as "2h" into an expire time. An empty text is none.
export function expiry(text: string): string | undefined {
  if (!text.trim()) return undefined;
  const parts = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?$/.exec(text.trim());
  const minutes = parts ? Number(parts[1] ?? 0) * 1440 + Number(parts[2] ?? 0) * 60 + Number(parts[3] ?? 0) : 0;
  if (minutes <= 0) throw new Error("The time must be like 30m, 2h or 1d.");
  return new Date(now() + minutes * 60_000).toISOString();
}
