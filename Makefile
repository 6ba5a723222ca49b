# Berth. `make` alone lists what there is to do.
.DEFAULT_GOAL := help

GO      ?= go
BIN     := $(CURDIR)/bin
TOOLS   := $(BIN)/tools
MODULES := api client pkg testkit services/registry services/executor-state services/assigner services/gateway cmd/berth-agent cmd/berth examples integration
VERSION := $(shell cat VERSION)
LDFLAGS := -X berth.dev/pkg/process.Version=$(VERSION)
SEED    ?=
FROM    ?=
SEEDS   ?= 10000

IMAGE   ?= berth:$(VERSION)

REPORT    = $(or $(JSON),$(BIN)/bench.json)
BASELINE  = cmd/berth/internal/bench/testdata/steps.txt
STEPS     = $(GO) test -run '^$$' -bench '^BenchmarkStep$$' -benchmem -benchtime 200x -count 6 -cpu 1 -p 1 \
	./services/registry/queue ./services/executor-state/inventory ./services/assigner/dispatch
BENCHSTAT = $(TOOLS)/benchstat -ignore cpu,goos,goarch

CHAOS_MINUTES ?= 10
CHAOS_SEED    ?= 0
CHAOS_DIR     ?= $(BIN)/chaos
CHAOS_CLOCK   ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## the main job on embedded etcd, with real processes and real failures
	$(BIN)/berth demo

.PHONY: build
build: ## build all binaries into bin/
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/berth ./cmd/berth-agent ./services/registry/cmd/registry \
		./services/executor-state/cmd/executor-state ./services/assigner/cmd/assigner ./services/gateway/cmd/gateway

.PHONY: test
test: ## everything that a change must pass
	$(GO) test -timeout 8m $$($(GO) list work | grep -v berth.dev/integration)
	@# One after the other: each of these wants the whole machine.
	$(GO) test -p 1 -timeout 8m ./integration/docs ./integration/sim ./integration/play ./integration/proxy
	@# These look at what they do not import, to which go test's cache is blind.
	$(GO) test -p 1 -timeout 8m -count=1 ./integration/scenario ./integration/chaos ./integration/layout ./integration/consumer ./integration/mutants ./integration/attack/...

.PHONY: race
race: ## the tests under the race detector
	$(GO) test -race -timeout 20m work

.PHONY: sim
sim: ## simulate clusters: SEEDS=10000 seeds from a random start, or from FROM=n; or one with its transcript (SEED=n)
	$(GO) test ./integration/sim -run 'TestSeeds' -count=1 -timeout 24h -v -args \
		$(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS) -from=$(or $(FROM),random))

.PHONY: chaos
chaos: build ## everything is broken while clients go on, 10 minutes (CHAOS_MINUTES=n CHAOS_SEED=n CHAOS_CLOCK=1)
	@mkdir -p $(CHAOS_DIR)
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/chaos -run TestChaos -count=1 -v -timeout 24h \
		-args -namespaces -minutes=$(CHAOS_MINUTES) -seed=$(CHAOS_SEED) -keep=$(CHAOS_DIR) $(if $(CHAOS_CLOCK),-clock)

.PHONY: upgrade
upgrade: ## the short chaos run from an older commit to this one and back (OLD=ref; the newest tag unless given)
	@old="$(OLD)"; old=$${old:-$$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null)}; \
	if [ -z "$$old" ]; then echo "no tag is reachable before HEAD, so there is nothing to upgrade from: name a commit with OLD=ref"; exit 0; fi; \
	$(MAKE) --no-print-directory build && mkdir -p $(CHAOS_DIR) && dir=$$(mktemp -d) && trap 'git worktree remove --force "$$dir/source"; rm -rf "$$dir"' EXIT && \
	git worktree add --quiet --detach "$$dir/source" "$$old" && echo "building $$old" && \
	(cd "$$dir/source" && $(GO) build -ldflags "-X berth.dev/pkg/process.Version=$$old" -o "$$dir/berth" ./cmd/berth) && \
	BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/chaos -run TestUpgrade -count=1 -v -timeout 30m \
		-args -old="$$dir/berth" -seed=$(CHAOS_SEED) -keep=$(CHAOS_DIR)

.PHONY: faults
faults: build ## etcd loses its quorum, is full, slow, compacted, defragmented and rebuilt
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/scenario -run TestFault -count=1 -v -timeout 15m -args -faults

.PHONY: attack
attack: build ## attack real processes with full floods: 10,000 mutated records, connections, streams and bodies that never end
	@BERTH_BINARY=$(BIN)/berth $(GO) test -p 1 ./integration/attack/... -count=1 -v -timeout 15m -args -floods

