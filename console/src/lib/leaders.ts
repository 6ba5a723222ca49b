import { useEffect, useState } from "preact/hooks";
import { useLive } from "./live";
import { noLeader } from "./text";
import type { Leaders } from "./types";

// Change is a change of a leader that this page has seen. Without a leader, to is empty. The texts
// fromText and toText are never empty.
export interface Change {
  service: string;
  fromText: string;
  to: string;
  toText: string;
  term: string;
  at: number;
}

let changes: Change[] = [];
const known = new Map<string, { term: string; text: string }>();

// compare notes the changes between two answers about leaders. A moment without a leader is a
// change as well: the operator sees how long it lasts, and whether any replica answers.
function compare(answer: Leaders): Change[] {
  const found: Change[] = [];
  for (const s of answer.services) {
    const before = known.get(s.service);
    const leader = s.leader ?? "";
    const term = s.term ?? "0";
    const text = leader || noLeader(s);
    if (before && (before.text !== text || before.term !== term)) {
      found.push({ service: s.service, fromText: before.text, to: leader, toText: text, term, at: Date.parse(answer.now) });
    }
    known.set(s.service, { term, text });
  }
  return found;
}

// useLeaders follows the leaders, and collects their changes while the page is open.
export function useLeaders(follow: boolean, changed: (c: Change) => void) {
  const live = useLive<Leaders>(follow ? "/v1/leaders" : null);
  useEffect(() => {
    if (!live.data) return;
    const found = compare(live.data);
    if (found.length) changes = [...found.reverse(), ...changes].slice(0, 50);
    found.forEach(changed);
  }, [live.data]);
  return live;
}

// useChanges returns the changes that the page has seen, the newest first.
export function useChanges(): Change[] {
  const [list, set] = useState(changes);
  const live = useLive<Leaders>("/v1/leaders");
  useEffect(() => set(changes), [live.data]);
  return list;
}
