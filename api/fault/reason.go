package fault

// Reason is a stable identifier for the reason of an error or a state. It occurs in
// ErrorInfo, in lists of pending groups, in explanations, in events and in records. A
// reason is never renamed.
type Reason string

// Domain is the domain in ErrorInfo of every reason.
const Domain = "berth"

// Reasons of errors.
const (
	ReasonInternal         Reason = "INTERNAL"
	ReasonInvalid          Reason = "INVALID"
	ReasonRequired         Reason = "REQUIRED"
	ReasonBadName          Reason = "BAD_NAME"
	ReasonTooLarge         Reason = "TOO_LARGE"
	ReasonDuplicate        Reason = "DUPLICATE"
	ReasonUnsupported      Reason = "UNSUPPORTED"
	ReasonNotFound         Reason = "NOT_FOUND"
	ReasonWorkerIDUsed     Reason = "WORKER_ID_USED"
	ReasonEpochMismatch    Reason = "EPOCH_MISMATCH"
	ReasonNotLeader        Reason = "NOT_LEADER"
	ReasonUnavailable      Reason = "UNAVAILABLE"
	ReasonOverloaded       Reason = "OVERLOADED"
	ReasonStoreFull        Reason = "STORE_FULL"
	ReasonRegistryNotReady Reason = "REGISTRY_NOT_READY"
	ReasonEventsCompacted  Reason = "EVENTS_COMPACTED"
	ReasonSlowReader       Reason = "SLOW_READER"
	ReasonLowerTerm        Reason = "LOWER_TERM"
	ReasonLowerCycle       Reason = "LOWER_CYCLE"
	ReasonLowerEpoch       Reason = "LOWER_EPOCH"
	ReasonOtherIncarnation Reason = "OTHER_INCARNATION"
	ReasonOtherAgent       Reason = "OTHER_AGENT"
	ReasonStopped          Reason = "STOPPED"
	ReasonNotAllowed       Reason = "NOT_ALLOWED"
	ReasonStartFailed      Reason = "START_FAILED"
	ReasonEtcdLeaseExpired Reason = "ETCD_LEASE_EXPIRED"
	ReasonNotQuarantined   Reason = "NOT_QUARANTINED"
	ReasonPoison           Reason = "POISON"
	ReasonPermissionDenied Reason = "PERMISSION_DENIED"
	ReasonTenantLimit      Reason = "TENANT_LIMIT"
	ReasonScalingHeld      Reason = "SCALING_HELD"
	ReasonNotHeld          Reason = "NOT_HELD"
	ReasonNotAccepted      Reason = "NOT_ACCEPTED"

	ReasonExecutorUnreachable Reason = "EXECUTOR_UNREACHABLE"
)

// Reasons why a reservation is pending or ended, and why a worker ended.
const (
	ReasonBehindHead           Reason = "BEHIND_HEAD"
	ReasonNotTried             Reason = "NOT_TRIED"
	ReasonInsufficientCapacity Reason = "INSUFFICIENT_CAPACITY"
	ReasonNoMatchingExecutor   Reason = "NO_MATCHING_EXECUTOR"
	ReasonNoMatchingSKU        Reason = "NO_MATCHING_SKU"
	ReasonCancelled            Reason = "CANCELLED"
	ReasonReplaced             Reason = "REPLACED"
	ReasonTargetLowered        Reason = "TARGET_LOWERED"
	ReasonQueueTimeout         Reason = "QUEUE_TIMEOUT"
	ReasonHoldTimeout          Reason = "HOLD_TIMEOUT"
	ReasonHoldWithdrawn        Reason = "HOLD_WITHDRAWN"
	ReasonDispatchRejected     Reason = "DISPATCH_REJECTED"
	ReasonAttemptsExhausted    Reason = "ATTEMPTS_EXHAUSTED"
	ReasonExecutorLost         Reason = "EXECUTOR_LOST"
	ReasonExecutorRefuses      Reason = "EXECUTOR_REFUSES"
	ReasonNotReported          Reason = "NOT_REPORTED"
	ReasonQuarantineCleared    Reason = "QUARANTINE_CLEARED"
	ReasonExited               Reason = "EXITED"
	ReasonKilled               Reason = "KILLED"
	ReasonStale                Reason = "STALE"
	ReasonFlushed              Reason = "FLUSHED"
	ReasonRequeued             Reason = "REQUEUED"
	ReasonRestarting           Reason = "RESTARTING"
	ReasonNotBefore            Reason = "NOT_BEFORE"
	ReasonExpired              Reason = "EXPIRED"
	ReasonLifetime             Reason = "LIFETIME"
	ReasonStartTimeout         Reason = "START_TIMEOUT"
	ReasonPart                 Reason = "PART"
	ReasonNotTogether          Reason = "NOT_TOGETHER"
	ReasonRoundsExhausted      Reason = "ROUNDS_EXHAUSTED"
	ReasonNoMatchingPool       Reason = "NO_MATCHING_POOL"
	ReasonExecutorDisabled     Reason = "EXECUTOR_DISABLED"
	ReasonExecutorDraining     Reason = "EXECUTOR_DRAINING"
	ReasonNoDemand             Reason = "NO_DEMAND"
	ReasonDemandDoesNotFit     Reason = "DEMAND_DOES_NOT_FIT"
	ReasonClaimed              Reason = "CLAIMED"
	ReasonFailsStarts          Reason = "FAILS_STARTS"
	ReasonVolumeAway           Reason = "VOLUME_AWAY"
	ReasonVolumeInUse          Reason = "VOLUME_IN_USE"
	ReasonVolumeLost           Reason = "VOLUME_LOST"
	ReasonVolumeMissing        Reason = "VOLUME_MISSING"
	ReasonVolumeDestroyed      Reason = "VOLUME_DESTROYED"
	ReasonOffering             Reason = "OFFERING"
	ReasonCellsRefused         Reason = "CELLS_REFUSED"
	ReasonCycle                Reason = "CYCLE"
	ReasonCellWorkerLost       Reason = "CELL_WORKER_LOST"
)

// Reasons of the wanted size of a SKU. The wanted size can also have ReasonScalingHeld.
const (
	ReasonNoScaleRule Reason = "NO_SCALE_RULE"
	ReasonTooFewIdle  Reason = "TOO_FEW_IDLE"
	ReasonTooManyIdle Reason = "TOO_MANY_IDLE"
	ReasonIdleInRange Reason = "IDLE_IN_RANGE"
	ReasonMinSize     Reason = "MIN_SIZE"
	ReasonMaxSize     Reason = "MAX_SIZE"
	ReasonCooldown    Reason = "COOLDOWN"
)
