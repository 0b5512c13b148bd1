# Every target works in a fresh clone with Go installed; nothing else is needed
# unless the target says so.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT = github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
FUZZTIME ?= 20s
STRESS ?= 1000000
PYTHON ?= python3

.PHONY: build test python wheel sdist wheel-test release-snapshot release race large stress foreign proven ranout report-test store-test \
  fleet-test lint bench fuzz golden clean

build:
	go build -o bin/stplan ./cmd/stplan

test: lint
	go test ./...

# The Python package; needs pytest and mypy, neither torch nor a GPU.
python:
	$(PYTHON) -m mypy && $(PYTHON) -m pytest -q

# One wheel for machines without Go and compilers, into dist; needs packaging/requirements.txt.
# MACHINE=aarch64 makes that of the other kind. The first run fetches the headers of each release
# of torch, 0.3 GB in all, and keeps them in build/headers. SHIMS=--no-shims leaves the shims
# out, and SHIMS="--torch 2.11.0" makes them for one release.
MACHINE ?= x86_64
SHIMS ?=
wheel:
	$(PYTHON) packaging/wheel.py --machine $(MACHINE) -o dist $(SHIMS)

# The source distribution, from which pip makes a wheel if there are Go and a C compiler.
sdist:
	$(PYTHON) -m build --sdist -o dist

# A wheel from dist in an empty environment, without compilers and Go: the README's way. If PYTHON
# has torch, also a job of it, on a simulated device.
wheel-test:
	$(PYTHON) packaging/wheel_test.py dist

# Archives of the command line with checksums and SBOMs, into build/release
# (docs/releasing.md). The snapshot publishes nothing and needs no tag. Both need ziglang of
# packaging/requirements.txt; SKIP=sbom leaves the SBOMs out.
SKIP ?=
release-snapshot:
	$(ZIG_CC) $(GORELEASER) release --snapshot --clean $(if $(SKIP),--skip=$(SKIP))
	$(PYTHON) packaging/release_test.py build/release $(if $(SKIP),--skip $(SKIP))
release:
	$(ZIG_CC) $(GORELEASER) release --clean
	$(PYTHON) packaging/release_test.py build/release
ZIG_CC = $(foreach arch,amd64=x86_64 arm64=aarch64,STPLAN_CC_$(firstword $(subst =, ,$(arch)))="$(PYTHON) -m ziglang cc -target $(lastword $(subst =, ,$(arch)))-linux-gnu.2.17")
GORELEASER ?= go run github.com/goreleaser/goreleaser/v2@v2.13.3

# What runs in parallel, under the race detector (needs cgo), with few inputs (-short): it
# makes everything ten times slower. Packing is parallel in one place, which these tests
# drive; its exact search would take minutes.
race:
	go test -race -short ./internal/trace/ ./internal/trace/parquet/ ./internal/compile/ ./cmd/stplan/
	go test -race -run 'TimeLimit|Progress' ./internal/packing/

# The tests that go test ./... runs on smaller or fewer inputs, on all of theirs.
large:
	STPLAN_LARGE=1 go test -count=1 -timeout 1h ./internal/packing/ ./internal/compile/

# The C runtime under many threads, under each sanitizer: STRESS operations of each thread.
# -stress is a flag of the test's own, so it has to come behind the package. -v prints how
# many requests were served.
stress:
	go test -v -run TestStress -timeout 2h ./runtime/cuda/ -args -stress $(STRESS)

# Every recording served by the plan of every other job, beside no plan; prints the worst
# pairs (docs/results/foreign.md). Needs the larger recordings, and some ten minutes.
foreign:
	STPLAN_TRACES=$(CURDIR)/../shared/traces:$(CURDIR)/../shared/traces-third-party:$(CURDIR)/examples/evaluation go test -v -run TestForeignPlans -timeout 2h ./internal/compile/ -count=1

# Every recording runs with little more memory than it allocates, again and again until it goes to its end
# (docs/results/ranout.md). Some two minutes.
ranout:
	STPLAN_TRACES=$(CURDIR)/../shared/traces:$(CURDIR)/../shared/traces-third-party go test -v -run TestRunsThatRanOut -timeout 2h ./internal/compile/ -count=1

# The same recordings served by plans as an earlier run has followed them, beside plans that none has
# (docs/results/proven.md). Some ten minutes.
proven:
	STPLAN_TRACES=$(CURDIR)/../shared/traces:$(CURDIR)/../shared/traces-third-party:$(CURDIR)/examples/evaluation go test -v -run TestProvenPlans -timeout 2h ./internal/compile/ -count=1

# Opens reports in a browser and times it. Installs Chromium on Debian if there is no
# browser; STPLAN_BROWSER names another.
report-test:
	@command -v "$${STPLAN_BROWSER:-chromium}" >/dev/null || command -v google-chrome >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }
	go test -v -count=1 -run 'TestReport|TestMillion|TestPage' ./cmd/stplan/

# The tests of stores against Versity's S3 gateway, a server that keeps objects as files,
# in place of the one in the tests' process. Building it takes two to five minutes, once.
bin/versitygw:
	GOBIN=$(CURDIR)/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
store-test: SHELL = /bin/bash
store-test: bin/versitygw
	@data=$$(mktemp -d); \
	bin/versitygw --quiet --access AKIDEXAMPLE --secret a-secret-of-the-tests --port 127.0.0.1:7070 posix $$data & server=$$!; \
	trap 'kill $$server; rm -rf $$data' EXIT; \
	for i in $$(seq 50); do (echo > /dev/tcp/127.0.0.1/7070) 2>/dev/null && break; sleep 0.1; done; \
	export STPLAN_TEST_S3=127.0.0.1:7070; \
	go test -count=1 ./internal/store/ && go test -count=1 -run 'Bucket|Object|Ranges' ./cmd/stplan/

# examples/fleet: the Slurm array under a Slurm of its own, with a task killed, and the
# Kubernetes job against the API's types. Needs root. Installs Slurm on Debian if there is none.
# TORCHRUN names a torchrun that is not on PATH; without any, what needs it is left out.
fleet-test: build bin/versitygw
	@command -v slurmctld >/dev/null && command -v munged >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; }
	VERSITYGW=$(CURDIR)/bin/versitygw examples/fleet/slurm_cluster.sh 4 examples/fleet/slurm_test.sh bin/stplan
	cd examples/fleet/check && STPLAN=$(CURDIR)/bin/stplan go test -count=1 ./...

# actionlint's calls of shellcheck and pyflakes are off: its answer would depend on what is
# installed.
lint:
	@unformatted=$$(gofmt -l cmd internal runtime); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:" $$unformatted; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml

# Each benchmark once, so that none rots, without the largest problems. For
# figures: go test -bench=. PACKAGE
bench:
	go test -short -run '^$$' -bench . -benchtime 1x ./...

# Searches for inputs that break a parser. Not part of CI, where the same commit
# has to get the same answer twice; what it finds goes into testdata/fuzz.
fuzz:
	@set -e; for target in $$(grep -rhoE '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' internal | awk '{print $$2}'); do \
	  pkg=$$(dirname $$(grep -rlE "^func $$target\(" --include='*_test.go' internal)); \
	  echo "fuzz $$target in $$pkg"; \
	  go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./$$pkg/; \
	done

# Rewrites every golden file; read the diff before committing it.
golden:
	go test ./internal/planfile/ ./internal/lifespan/ ./internal/trace/ ./cmd/stplan/ -update

clean:
	rm -rf bin build dist
