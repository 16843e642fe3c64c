.DEFAULT_GOAL := help
# Of this machine's kind, or another: make build ARCH=aarch64, or x86_64.
ARCH := $(shell uname -m)
TARGET := $(ARCH)-unknown-linux-musl
BINARY := target/$(TARGET)/release/ccm
# The TLS library has C in it: for another kind of machine Debian's cross compiler, or the one that CC names.
ifneq ($(ARCH),$(shell uname -m))
ifeq ($(origin CC),default)
CC := $(ARCH)-linux-gnu-gcc
endif
endif

.PHONY: help demo test test-real test-node test-release build image release dev-up dev-push dev-down helm promtool storm mutants bench

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## build, then show three simulated nodes and a load balancer, before and after the daemon works
	cargo build --workspace --locked
	@tests/demo.sh

test: ## format, clippy, all tests; ends with seconds, long tests, what was skipped and why, and what failed
	@tests/run.sh

test-real: ## the tests on a real Kubernetes API server, which Go builds once in some ten minutes; KUBERNETES=v1.35 for another
	@tests/real.sh

test-node: ## our image as a Pod on a real node: kubelet, containerd, scheduler; each way of installing it (root, cgroup v1; 2 min, at first 30)
	@tests/pod.sh

# Size: relative relocations in one bit each, equal functions and equal pieces of functions once, and no tables for unwinding.
LINK := -C linker=rust-lld -C link-arg=-zpack-relative-relocs -C link-arg=--icf=all -C link-arg=--no-eh-frame-hdr -C link-arg=-T -C link-arg=src/static.ld -C llvm-args=-enable-machine-outliner=always
# Two builds of one commit are equal, wherever they are made: no path of this machine is in the binary.
CARGO_HOME ?= $(HOME)/.cargo
PATHS := --remap-path-prefix=$(CURDIR)=/ccm --remap-path-prefix=$(CARGO_HOME)=/cargo
C_PATHS := -ffile-prefix-map=$(CURDIR)=/ccm -ffile-prefix-map=$(CARGO_HOME)=/cargo

# Without an explicit --target the flags would also reach proc-macros, which can't be static.
build: ## the static binary
	@command -v $(CC) >/dev/null || { echo "there is no $(CC) here: apt-get install gcc-$(subst _,-,$(ARCH))-linux-gnu, or name another with CC=…"; exit 1; }
	@rustup target list --installed 2>/dev/null | grep -qx $(TARGET) || rustup target add $(TARGET)
	CCM_COMMIT="$$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)" CCM_TOOLCHAIN="$$(rustc --version)" \
	    CC_$(subst -,_,$(TARGET))="$(CC)" CFLAGS_$(subst -,_,$(TARGET))="-U_FORTIFY_SOURCE $(C_PATHS)" \
	    RUSTFLAGS="-C target-feature=+crt-static $(PATHS) $(LINK)" \
	    cargo build --release --locked --package ccm-from-scratch --target $(TARGET)
	@ls -l $(BINARY)

image: build ## the image, FROM scratch, as an OCI archive in target/image; ARCH=aarch64 for the other kind
	@manifests/image.sh $(BINARY) $(ARCH)

release: ## binaries, image, chart, SBOM, licences in target/dist; REGISTRY=… names where the image goes (5 min, at first 15; 1 GB)
	@manifests/release.sh

test-release: ## make release here and in a new clone: equal bytes (10 min, 1 GB)
	@tests/release.sh

dev-up: ## a cluster on real Hetzner with this checkout's ccm, which costs money; asks first (manifests/dev)
	@manifests/dev/up.sh

dev-push: ## this checkout's image into that cluster
	@manifests/dev/push.sh

dev-down: ## delete that cluster: everything with its label; asks first
	@manifests/dev/down.sh

# A version that reads charts as those of today do; its module is fetched and built once.
HELM := helm.sh/helm/v3/cmd/helm@v3.18.6
helm: ## build helm in target/tools, if it is not installed: tests then render the chart
	@test -x target/tools/helm || command -v helm || GOBIN=$(CURDIR)/target/tools go install $(HELM)

# As a module's dependency: its own go.mod says replace, which go install does not take. Without its service
# discoveries, which are most of the build.
PROMTOOL := github.com/prometheus/prometheus/cmd/promtool
promtool: ## build promtool in target/tools, if it is not installed: tests then evaluate alerts and dashboard
	@test -x target/tools/promtool || command -v promtool || { mkdir -p target/tools/promtool.module && \
	    cd target/tools/promtool.module && rm -f go.mod go.sum && go mod init promtool && go get $(PROMTOOL)@v0.310.0 && \
	    go build -tags remove_all_sd -o ../promtool $(PROMTOOL); }

storm: ## ten thousand new stories with faults, each by a seed; CCM_TEST_SEED=7 shows one in target/storm/7 (4 min, at first 8)
	cargo test --locked --profile storm --test storm -- --ignored --exact --nocapture storm

mutants: ## each deliberate fault in a guard is found by a story, a unit test or a test of the whole program (more than an hour); CCM_MUTANT=7 for one
	CARGO_TARGET_DIR=target/mutants/target cargo test --locked --profile storm --test storm -- --ignored --exact --nocapture mutants::mutants

bench: build ## measure the static binary against its limits: calls, bytes, time, memory, size
	CCM_BENCH_BINARY=$(CURDIR)/$(BINARY) cargo test --locked --test bench -- --ignored --nocapture
