# Two commands do all on a fresh Debian machine with Rust: `make run` and `make test`.

SHELL := /bin/bash
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= never
# The agent alone is optimised as one and for size, so that all sources fit into 5 MB. The server would take
# twice as long to build for nothing.
AGENT_PROFILE := CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_OPT_LEVEL=s

.PHONY: run build programs test check golden bench bench-full bench-month fuzz sim docs clients soak install release ready

# Builds, starts `jobmeter up` in the foreground, prints the page's address. Data stays in .jobmeter/.
run: programs
	@exec ./jobmeter up --data .jobmeter/data

# The programs side by side in target/bin, where `up` finds them, and the link ./jobmeter.
programs: build
	@mkdir -p target/bin
	@ln -f target/debug/jobmeter{,-server,-poller} target/release/jobmeter-agent target/bin/
	@ln -sfn target/bin/jobmeter jobmeter

# The agent alone is built in release: its cost is the product. The rest shares the tests' profile. Both builds run
# at once, because the last step of the agent's takes one processor for a minute.
build: ready
	@$(MAKE) --no-print-directory -j2 build-agent build-server
.PHONY: build-agent build-server
build-agent:
	$(AGENT_PROFILE) $(CARGO) build --locked --release -p agent
build-server:
	$(CARGO) build --locked -p server -p jobmeter -p pollers

# Says in one line what is missing on this machine, and asks for it when it may.
ready:
	@packaging/ready.sh

# Everything: format, lints, tests of every crate, whole programs, the page in a browser.
test: ready
	@tests/all.sh

# The quick part of `make test`.
check: ready
	@tests/all.sh check

# Rewrites the golden answers; read the difference, it is the user's view of the work.
golden:
	UPDATE_GOLDEN=1 $(CARGO) test --locked -p sources --test golden
	git --no-pager diff --stat testdata

# Rewrites the generated documents.
docs:
	UPDATE_DOCS=1 $(CARGO) test --locked -p jobmeter --test docs
	UPDATE_DOCS=1 $(CARGO) test --locked -p jobmeter --bins guides
	UPDATE_DOCS=1 $(CARGO) test --locked -p fuzz --test typed_corpus

# Measures; nothing is asserted as a time. Results belong into docs/performance.md, with the machine. As root:
# the agent is measured on jobs of its own making, beside what it replaces.
bench: release
	$(CARGO) bench --locked -p store -p query -p jobs -p schedulers -p postgres
	$(CARGO) bench --locked -p store --bench http -- --swarm
	$(CARGO) bench --locked -p store --bench http -- --attacks
	python3 -B benches/run_wall.py
	python3 -B benches/feed.py
	python3 -B benches/polls.py
	python3 -B benches/database.py
	python3 -B benches/postgres.py
	benches/victoria.sh
	benches/agent.sh

# The whole agent beside all its peers, with 505 tasks, at 5 s and at 1 s, in turn: an hour. As root. Shorter with
# SECONDS_EACH= and ROUNDS=. Then how late readings begin at a thousand a second.
bench-full: ready
	$(AGENT_PROFILE) $(CARGO) build --locked --release -p agent
	SECONDS=$${SECONDS_EACH:-60} ROUNDS=$${ROUNDS:-2} PERIODS=5,1 TASKS=505 KINDS=spread,processes WARMUP=10 \
		PROGRAMS=agent-default,agent-all,colmet,node-exporter,netdata,collectd benches/agent.sh
	python3 -B benches/rates.py

# A month of dataset A: 2.6 billion samples, taken in once (a quarter of an hour of 2 cores, 5 GB below target/bench,
# half as much again meanwhile), kept, and asked; again only asked. Fewer with DAYS=.
bench-month: DAYS ?= 30
bench-month: ready
	mkdir -p target/bench/month
	$(CARGO) bench --locked -p query --bench month -- $(CURDIR)/target/bench/month $(DAYS)

# An hour of our own agent beside twenty jobs at work, which `make bench` then weighs. As root; takes an hour.
target/bench/dataset-b.frames: | release
	mkdir -p target/bench
	python3 -B benches/dataset_b.py $@.part
	mv $@.part $@

# Fuzzes the parsers and decoders for a while; what it finds goes into fuzz/corpus, which `make test` replays.
fuzz:
	fuzz/run.sh

# More worlds of the simulation than `make test` runs: SEEDS of them, from FIRST on; or the one of SEED.
sim: SEEDS ?= 2000
sim: FIRST ?= $(shell date +%s)
sim:
	SEEDS=$(SEEDS) FIRST=$(FIRST) $(CARGO) test --locked -p sim --test seeds -- --nocapture

# Drivers of PostgreSQL in Go and Java against the server. They need Go, a JDK and Maven (docs/testing.md).
clients: build-server
	tests/server/pg/foreign/clients.sh

# The long runs of what `make test` does short.
soak: programs
	tests/all.sh soak

# An installation is a release build: the server takes 10 to 20 minutes on 2 cores. By the root of a machine
# that builds as another user: `make release` first, then `sudo packaging/install.sh`.
install: release
	packaging/install.sh

# Built apart, so that the agent has no feature of a library that only the server asks for.
release: ready
	$(CARGO) build --locked --release -p server -p jobmeter -p pollers
	$(AGENT_PROFILE) $(CARGO) build --locked --release -p agent
