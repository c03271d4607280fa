# ribtide: the commands of the house. `make help` lists them.
#
# `make run` and `make test` work from a fresh clone on a fresh machine: scripts/setup installs what is missing
# (system packages through apt when root, crates through cargo).

# Under a quarter of an hour on two cores. `ribtide bench run bgp --help` lists what there is.
BENCH ?= --work learn,withdraw,reflect,flap,single,churn --dut ribtide:shards=1,ribtide:auto,bird,frr --runs 3

.PHONY: help run test book lint deny bench campaign simulate differential mutants soak interop fuzz tsan loom deb packages fmt setup clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

run: ## build, load a full table over BGP into the virtual ASIC, show it (MRT=FILE, PREFIXES=N, ONCE=1)
	@scripts/setup run
	@scripts/run

test: ## unit, property, end-to-end and interoperability tests, and what lint checks
	@scripts/setup test
	@scripts/test

lint: ## formatting, clippy without warnings, crate graph and invariants (`cargo xtask CHECK` runs one of them)
	@scripts/setup lint
	@cargo xtask

deny: ## licences, sources and advisories of all dependencies, by cargo-deny and deny.toml; needs the advisory database's host
	@scripts/setup deny
	@cargo deny check

interop: ## only the tests against other daemons, Redis and the kernel
	@scripts/setup test
	@scripts/test interop

bench: ## BGP beside other daemons, in the same run; BENCH='--work learn --runs 5' for another choice (docs/perf/)
	@scripts/setup bench
	@cargo run --release --quiet --package ribtide -- bench run bgp $(BENCH)

campaign: ## kill, stall, disconnect and restart SONiC's daemons and Redis under load in each combination (CAMPAIGN_ROUNDS, CAMPAIGN_SEED)
	@scripts/setup test
	@CAMPAIGN_ROUNDS=$${CAMPAIGN_ROUNDS:-50} scripts/test interop -s -k test_campaign

simulate: ## the router in one thread with faults from seeds (ON=kernel, SEEDS=A..B, SCRIPT=… repeats one; docs/adr/0026)
	@scripts/setup lint
	@cargo run --quiet --package ribtide-sim --features fixed-hash -- $(if $(filter kernel,$(ON)),--kernel) $(if $(SCRIPT),--script $(SCRIPT),--seeds $(or $(SEEDS),0..10000))

differential: ## random topologies and histories into ribtide, FRR and BIRD, compared (DIFFERENTIAL_HISTORIES, DIFFERENTIAL_SEED)
	@scripts/setup test
	@cargo build --release --quiet --package ribtide
	@PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/differential --histories $${DIFFERENTIAL_HISTORIES:-1000} --seed $${DIFFERENTIAL_SEED:-1}

mutants: ## faults inserted into a copy, each of which a named test must notice (NAMES='ribd flush', SHARD=K/N)
	@scripts/setup lint
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/mutants $(NAMES)

soak: ## an hour of churn, flaps, kills, foreign changes, refusals and reloads, all copies compared (SOAK_MINUTES, SOAK_SEED; tests/soak)
	@scripts/setup test
	@cargo build --release --quiet --package ribtide
	@PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/soak --minutes $${SOAK_MINUTES:-60} --seed $${SOAK_SEED:-1}

fuzz: ## bytes from outside, guided by coverage; TARGETS='update fpm' for some, FUZZ_SECONDS for each
	@scripts/setup fuzz
	@scripts/fuzz $(TARGETS)

tsan: ## tests with threads under ThreadSanitizer
	@scripts/tsan

loom: ## models of rings, calls, stop and hand-overs in loom: every order of their threads (LOOM_MAX_PREEMPTIONS)
	@scripts/loom

book: ## the documents as a book of web pages in target/book, by mdBook (docs/SUMMARY.md)
	@scripts/setup book
	@PATH="$$HOME/.cargo/bin:$$PATH" mdbook build

deb: ## the Debian package in target/debian: binary, unit, manual pages, completions, documents (docs/installation.md)
	@scripts/setup deb
	@scripts/package

packages: ## test of the package: contents, modes, lintian, installation, upgrade, removal and purge in a Debian of its own
	@scripts/setup packages
	@PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m pytest -q tests/packages

fmt: ## format all code
	cargo fmt --all

setup: ## install what run and test need
	@scripts/setup test

clean: ## remove what was built
	cargo clean
