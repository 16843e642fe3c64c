.DEFAULT_GOAL := help
TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
BINARY := target/$(TARGET)/release/ccm

.PHONY: help build
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

# Without an explicit --target the flag would also reach proc-macros, which can't be static.
build: ## the static binary, at $(BINARY)
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --package ccm-from-scratch --target $(TARGET)
	@ls -l $(BINARY)
