import { useLocation } from "preact-iso";
import { pages, query } from "../lib/call";
import { useLive } from "../lib/live";
import { amounts, constraintsText, number, plural } from "../lib/text";
import type { Sku, Usage as UsageAnswer } from "../lib/types";
import { Answer, Card, Empty, Page, Table, Until } from "../parts/basics";
import { Commands } from "../parts/commands";
import { CapacityBar } from "./overview";

export function Usage() {
  const live = useLive<UsageAnswer>("/v1/usage");
  const catalog = useLive<{ skus: Sku[] }>("/v1/skus");
  const only = useLocation().query.sku;
  const rule = (name: string) => catalog.data?.skus.find((s) => s.name === name)?.scale;
  return (
    <Page
      title="Usage and scale advice"
      tools={
        <Commands
          of={[
            { what: "Use of each SKU, and the wanted size", path: "/v1/usage", berth: ["get", "usage", "-o", "wide"] },
            { what: "The catalog with the scale rules", path: "/v1/skus", berth: ["get", "skus"] },
          ]}
        />
      }
    >
      <Answer of={live} what="usage">
        {(u) => (
          <>
            {only !== undefined && <p class="lead">Only the SKU {only} is shown. <a href="/usage">Show all</a></p>}
            {only !== undefined && !u.skus.some((s) => s.sku === only) && (
              <Empty>{catalog.data?.skus.some((s) => s.name === only) ? `No executor and no demand has the SKU ${only} of the catalog.` : `There is no SKU ${only}.`}</Empty>
            )}
            {u.skus.length === 0 && <Empty>No executor is registered, and nothing is pending.</Empty>}
            <div class="columns">
              {u.skus.filter((s) => only === undefined || s.sku === only).map((s) => {
                const change = (s.wantedSize ?? 0) - (s.total ?? 0);
                const scale = rule(s.sku);
                return (
                  <Card key={s.sku} title={s.sku || "(no SKU)"} aside={<a href={`/executors?sku=${encodeURIComponent(s.sku)}`}>{plural(s.total ?? 0, "executor")}</a>}>
                    <p class={change > 0 ? "advice up" : change < 0 ? "advice down" : "advice"}>
                      <b>{change > 0 ? `+${number(change)}` : change < 0 ? `−${number(-change)}` : "±0"}</b>
                      <span>
                        wanted size {number(s.wantedSize)} <code>{s.wantedReason}</code>
                        <br />
                        {s.wantedMessage}
                      </span>
                    </p>
                    <CapacityBar of={s} />
                    <Table
                      caption={`Use of ${s.sku}`}
                      rows={[
                        ["running", s.running], ["leased", s.leased], ["idle", s.idle], ["unavailable", s.unavailable],
                        ["disabled (in one of the others)", s.disabled], ["with volumes only (in leased)", s.volumesOnly],
                      ] as [string, number | undefined][]}
                      id={([name]) => name}
                      columns={[
                        { name: "Executors", cell: ([name]) => name },
                        { name: "Number", cell: ([, n]) => number(n), number: true },
                      ]}
                    />
                    <p>
                      {s.pendingReservations
                        ? `${plural(s.pendingReservations, "reservation")} with ${plural(s.pendingWorkers ?? 0, "worker")} pending, which need ${plural(s.pendingExecutors ?? 0, "executor")}; effectively idle: ${number(s.effectiveIdle)}.`
                        : "Nothing is pending for this SKU."}
                    </p>
                    {(s.pendingBatches?.length ?? 0) > 0 && (
                      <p class="muted">
                        Batches: {s.pendingBatches!.slice(0, 8).map((b) => `${number(b.count)} × ${plural(b.workers, "worker")}`).join(", ")}
                        {s.pendingBatches!.length > 8 && ", …"}
                      </p>
                    )}
                    {scale && (
                      <p class="muted">
                        Scale rule: idle {scale.minIdle ?? 0} to {scale.maxIdle ?? "∞"}, size {scale.minSize ?? 0} to {scale.maxSize ?? "∞"}
                        {scale.holdUntil && Date.parse(scale.holdUntil) > Date.now() && <>, held: ends <Until time={scale.holdUntil} /></>}
                      </p>
                    )}
                  </Card>
                );
              })}
            </div>
            <Card title="Demand that fits no SKU" wide>
              {(u.unmapped ?? []).length === 0 ? (
                <Empty>None.</Empty>
              ) : (
                <Table
                  caption="Demand that fits no SKU"
                  rows={u.unmapped!}
                  id={(d) => d.group}
                  columns={[
                    { name: "Queue", cell: (d) => <a href={pages.queue(d.group)}>{d.group}</a> },
                    { name: "Reservations", cell: (d) => number(d.reservations), number: true },
                    { name: "Workers", cell: (d) => number(d.workers), number: true },
                    { name: "Needs", cell: (d) => constraintsText(d.constraints), wide: true },
                    { name: "Reason", cell: (d) => d.reason && <a href={pages.search(d.reason)}>{d.reason}</a> },
                    { name: "Why", cell: (d) => d.message, wide: true },
                  ]}
                />
              )}
            </Card>
            <Card title="Catalog" wide>
              {(catalog.data?.skus ?? []).length === 0 ? (
                <Empty>No SKU is in the catalog, so there are no scale rules.</Empty>
              ) : (
                <Table
                  caption="SKUs of the catalog"
                  rows={catalog.data!.skus}
                  id={(s) => s.name}
                  columns={[
                    { name: "SKU", cell: (s) => <a href={query("/usage", { sku: s.name })}>{s.name}</a> },
                    { name: "Resources", cell: (s) => amounts(s.resources), wide: true },
                    { name: "Attributes", cell: (s) => Object.entries(s.attributes ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") },
                  ]}
                />
              )}
            </Card>
          </>
        )}
      </Answer>
    </Page>
  );
}
