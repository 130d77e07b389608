# What one can do here; `make` alone lists it. A comment after two hashes is a target's help.
.DEFAULT_GOAL := help
.PHONY: help deps run start stop status build test lint bench bench-table bench-server bench-load bench-http fuzz clean
# cargo already uses every core, and its builds wait for each other.
.NOTPARALLEL:

CARGO ?= cargo
N ?= 10000000
ARGS ?=
OUTCOMES ?= docs/benchmarks
SECONDS_EACH ?= 60

lua_files = $(shell find . \( -name target -o -name .git \) -prune -o -name '*.lua' -print)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install the system packages that are missing
	@scripts/deps

run: build ## start redis-server and nginx with a sample list, show what they answer; Ctrl-C stops them
	@scripts/service run

start: build ## the same in the background
	@scripts/service start

stop: ## stop what make start has started
	@scripts/service stop

status: ## tell whether it runs
	@scripts/service status

build: deps ## build the module and cardctl: target/release/libredis_card.so, target/release/cardctl
	$(CARGO) build --release
	$(CARGO) build --release --package cardctl

test: lint build ## lint, build, and run every test
	cargo test --workspace

lint: deps ## check format, Rust, Lua and shell
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(if $(lua_files),luacheck $(lua_files),@echo "luacheck: no Lua files")
	shellcheck scripts/* .ci/run

bench: bench-table bench-server bench-load bench-http ## measure everything with N rows (10000000), and write docs/benchmarks.md
	cargo run --release -p card-bench --bin summary

bench-table: deps ## measure the table alone; more options in ARGS
	cargo run --release -p card-bench --bin table -- --rows $(N) --outcomes $(OUTCOMES) $(ARGS)

bench-server: build ## measure the module in a server beside its peers
	cargo run --release -p card-bench --bin server -- --rows $(N) --outcomes $(OUTCOMES) $(ARGS)

bench-load: build ## measure loads of files beside the seed's way
	cargo run --release -p card-bench --bin load -- --rows $(N) --outcomes $(OUTCOMES) $(ARGS)

bench-http: build ## measure queries over HTTP beside webdis
	@scripts/deps bench
	cargo run --release -p card-bench --bin http -- --rows $(N) --outcomes $(OUTCOMES) $(ARGS)

fuzz: ## fuzz each decoder for SECONDS_EACH (60); needs the nightly compiler
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds
	mkdir -p fuzz/corpus/decoder fuzz/corpus/tsv
	cargo +nightly fuzz run decoder fuzz/corpus/decoder fuzz/seeds/decoder -- -max_total_time=$(SECONDS_EACH)
	cargo +nightly fuzz run tsv fuzz/corpus/tsv fuzz/seeds/tsv -- -max_total_time=$(SECONDS_EACH)

clean: ## remove what was built
	cargo clean
