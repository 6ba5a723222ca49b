import { useLocation } from "preact-iso";
import { query } from "../lib/call";
import { useLive } from "../lib/live";
import { plural } from "../lib/text";
import type { Finding } from "../lib/types";
import { Ago, Answer, Card, Empty, Page, sinceOf, Table } from "../parts/basics";
import { Commands } from "../parts/commands";
import { FindingObject } from "./overview";

export function Findings() {
  const { query: q, path: at, route } = useLocation();
  const live = useLive<{ findings: Finding[] }>("/v1/findings");
  const all = live.data?.findings ?? [];
  const kinds = [...new Set([...all.map((f) => f.kind), q.kind ?? ""])].filter(Boolean).sort();
  const list = all.filter((f) => !q.kind || f.kind === q.kind);
  return (
    <Page title="Findings" tools={<Commands of={[{ what: "Findings", path: "/v1/findings", berth: ["get", "findings"] }]} />}>
      <form class="filters" role="search" aria-label="Filter findings" onSubmit={(e) => e.preventDefault()}>
        <label>
          Kind
          <select value={q.kind ?? ""} onChange={(e) => route(query(at, { ...q, kind: (e.target as HTMLSelectElement).value || undefined }), true)}>
            <option value="">all</option>
            {kinds.map((k) => <option key={k} value={k} selected={k === q.kind}>{k}</option>)}
          </select>
        </label>
        <p class="count">{live.data && plural(list.length, "finding")}</p>
      </form>
      <Card title="Findings">
        <Answer of={live} what="findings">
          {() =>
            list.length === 0 ? (
              <Empty>{q.kind ? `No service reports ${q.kind}.` : "No service reports a problem."}</Empty>
            ) : (
              <Table
                caption="Findings"
                rows={list}
                id={(f) => f.kind + f.object + f.service}
                columns={[
                  { name: "Kind", cell: (f) => f.kind },
                  { name: "Object", cell: (f) => <FindingObject of={f} />, by: (f) => f.object },
                  { name: "Since", cell: (f) => <Ago time={f.since} />, by: (f) => sinceOf(f.since) },
                  { name: "Service", cell: (f) => f.service },
                  { name: "What", cell: (f) => f.message, wide: true },
                  { name: "What to do", cell: (f) => f.action, wide: true },
                ]}
              />
            )
          }
        </Answer>
      </Card>
    </Page>
  );
}