.PHONY: acceptance
acceptance: build ## assert the time limits of the acceptance checks, on a machine with nothing else to do
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/attack -count=1 -v -timeout 15m -args -acceptance

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## every fuzz target of every module, one at a time (FUZZTIME=30s)
	@for m in $(MODULES); do (cd $$m && for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$m/$$p $$f"; \
		$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done) || exit 1; done

.PHONY: mutants
mutants: ## break one rule at a time: the simulator, from a random start, or chaos must notice (ONLY=name FROM=n)
	$(GO) test ./integration/mutants -run TestEveryMutantIsFound -count=1 -v -timeout 6h -args -hunt $(if $(ONLY),-only=$(ONLY)) $(if $(FROM),-from=$(FROM))

.PHONY: bench
bench: build bench-guard ## every workload beside its baseline, 15 minutes (ONLY=upsert,latency TRACE=dir JSON=file)
	$(BIN)/berth bench --json $(REPORT) $(if $(ONLY),--only $(ONLY)) $(if $(TRACE),--trace $(TRACE))

.PHONY: bench-docs
bench-docs: build ## what the last make bench measured, into docs/explanation/performance.md and docs/plots (JSON=file)
	$(BIN)/berth bench docs $(REPORT) --markdown docs/explanation/performance.md --plots docs/plots

.PHONY: bench-guard
bench-guard: $(TOOLS)/benchstat ## what a step of each core allocates, against the committed baseline
	@mkdir -p $(BIN)
	$(STEPS) > $(BIN)/steps.txt
	$(BENCHSTAT) baseline=$(BASELINE) now=$(BIN)/steps.txt
	@# Times are only shown: machines differ. More than a tenth more allocations or
	@# bytes is an error, and so is a step that one of the two has not.
	@$(BENCHSTAT) -format csv baseline=$(BASELINE) now=$(BIN)/steps.txt 2>/dev/null | awk -F, ' \
		$$2 ~ /\/op$$/ { unit = $$2; next } \
		unit !~ /^(B|allocs)\/op$$/ || $$1 == "" || $$1 == "geomean" || $$1 ~ /^pkg: / { next } \
		$$2 == "" || $$4 == "" { print "make bench-baseline: " $$1 " is new, or gone"; bad = 1; next } \
		{ steps++ } \
		$$4 > 1.1 * $$2 { print $$1 ": " $$4 " " unit ", and " $$2 " in " "$(BASELINE)"; bad = 1 } \
		END { if (!steps) print "nothing was compared"; exit bad || !steps }'

.PHONY: bench-baseline
bench-baseline: ## what a step of each core allocates now becomes the baseline
	$(STEPS) > $(BASELINE)

$(TOOLS)/benchstat: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	cd tools && GOWORK=off GOBIN=$(TOOLS) $(GO) install golang.org/x/perf/cmd/benchstat
	@touch $@

.PHONY: bench-failover
bench-failover: build ## how long Berth pauses while parts of it fail, over an hour (a quarter: ROUNDS=8 OTHER_ROUNDS=3 GROWTH=0)
	$(BIN)/berth bench failover $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(OTHER_ROUNDS),--other-rounds $(OTHER_ROUNDS)) \
		$(if $(OUTAGES),--outages $(OUTAGES)) $(if $(GROWTH),--growth $(GROWTH)) $(if $(JSON),--json $(JSON))

.PHONY: verify
verify: tools prose ## generated code fresh, fields only added, formatting, linters, prose, every module on its own
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi
	$(TOOLS)/golangci-lint run $(addprefix ./,$(addsuffix /...,$(MODULES)))
	@# Without -o a module of a single program would leave it behind.
	@for m in $(MODULES); do echo "GOWORK=off go build $$m"; (cd $$m && GOWORK=off $(GO) build -o /dev/null ./... && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	@$(MAKE) --no-print-directory generate-check compatible

.PHONY: prose
prose: tools build ## the prose of documents, comments and help texts: the errors of .vale/styles/Berth
	@.vale/help bin/berth bin/help
	@$(TOOLS)/vale --minAlertLevel=error --output=line bin/help \
		$$(git ls-files '*.md' '*.go' '*.proto' ':!*.pb.go' ':!*.pb.gw.go' ':!*/testdata/*')

.PHONY: chart-test
chart-test: build ## the Helm chart: rendered, decoded strictly, its commands started
	@# Outside the workspace: Helm would raise the versions that the services are built with.
	cd deploy/helm/test && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		BERTH_BINARY=$(BIN)/berth GOWORK=off $(GO) test -count=1 -timeout 8m ./...

.PHONY: image
image: ## the container image of every process (IMAGE=name:tag)
	docker build -f deploy/Dockerfile -t $(IMAGE) .

.PHONY: generate
generate: tools ## protobuf code, REST mapping and OpenAPI from api/
	cd api && PATH="$(TOOLS):$$PATH" buf generate

.PHONY: generate-check
generate-check: tools
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && cp -r api "$$dir/api" && \
	(cd "$$dir/api" && PATH="$(TOOLS):$$PATH" buf generate) && \
	diff -r -q api "$$dir/api" || { echo "generated code is stale: make generate"; exit 1; }

# Fields of calls and records are only added since the newest tag, if there is one
# (SINCE=ref): old and new processes run side by side.
.PHONY: compatible
compatible: tools
	@since="$(SINCE)"; since=$${since:-$$(git describe --tags --abbrev=0 2>/dev/null)}; [ -z "$$since" ] || \
	(cd api && $(TOOLS)/buf breaking --against "$$(git rev-parse --path-format=absolute --git-common-dir)#ref=$$(git rev-parse $$since^{commit}),subdir=api")

.PHONY: tools
tools: $(TOOLS)/.done

$(TOOLS)/.done: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	cd tools && GOWORK=off GOBIN=$(TOOLS) $(GO) install tool
	@touch $@
