import { base } from "./base";
import type { Caller, Status } from "./types";

// Failure is an error answer of the gateway, or a request without an answer (code 0).
export class Failure extends Error {
  constructor(
    readonly http: number,
    readonly status: Status,
  ) {
    super(status.message);
  }

  get reason(): string {
    return this.status.details?.find((d) => d.reason)?.reason ?? "";
  }
}

// failureOf reads the error of an answer.
export async function failureOf(answer: Response): Promise<Failure> {
  const text = await answer.text().catch(() => "");
  try {
    const status = JSON.parse(text) as Status;
    if (status.message) return new Failure(answer.status, status);
  } catch {
    // A proxy between the browser and the gateway answered.
  }
  return new Failure(answer.status, { code: 0, message: `the gateway answered with HTTP status ${answer.status}` });
}

// call sends a request to the gateway that served the page.
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(base + path, {
      method,
      signal: signal ?? AbortSignal.timeout(30_000),
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new Failure(0, { code: 0, message: "the gateway does not answer" });
  }
  if (!answer.ok) throw await failureOf(answer);
  return (await answer.json()) as T;
}

// requestId returns an ID with which a repeat of a call has no further effect.
export function requestId(): string {
  return "console-" + Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// may reports whether the caller may call a method, such as "berth.v1.Leaders/Resign".
export function may(caller: Caller, method: string): boolean {
  return caller.methods?.includes("berth.v1." + method) ?? false;
}

// The paths of objects in REST and in the console.
const enc = encodeURIComponent;
export const pages = {
  reservation: (job: string, stage: string, name: string) =>
    `/jobs/${enc(job)}/stages/${enc(stage)}/reservations/${enc(name)}`,
  job: (job: string) => `/jobs/${enc(job)}`,
  executor: (id: string) => `/executors/${enc(id)}`,
  queue: (group: string) => `/queues/${enc(group)}`,
  findings: (kind?: string) => query("/findings", { kind }),
  search: (text: string) => query("/search", { q: text }),
};
export const paths = {
  reservation: (job: string, stage: string, name: string) => "/v1" + pages.reservation(job, stage, name),
  job: (job: string) => "/v1" + pages.job(job),
  executor: (id: string) => "/v1" + pages.executor(id),
};

// query returns a path with the parameters that have a value.
export function query(path: string, params: Record<string, string | number | undefined>): string {
  const set = Object.entries(params).filter(([, v]) => v !== undefined && v !== "");
  return set.length ? path + "?" + set.map(([k, v]) => enc(k) + "=" + enc(String(v))).join("&") : path;
}
