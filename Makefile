# Berth. `make` without a target lists the targets.
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

RELEASE  := bin/release
STAGE    := bin/stage
COMMIT   ?= $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)
# The date of the files in packages and archives, in seconds since 1970.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
PROGRAMS := $(foreach arch,amd64 arm64,$(RELEASE)/berth-linux-$(arch) $(RELEASE)/berth-agent-linux-$(arch) $(RELEASE)/berth-darwin-$(arch))

# What the released programs and the client may depend on. A license that is not in the
# list needs a decision.
LICENSES := Apache-2.0,BSD-2-Clause,BSD-3-Clause,MIT
VULNDB   ?= https://vuln.go.dev

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
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Run the demo: embedded etcd, real processes and real failures
	$(BIN)/berth demo

.PHONY: build
build: ## Build all binaries into bin/
	@mkdir -p $(BIN)
	@test -e $(BIN)/berth || echo "The first build takes several minutes, and go prints nothing meanwhile."
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/berth ./cmd/berth-agent ./services/registry/cmd/registry \
		./services/executor-state/cmd/executor-state ./services/assigner/cmd/assigner ./services/gateway/cmd/gateway

.PHONY: test
test: ## Run every check that a change must pass
	$(GO) test -timeout 8m $$($(GO) list work | grep -v berth.dev/integration)
	@# One at a time: each of these packages uses the whole machine.
	$(GO) test -p 1 -timeout 8m ./integration/docs ./integration/sim ./integration/play ./integration/proxy ./integration/access
	@# Without the cache of go test, which does not see that these read files and start programs.
	$(GO) test -p 1 -timeout 8m -count=1 ./integration/scenario ./integration/chaos ./integration/layout ./integration/consumer ./integration/mutants ./integration/console ./integration/attack/...

CHECKS ?= 5000

.PHONY: nightly
nightly: ## Draw random seeds: property tests, kills, the simulator, mutants and chaos, hours (CHECKS=n SEEDS=n CHAOS_MINUTES=n)
	RANDOM_SEEDS=1 RAPID_CHECKS=$(CHECKS) $(GO) test -count=1 -timeout 2h $$($(GO) list work | grep -v berth.dev/integration)
	RANDOM_SEEDS=1 $(GO) test -count=1 -timeout 1h -v ./integration/scenario -run 'TestKillsAtRandomTimes|TestCacheFleet|TestLifetimes'
	@$(MAKE) --no-print-directory sim SEED= FROM=
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory chaos CHAOS_SEED=0

.PHONY: race
race: ## Run the tests with the race detector
	$(GO) test -race -timeout 20m work

.PHONY: sim
sim: ## Simulate clusters: SEEDS=10000 from a random seed or FROM=n; SEED=n plays one seed and prints its transcript
	$(GO) test ./integration/sim -run 'TestSeeds' -count=1 -timeout 24h -v -args \
		$(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS) -from=$(or $(FROM),random))

.PHONY: chaos
chaos: build ## Inject faults while clients continue, 10 minutes (CHAOS_MINUTES=n CHAOS_SEED=n CHAOS_CLOCK=1 TLS=1)
	@mkdir -p $(CHAOS_DIR)
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/chaos -run TestChaos -count=1 -v -timeout 24h \
		-args -namespaces -minutes=$(CHAOS_MINUTES) -seed=$(CHAOS_SEED) -keep=$(CHAOS_DIR) $(if $(CHAOS_CLOCK),-clock) $(if $(TLS),-tls)

.PHONY: chaos-cells
chaos-cells: build ## Inject faults into a root, its zones and their leaves, 10 minutes (CHAOS_MINUTES=n)
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/scenario -run TestCellChaos -count=1 -v -timeout 24h \
		-args -chaos=$(CHAOS_MINUTES)m

GROWTH_MINUTES ?= 12

.PHONY: growth
growth: build ## Run short workers on real agents, then for twice as long: no process may grow (GROWTH_MINUTES=12)
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/scenario -run TestGrowth -count=1 -v -timeout 24h \
		-args -growth=$(GROWTH_MINUTES)m

