# Every door of the project. Each target installs what it needs and says what it does.

CARGO ?= cargo
# FEATURES=dpdk: make build and make install also make libpostern_dpdk.so, which needs DPDK's headers.
FEATURES ?=
# FEATURES=openvpn: make dist TARGET=armv7-small-musl makes a program with this cargo feature, which that target leaves out.
# TARGET=aarch64: make dist builds for another processor.
TARGET ?=
# PGO=target/profile/postern.profdata: make dist builds by the profile that make profile has made.
PGO ?=
FUZZ_SECONDS ?= 60
RUN ?= bench/runs/$(shell date +%F)-$(shell uname -m)

.PHONY: help setup build demo test lint fuzz bench docs install dist profile image dist-check clean

help:
	@echo "make demo    two sites on this machine, a tunnel between them, real traffic, a table (root)"
	@echo "make test    all tests (root for those with network namespaces); NO_SKIP=1 fails those that cannot run"
	@echo "             ARM=1 also builds for ARM, 30 minutes more, for tunnels with emulated routers (root)"
	@echo "             NO_BROWSER=1 fetches no browser: the test of the status page is skipped"
	@echo "make lint    format, clippy, licences and sources of dependencies"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make bench   all benchmarks, written to RUN=$(RUN) (root)"
	@echo "make docs    the guide as a book, in target/book"
	@echo "make setup   only what these need"
	@echo "make dist    .deb, .rpm, a tarball and an image of this machine's architecture, in target/dist; make dist-check tries them (root)"
	@echo "             TARGET=aarch64, armv7, x86_64-musl, ... builds for ARM or statically, then also for OpenWrt, in target/dist/TARGET (root); scripts/cross.sh list"
	@echo "make profile what make dist PGO=target/profile/postern.profdata builds a faster program by (root)"
	@echo "make image   only the image for containers"
	@echo "make install the program to /usr/local/bin, with its second name for wg-quick, man pages and completions; FEATURES=dpdk"

setup:
	scripts/setup.sh test

build:
	$(CARGO) build --package postern --release --locked --features "$(FEATURES)"
	@ln -sf postern target/release/postern-wireguard

demo:
	scripts/setup.sh demo
	$(MAKE) build
	target/release/postern demo

export ARM
test:
	scripts/setup.sh test
	[ -z "$(ARM)" ] || { scripts/cross.sh machine aarch64 && scripts/cross.sh machine armv7; }
	$(CARGO) test --workspace --features postern-dpdk-shim/double --profile testing --locked --no-fail-fast -- --test-threads 3

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package postern --no-default-features --locked -- -D warnings
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) fetch --locked
	$(CARGO) deny --offline check licenses bans sources

fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	scripts/fuzz.sh $(FUZZ_SECONDS)

bench:
	scripts/setup.sh bench
	$(MAKE) build
	scripts/bench.sh $(RUN)

docs:
	@command -v mdbook >/dev/null || $(CARGO) install --locked mdbook
	mdbook build docs

install: build
	install -D target/release/postern $(DESTDIR)/usr/local/bin/postern
	ln -sf postern $(DESTDIR)/usr/local/bin/postern-wireguard
ifneq ($(filter dpdk,$(FEATURES)),)
	install -D target/release/libpostern_dpdk.so $(DESTDIR)/usr/local/lib/postern/libpostern_dpdk.so
endif
	target/release/postern generate manual $(DESTDIR)/usr/local/share

dist:
	TARGET=$(TARGET) PGO=$(PGO) FEATURES="$(FEATURES)" CARGO=$(CARGO) scripts/dist.sh make

profile:
	CARGO=$(CARGO) scripts/profile.sh

image:
	TARGET=$(TARGET) PGO=$(PGO) FEATURES="$(FEATURES)" CARGO=$(CARGO) scripts/dist.sh image

dist-check:
	TARGET=$(TARGET) PGO=$(PGO) FEATURES="$(FEATURES)" CARGO=$(CARGO) scripts/dist.sh check

clean:
	$(CARGO) clean
	rm -rf .peers fuzz/artifacts fuzz/coverage
