.DEFAULT_GOAL := help
TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
BINARY := target/$(TARGET)/release/ccm

.PHONY: help demo test build bench

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## build, then three simulated nodes, a load balancer, and ccm on them: before and after
	cargo build --workspace --locked
	@tests/demo.sh

test: ## format, clippy, all tests; ends with what was skipped and why
	@tests/run.sh

# Size: relative relocations in one bit each, equal functions once, and no tables for unwinding.
LINK := -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all -C link-arg=-Wl,--no-eh-frame-hdr -C link-arg=-Wl,-T,$(CURDIR)/src/static.ld

# Without an explicit --target the flag would also reach proc-macros, which can't be static.
build: ## the static binary
	RUSTFLAGS="-C target-feature=+crt-static $(LINK)" cargo build --release --locked --package ccm-from-scratch --target $(TARGET)
	@ls -l $(BINARY)

bench: build ## measure the static binary against its limits: calls, bytes, time, memory, size
	CCM_BENCH_BINARY=$(CURDIR)/$(BINARY) cargo test --locked --test bench -- --ignored --nocapture