.PHONY: upgrade
upgrade: ## Run chaos while processes are upgraded from an older commit and rolled back (OLD=ref, default the newest release)
	@old="$(OLD)"; old=$${old:-$$(tools/newest-release)} || exit 1; \
	if [ -z "$$old" ]; then echo "no release before HEAD to upgrade from: set OLD=ref"; exit 0; fi; \
	$(MAKE) --no-print-directory build && mkdir -p $(CHAOS_DIR) && dir=$$(mktemp -d) && trap 'git worktree remove --force "$$dir/source"; rm -rf "$$dir"' EXIT && \
	git worktree add --quiet --detach "$$dir/source" "$$old" && echo "building $$old" && \
	(cd "$$dir/source" && $(GO) build -ldflags "-X berth.dev/pkg/process.Version=$$old" -o "$$dir/berth" ./cmd/berth) && \
	BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/chaos -run TestUpgrade -count=1 -v -timeout 30m \
		-args -old="$$dir/berth" -seed=$(CHAOS_SEED) -keep=$(CHAOS_DIR)

.PHONY: faults
faults: build ## Test etcd without quorum, full, slow, compacted, defragmented and rebuilt
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/scenario -run TestFault -count=1 -v -timeout 15m -args -faults

.PHONY: attack
attack: build ## Attack real processes: 10,000 mutated records, and floods of connections, streams and unfinished bodies
	@BERTH_BINARY=$(BIN)/berth $(GO) test -p 1 ./integration/attack/... -count=1 -v -timeout 15m -args -floods

.PHONY: acceptance
acceptance: build ## Assert the time limits of the acceptance checks; requires an idle machine
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/attack -count=1 -v -timeout 15m -args -acceptance
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/scenario -run 'TestLifetimes|TestCacheFleet|TestVolumes|TestDatabase|TestCell|TestFrozen' -parallel 1 -count=1 -v -timeout 10m -args -acceptance
	@# One cluster at a time: the limits of time hold on a machine with nothing else to do.
	@BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/play -run 'TestProcesses/(lifetimes|volumes|holds)' -parallel 1 -count=1 -v -timeout 5m -args -acceptance

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Run every fuzz target of every module, one at a time (FUZZTIME=30s)
	@for m in $(MODULES); do (cd $$m && for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$m/$$p $$f"; \
		$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done) || exit 1; done

.PHONY: mutants
mutants: ## Break one rule at a time: the simulator or chaos must detect it (ONLY=name FROM=n)
	$(GO) test ./integration/mutants -run TestEveryMutantIsFound -count=1 -v -timeout 6h -args -hunt $(if $(ONLY),-only=$(ONLY)) $(if $(FROM),-from=$(FROM))

.PHONY: bench
bench: build bench-guard ## Measure every workload and its baseline, 15 minutes (ONLY=upsert,latency TRACE=dir JSON=file)
	$(BIN)/berth bench --json $(REPORT) $(if $(ONLY),--only $(ONLY)) $(if $(TRACE),--trace $(TRACE))

.PHONY: bench-docs
bench-docs: build ## Write the results of the last make bench to docs/explanation/performance.md and docs/plots (JSON=file)
	$(BIN)/berth bench docs $(REPORT) --markdown docs/explanation/performance.md --plots docs/plots

.PHONY: bench-guard
bench-guard: $(TOOLS)/benchstat ## Compare the allocations of a step of each core with the committed baseline
	@mkdir -p $(BIN)
	$(STEPS) > $(BIN)/steps.txt
	$(BENCHSTAT) baseline=$(BASELINE) now=$(BIN)/steps.txt
	@# Times are only shown, because machines differ. Over 10 % more allocations or
	@# bytes are an error, and so is a step that only one side has.
	@$(BENCHSTAT) -format csv baseline=$(BASELINE) now=$(BIN)/steps.txt 2>/dev/null | awk -F, ' \
		$$2 ~ /\/op$$/ { unit = $$2; next } \
		unit !~ /^(B|allocs)\/op$$/ || $$1 == "" || $$1 == "geomean" || $$1 ~ /^pkg: / { next } \
		$$2 == "" || $$4 == "" { print $$1 ": only in one of the two: run make bench-baseline"; bad = 1; next } \
		{ steps++ } \
		$$4 > 1.1 * $$2 { print $$1 ": " $$4 " " unit ", baseline " $$2 " in " "$(BASELINE)"; bad = 1 } \
		END { if (!steps) print "no step was compared"; exit bad || !steps }'

.PHONY: bench-baseline
bench-baseline: ## Write the allocations of a step of each core as the new baseline
	$(STEPS) > $(BASELINE)

$(TOOLS)/go-licenses: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	cd tools && GOWORK=off GOBIN=$(TOOLS) $(GO) install -trimpath github.com/google/go-licenses/v2
	@touch $@

$(TOOLS)/benchstat: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	cd tools && GOWORK=off GOBIN=$(TOOLS) $(GO) install golang.org/x/perf/cmd/benchstat
	@touch $@

.PHONY: bench-failover
bench-failover: build ## Measure how long Berth pauses during failures, over an hour (15 minutes: ROUNDS=8 OTHER_ROUNDS=3 GROWTH=0)
	$(BIN)/berth bench failover $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(OTHER_ROUNDS),--other-rounds $(OTHER_ROUNDS)) \
		$(if $(OUTAGES),--outages $(OUTAGES)) $(if $(GROWTH),--growth $(GROWTH)) $(if $(JSON),--json $(JSON))

