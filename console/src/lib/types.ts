// The objects of Berth's REST API, as far as the console shows them. The OpenAPI document of
// the gateway describes each field. 64-bit integers are strings.

export type Amounts = Record<string, string>;

export interface Status {
  code: number;
  message: string;
  details?: { reason?: string }[];
}

export interface Caller {
  identity?: string;
  role?: string;
  name?: string;
  trusted?: boolean;
  methods?: string[];
  cluster?: string;
  gateway?: string;
  version?: string;
  session?: boolean;
}

export interface Replica {
  id?: string;
  address: string;
  role: "LEADER" | "STANDBY" | "UNREACHABLE";
  behind?: string;
  noView?: boolean;
  error?: string;
  version?: string;
  instance?: string;
}

export interface Leadership {
  service: string;
  leader?: string;
  address?: string;
  term?: string;
  since?: string;
  renewed?: string;
  replicas?: Replica[];
}

export interface Leaders {
  services: Leadership[];
  now: string;
  notReady?: string[];
}

export interface Finding {
  kind: string;
  object: string;
  since: string;
  message?: string;
  action?: string;
  service: string;
}

export interface Constraints {
  resources?: Amounts;
  sku?: string;
  attributes?: Record<string, string>;
  pools?: string[];
  role?: string;
  sameShape?: boolean;
  spread?: { by?: string; max?: number };
  pack?: boolean;
  avoid?: string[];
  cells?: unknown;
}

export interface ReservationKey {
  job: string;
  stage: string;
  name: string;
}

export interface Group {
  id: string;
  constraints?: Constraints;
  reservations: number;
  workers: number;
  head?: ReservationKey;
  headSince?: string;
  reason?: string;
  message?: string;
}

export interface Pending {
  ready?: boolean;
  groups: Group[];
  totalGroups?: number;
  totalReservations?: number;
  totalWorkers?: number;
  nextPageToken?: string;
}

export interface PendingHistory {
  interval?: string;
  points: { time: string; groups?: number; reservations?: number; workers?: number }[];
}

export interface Reservation extends ReservationKey {
  workers?: { index: number; number: number }[];
  count?: number;
  targetSize?: number;
  constraints?: Constraints;
  priority?: Record<string, unknown>;
  task?: { command?: string; args?: string[] };
  batch?: string;
  start?: string;
  queueTimeout?: string;
  labels?: Record<string, string>;
  hold?: string;
  restart?: string;
  requeue?: string;
  notBefore?: string;
  uid: string;
  epoch: string;
  state: string;
  reason?: string;
  message?: string;
  position?: number;
  createdAt?: string;
  updatedAt?: string;
  expiresAt?: string;
  workerCounts?: Record<string, number>;
  ends?: { state: string; workers?: { first: number; last: number; number: number }[]; more?: number }[];
  requestedCount?: number;
  requestedWorkers?: { index: number }[];
  parent?: string;
  round?: number;
  rating?: number;
  avoided?: { executor: string; until: string }[];
  pools?: Record<string, { state: string; rating?: number; reason?: string; message?: string }>;
}

export interface Explanation {
  reservation: Reservation;
  group?: string;
  position?: number;
  queued?: number;
  head?: ReservationKey;
  since?: string;
  headSince?: string;
  needed?: number;
  fitting?: number;
  missing?: number;
  reason?: string;
  message?: string;
  checks?: { check: string; want?: string; have?: string; count: number; byDefault?: boolean }[];
  tried?: string;
  executorRevision?: string;
  scarcestResource?: string;
}

export interface Assignment {
  job: string;
  stage: string;
  reservation: string;
  uid: string;
  epoch: string;
  index: number;
  number: number;
  executor: string;
  state: string;
  since: string;
  attempts?: number;
  lastError?: string;
  exitCode?: number;
  reason?: string;
}

export interface Executor {
  id: string;
  address?: string;
  sku?: string;
  pool?: string;
  host?: string;
  kind?: string;
  attributes?: Record<string, string>;
  resources?: Amounts;
  used?: Amounts;
  incarnation?: string;
  state: string;
  disabled?: { requestId: string; reason?: string; expireTime?: string }[];
  draining?: boolean;
  workers?: number;
  since?: string;
  skippedUntil?: string;
  volumes?: number;
  leases?: { job: string; stage: string; reservation: string; uid: string; workers: number; held?: boolean }[];
}

export interface Volume {
  id: string;
  job: string;
  stage: string;
  index: number;
  resource: string;
  amount: string;
  executor: string;
  state: string;
  since: string;
  worker?: number;
  message?: string;
}

export interface Job {
  name: string;
  reservations?: number;
  pendingReservations?: number;
  pendingWorkers?: number;
  delayedReservations?: number;
  reservedWorkers?: number;
  runningWorkers?: number;
  stoppingWorkers?: number;
  lastActivity?: string;
}

export interface Usage {
  skus: SkuUsage[];
  unmapped?: (Omit<Group, "id" | "head" | "headSince"> & { group: string })[];
}

export interface SkuUsage {
  sku: string;
  total?: number;
  idle?: number;
  leased?: number;
  running?: number;
  unavailable?: number;
  disabled?: number;
  pendingReservations?: number;
  pendingWorkers?: number;
  pendingExecutors?: number;
  pendingBatches?: { workers: number; count: number }[];
  effectiveIdle?: number;
  wantedSize?: number;
  wantedReason?: string;
  wantedMessage?: string;
  volumesOnly?: number;
}

export interface Sku {
  name: string;
  resources?: Amounts;
  attributes?: Record<string, string>;
  scale?: {
    minIdle?: number;
    maxIdle?: number;
    minSize?: number;
    maxSize?: number;
    cooldown?: string;
    holdUntil?: string;
  };
}

export interface Tenant {
  name: string;
  prefix?: string;
  limits?: Record<string, unknown>;
  use?: Record<string, unknown>;
}

export interface AuditEntry {
  time: string;
  caller?: string;
  peer?: string;
  listener?: string;
  method?: string;
  object?: string;
  requestId?: string;
  outcome?: string;
  reason?: string;
  message?: string;
  revision?: string;
  skipped?: string;
}

export interface JobEvent {
  cursor: string;
  kind: string;
  time: string;
  job: string;
  stage?: string;
  reservation?: string;
  uid?: string;
  workers?: {
    index: number;
    number: number;
    executor?: string;
    state?: string;
    reason?: string;
    exitCode?: number;
    message?: string;
  }[];
  count?: number;
  reason?: string;
  message?: string;
}
