.DEFAULT_GOAL := help
# Of this machine's kind, or another: make build ARCH=aarch64 (CC must then compile for it).
ARCH := $(shell uname -m)
TARGET := $(ARCH)-unknown-linux-musl
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
LINK := -C linker=rust-lld -C link-arg=-zpack-relative-relocs -C link-arg=--icf=all -C link-arg=--no-eh-frame-hdr -C link-arg=-T -C link-arg=$(CURDIR)/src/static.ld

# Without an explicit --target the flags would also reach proc-macros, which can't be static.
build: ## the static binary
	@rustup target list --installed 2>/dev/null | grep -qx $(TARGET) || rustup target add $(TARGET)
	CC_$(subst -,_,$(TARGET))="$(CC)" CFLAGS_$(subst -,_,$(TARGET))=-U_FORTIFY_SOURCE RUSTFLAGS="-C target-feature=+crt-static $(LINK)" \
	    cargo build --release --locked --package ccm-from-scratch --target $(TARGET)
	@ls -l $(BINARY)

bench: build ## measure the static binary against its limits: calls, bytes, time, memory, size
	CCM_BENCH_BINARY=$(CURDIR)/$(BINARY) cargo test --locked --test bench -- --ignored --nocapture