.PHONY: verify
verify: tools prose ## Check generated code, compatibility, formatting, linters, prose, licenses, vulnerabilities, and each module separately
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi
	$(TOOLS)/golangci-lint run $(addprefix ./,$(addsuffix /...,$(MODULES)))
	cd tools && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(TOOLS)/golangci-lint run ./openapi ./rooms && GOWORK=off $(GO) test ./rooms
	$(ROOMS) -limits tools/rooms/limits.txt $(SURVEYED)
	@# Without -o, a module with one program would write its binary here.
	@for m in $(MODULES); do echo "GOWORK=off go build $$m"; (cd $$m && GOWORK=off $(GO) build -o /dev/null ./... && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	@$(MAKE) --no-print-directory generate-check console-check compatible licenses vulnerabilities

# ROOMS measures packages: their lines, their largest type and the files that call each other.
ROOMS = GOWORK=off $(GO) run -C tools ./rooms -top ..
SURVEYED = services pkg client cmd/berth cmd/berth-agent

.PHONY: rooms
rooms: ## Print the lines of each package, the methods of its largest type, and its files that call each other
	@$(ROOMS) $(SURVEYED)

.PHONY: rooms-lower
rooms-lower: ## Lower the limits of packages to what they have
	@$(ROOMS) -limits tools/rooms/limits.txt -lower $(SURVEYED)

.PHONY: prose
prose: tools build ## Check documents, comments and help texts against the rules of .vale/styles/Berth
	@.vale/help bin/berth bin/help
	@$(TOOLS)/vale --minAlertLevel=error --output=line bin/help \
		$$(git ls-files '*.md' '*.go' '*.proto' ':!*.pb.go' ':!*.pb.gw.go' ':!*/testdata/*')

.PHONY: chart-test
chart-test: build ## Render the Helm chart, decode it strictly and start its commands
	@# Outside the workspace: Helm's requirements would raise the versions of the services' dependencies.
	cd deploy/helm/test && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		BERTH_BINARY=$(BIN)/berth GOWORK=off $(GO) test -count=1 -timeout 8m ./...

.PHONY: alerts-test
alerts-test: ## Test the alerts with the engine of Prometheus
	@# Outside the workspace, for the same reason as the test of the chart.
	cd deploy/prometheus/test && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		GOWORK=off $(GO) test -count=1 -timeout 2m ./...

.PHONY: keda-test
keda-test: ## Test the external scaler with the client of KEDA and a real gateway
	@# Outside the workspace: KEDA's requirements would raise the versions of the services' dependencies.
	cd examples/keda-scaler && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		GOWORK=off $(GO) test -count=1 -timeout 3m ./...

.PHONY: scale-test
scale-test: ## Test the autoscaler for Kubernetes with a fake API of Kubernetes and a real gateway
	@# Outside the workspace, for the same reason as the test of the chart.
	cd examples/kubernetes-autoscaler && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		GOWORK=off $(GO) test -count=1 -timeout 3m ./...

# The tool takes a package for one of the standard library only if it is below GOROOT, and
# it would write its warnings about assembly files to the directory for temporary files.
.PHONY: licenses
licenses: tools ## Check the licenses of all dependencies of the programs and the client
	@GOOS=linux GOROOT=$$($(GO) env GOROOT) $(TOOLS)/go-licenses check --allowed_licenses=$(LICENSES) --ignore berth.dev/ \
		--logtostderr=false --log_file=/dev/null --stderrthreshold=ERROR \
		$(addprefix ./,$(addsuffix /...,$(filter cmd/% services/% client,$(MODULES)))) && echo "licenses: only $(LICENSES)"

# The query only downloads the index of the database. If that fails or takes too long, there
# is nothing to compare with, and a build without network must pass. Other errors fail.
.PHONY: vulnerabilities
vulnerabilities: tools ## Check whether the code calls a function with a known vulnerability (VULNDB=url)
	@error=$$(timeout 30 $(TOOLS)/govulncheck -db $(VULNDB) -mode query -format json berth.dev@v0.0.0 2>&1 >/dev/null); case $$? in \
		0) timeout 600 $(TOOLS)/govulncheck -db $(VULNDB) -C api work ;; \
		1|124) echo "govulncheck: the vulnerability database cannot be reached; not checked ($${error:-no answer within 30 s})" ;; \
		*) echo "govulncheck: $$error"; exit 1 ;; esac

