import { useEffect, useState } from "preact/hooks";

interface Notice {
  id: number;
  text: string;
  bad: boolean;
  about: string;
}

let notices: Notice[] = [];
let last = 0;
const listeners = new Set<() => void>();

function set(list: Notice[]): void {
  notices = list;
  listeners.forEach((notify) => notify());
}

// announce shows a notice for a few seconds. Screen readers read it. A notice ends the notice
// before it about the same thing, which is no longer true.
export function announce(text: string, bad = false, about = ""): void {
  const id = ++last;
  set([...notices.filter((n) => !about || n.about !== about).slice(-3), { id, text, bad, about }]);
  setTimeout(() => set(notices.filter((n) => n.id !== id)), bad ? 15_000 : 6_000);
}

export function Notices() {
  const [list, show] = useState(notices);
  useEffect(() => {
    const notify = () => show(notices);
    listeners.add(notify);
    return () => void listeners.delete(notify);
  }, []);
  return (
    <div class="notices" role="status" aria-live="polite">
      {list.map((n) => (
        <p key={n.id} class={n.bad ? "bad" : undefined}>{n.text}</p>
      ))}
    </div>
  );
}