.PHONY: release
release: tools ## Build programs, packages, archives, image, chart and Go modules of a release into bin/release
	rm -rf $(RELEASE) $(STAGE)
	@$(MAKE) --no-print-directory $(PROGRAMS) $(STAGE)/THIRD_PARTY_LICENSES
	@for f in $(PROGRAMS); do $(TOOLS)/cyclonedx-gomod bin -json -std -noserial -notimestamp -version v$(VERSION) -output $$f.cdx.json $$f || exit 1; done
	$(GO) run ./cmd/berth/internal/pages $(STAGE) $(VERSION) $(SOURCE_DATE_EPOCH)
	$(PACKAGE) $(STAGE) $(RELEASE)
	@$(MAKE) --no-print-directory site
	tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C $(BIN) -c site | gzip -n > $(RELEASE)/berth-docs-$(VERSION).tar.gz
	cd $(RELEASE) && LC_ALL=C sha256sum * > SHA256SUMS

# Outside the workspace and apart from the tools, which need not wait for its dependencies.
PACKAGE = cd tools/release && GOWORK=off $(GO) build -o $(TOOLS)/release . && cd $(CURDIR) && \
	VERSION=$(VERSION) COMMIT=$(COMMIT) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(TOOLS)/release

# The same commit and version of Go give the same bytes, in every directory and without git.
.PHONY: $(PROGRAMS)
$(PROGRAMS): system = $(word 2,$(subst -, ,$(subst berth-agent,agent,$(@F))))
$(PROGRAMS):
	CGO_ENABLED=0 GOOS=$(system) GOARCH=$(lastword $(subst -, ,$@)) GOAMD64=v1 GOARM64=v8.0 GOFLAGS='-trimpath -buildvcs=false' \
		$(GO) build -ldflags '-s -w $(LDFLAGS) -X berth.dev/pkg/process.commit=$(COMMIT)' -o $@ ./cmd/$(firstword $(subst -$(system)-, ,$(@F)))

# Hugo is no part of the tools: it takes two minutes to build with an empty cache.
HUGO = $(BIN)/hugo

$(HUGO): tools/site/go.mod tools/site/go.sum
	@mkdir -p $(BIN)
	cd tools/site && CGO_ENABLED=0 GOWORK=off GOBIN=$(BIN) $(GO) install -trimpath github.com/gohugoio/hugo
	@touch $@

.PHONY: site
site: $(HUGO) ## Build the documentation as a static site into bin/site, and check its links
	$(HUGO) --source tools/site --destination $(BIN)/site --cleanDestinationDir --noBuildLock --panicOnWarning --quiet
	@cd tools/site && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) vet ./... && \
		GOWORK=off $(GO) test -count=1 -timeout 1m ./... -args -site=$(BIN)/site

# The licenses require that programs come with these texts. The agent depends on nothing
# that berth does not depend on.
$(STAGE)/THIRD_PARTY_LICENSES: $(TOOLS)/go-licenses deploy/packages/licenses.tpl cmd/berth/go.sum
	@mkdir -p $(STAGE)
	@GOOS=linux GOROOT=$$($(GO) env GOROOT) $(TOOLS)/go-licenses report ./cmd/berth --ignore berth.dev/ --template deploy/packages/licenses.tpl \
		--logtostderr=false --log_file=/dev/null --stderrthreshold=ERROR > $@ && cat $$($(GO) env GOROOT)/LICENSE console/LICENSES >> $@

.PHONY: release-test
release-test: tools ## Test the files of the last make release: contents, versions, go install, installation and start of the packages
	cd tools/release && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(TOOLS)/golangci-lint run ./... && \
		RELEASE=$(CURDIR)/$(RELEASE) GOWORK=off $(GO) test -count=1 -timeout 20m -v ./...

# An image for the Docker of this machine. `make release` needs no Docker.
ARCH ?= $(shell $(GO) env GOARCH)
.PHONY: image
image: $(RELEASE)/berth-linux-$(ARCH) $(STAGE)/THIRD_PARTY_LICENSES ## Build the container image and load it into Docker (IMAGE=name:tag ARCH=arm64)
	$(PACKAGE) -image $(ARCH) $(STAGE) $(RELEASE) | docker load
	docker tag berth:$(VERSION) $(IMAGE)

# The program converts the output of protoc-gen-openapiv2, and deletes it.
OPENAPI = GOWORK=off $(GO) run ./openapi

.PHONY: generate
generate: tools ## Generate protobuf code, REST mapping and OpenAPI from api/
	cd api && PATH="$(TOOLS):$$PATH" buf generate
	cd tools && $(OPENAPI) "$(CURDIR)/api"

.PHONY: generate-check
generate-check: tools
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && cp -r api "$$dir/api" && \
	(cd "$$dir/api" && PATH="$(TOOLS):$$PATH" buf generate) && \
	(cd tools && $(OPENAPI) "$$dir/api") && diff -r -q api "$$dir/api" || { echo "generated code is stale: make generate"; exit 1; }

# Old and new processes run at the same time, so calls and records may only gain fields. The
# image has those of the newest release, or in a release those of this version.
FROZEN = $(CURDIR)/integration/docs/testdata/frozen/api.binpb

.PHONY: compatible
compatible: tools
	cd api && $(TOOLS)/buf breaking --against $(FROZEN)
	@case "$(VERSION)" in *-*) ;; *) cd api && $(TOOLS)/buf build --exclude-source-info -o -#format=binpb | cmp -s - $(FROZEN) || \
		{ echo "$(FROZEN) is not of version $(VERSION): make freeze"; exit 1; } ;; esac

.PHONY: freeze
freeze: tools ## Add the fields, calls and names of this version to those that every later version must have
	$(GO) test -count=1 ./integration/docs -run TestFrozenNames -args -freeze
	cd api && if [ -e $(FROZEN) ]; then $(TOOLS)/buf breaking --against $(FROZEN); fi && \
		$(TOOLS)/buf build --exclude-source-info -o $(FROZEN)

CONSOLE_DIST = services/gateway/internal/console/dist
CONSOLE_SUMS = find console/src console/*.mjs console/*.json $(CONSOLE_DIST) console/LICENSES -type f | LC_ALL=C sort | xargs sha256sum

# The sums of sources and results tell a stale build without Node.
.PHONY: console
console: console/node_modules ## Build the console into the gateway; requires Node
	cd console && npx tsc && node test/text.mjs && node test/search.mjs && node build.mjs
	$(CONSOLE_SUMS) > console/SHA256SUMS

.PHONY: console-check
console-check:
	@$(CONSOLE_SUMS) | cmp -s - console/SHA256SUMS || { echo "the built console is stale: make console"; exit 1; }

console/node_modules: console/package-lock.json
	cd console && npm ci --no-audit --no-fund && touch node_modules

# The bytes of a build depend only on its sources, so a build by hand that differs is an error.
.PHONY: console-test
console-test: build console/node_modules ## Play the console in Chromium against failing processes; requires Node and Chromium (SCREENSHOTS=dir)
	cd console && npx tsc && node test/text.mjs && node test/search.mjs && node build.mjs ../bin/console && diff -r ../bin/console ../$(CONSOLE_DIST)
	BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/console -run TestConsole -count=1 -v -timeout 15m \
		-args -browser $(if $(SCREENSHOTS),-screenshots=$(abspath $(SCREENSHOTS)))

.PHONY: console-bench
console-bench: build console/node_modules ## Measure the console with 10,000 executors, 100,000 pending reservations and 50 open pages
	BERTH_BINARY=$(BIN)/berth $(GO) test ./integration/console -run TestScale -count=1 -v -timeout 30m -args -scale

.PHONY: tools
tools: $(TOOLS)/.done

$(TOOLS)/.done: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@# An SBOM has the checksum of the tool that wrote it, which must not depend on the directory.
	cd tools && GOWORK=off GOBIN=$(TOOLS) $(GO) install -trimpath tool
	@touch $@
