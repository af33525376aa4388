# blueprintd. Works alone; ./configure, which make configure makes, writes config.mk, which overrides what is set here.
#
#   make              build/blueprintd and build/blueprint
#   make demo         set up, build, and plan a public model end to end
#   make check        set up, build, run the tests
#   make deps         install what the build and the tests need (Debian packages; silent when nothing is missing)
#   make check-long   the tests that take minutes: more cases, every failure of disk and memory, 200 crashes, valgrind, five minutes for each fuzz target
#   make check-sanitized  every test with the address and undefined-behaviour sanitizers, then with the thread sanitizer
#   make check-soak   BP_SOAK_REQUESTS (4000) requests, valid, refused and given up, on one database
#   make check-fuzz   every fuzz target for FUZZ_SECONDS (20), with clang's libFuzzer
#   make check-node   validate the API's answers against its OpenAPI, lint that, compare canonical bytes (needs npm)
#   make check-metrics  /metrics by promtool, the Grafana dashboard by a Prometheus that scrapes a daemon
#   make golden       hold the passes at their new revisions to what they derive now
#   make bench        measure, beside a baseline of the same run
#   make docs         render docs/passes and docs/metrics.md from their tables, and what the session of README.md prints
#   make check-docs   whether they are stale, and whether the examples of the other pages still run
#   make install      DESTDIR and prefix are honoured; make uninstall takes it back
#   make deb          a Debian package, in build/deb
#   make check-systemd  the units: valid, confined, the user and directories they need
#   make check-man    the manual pages: well-formed, and nothing of the tables is missing
#   make check-completion  the shell's completions against the programs and a daemon
#   make check-package  the package installed, used and removed under a systemd of its own (as root)
#   make dist         a source archive of HEAD
#   make coverage     line coverage of common/, at least COVERAGE_LEAST per cent
#
# Another flavour is another build directory: make BUILD=build/asan EXTRA_CFLAGS=-fsanitize=address,undefined

VERSION := $(shell sed -n 's/.*BP_VERSION "\(.*\)"/\1/p' common/base/version.h)
prefix = /usr/local
bindir = $(prefix)/bin
mandir = $(prefix)/share/man
unitdir = $(prefix)/lib/systemd/system
completionsdir = $(prefix)/share/bash-completion/completions
# What is set up on a machine is in /etc, and under prefix where that is the administrator's own.
sysconfdir = $(if $(filter /usr,$(prefix)),/etc,$(prefix)/etc)
sysusersdir = $(prefix)/lib/sysusers.d
tmpfilesdir = $(prefix)/lib/tmpfiles.d
BUILD = build
CC = cc
CLANG = clang
CFLAGS = -O2 -g
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
PKG_CONFIG = pkg-config
PYTHON = /usr/bin/python3
CLANG_FORMAT = clang-format-14
GCOV = gcov
COVERAGE_LEAST = 95

-include config.mk

COMMON_PKGS = jansson nettle
DAEMON_PKGS = libmicrohttpd gnutls sqlite3 libzstd inih libsystemd
# yaml is of the importers in common/request, which the client alone calls.
CLIENT_PKGS = libcurl yaml-0.1
TEST_PKGS = check
ALL_PKGS = $(COMMON_PKGS) $(DAEMON_PKGS) $(CLIENT_PKGS) $(TEST_PKGS)

pkg = $(shell $(PKG_CONFIG) $(1) $(2) 2>/dev/null)
PKG_CFLAGS := $(call pkg,--cflags,$(ALL_PKGS))

BP_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -I$(BUILD)/gen -pthread \
	$(WARNINGS) $(EXTRA_CFLAGS) $(CFLAGS) $(PKG_CFLAGS)
BP_LDFLAGS = -pthread $(EXTRA_CFLAGS) $(LDFLAGS)

COMMON_LIBS = $(call pkg,--libs,$(COMMON_PKGS))
DAEMON_LIBS = $(call pkg,--libs,$(DAEMON_PKGS))
CLIENT_LIBS = $(call pkg,--libs,$(CLIENT_PKGS))
TEST_LIBS = $(call pkg,--libs,$(TEST_PKGS))

COMMON_SRC = $(wildcard common/*.c common/*/*.c)
DAEMON_SRC = $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c))
CLIENT_SRC = $(filter-out client/main.c,$(wildcard client/*.c))
TESTLIB_SRC = $(wildcard tests/lib/*.c tests/reference/*.c)
UNIT_SRC = $(wildcard tests/unit/*.c)
PROPERTY_SRC = $(wildcard tests/property/*.c)
API_SRC = $(wildcard tests/api/*.c tests/http/*.c)
FAULT_SRC = $(wildcard tests/fault/*.c) tests/api/server.c tests/api/http.c tests/api/expect.c \
	tests/http/wire.c
BENCH_SRC = $(wildcard tests/bench/*.c)
FUZZ_SRC = $(filter-out tests/fuzz/fuzz_%.c,$(wildcard tests/fuzz/*.c))
FUZZ_TARGETS = $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

COMMON_LIB = $(BUILD)/libcommon.a
DAEMON_LIB = $(BUILD)/libdaemon.a
CLIENT_LIB = $(BUILD)/libclient.a
TEST_LIB = $(BUILD)/libtest.a

all: $(BUILD)/blueprintd $(BUILD)/blueprint

# Commands are shown in short; V=1 shows them whole.
ifndef V
QUIET_CC = @echo '   ' CC $@;
QUIET_AR = @echo '   ' AR $@;
QUIET_LINK = @echo '   ' LINK $@;
QUIET_GEN = @echo '   ' GEN $@;
endif

# How it was compiled: objects are made again when that changes.
FLAGS = $(CC) $(BP_CFLAGS) / $(BP_LDFLAGS)
$(BUILD)/flags: force
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(QUIET_CC)$(CC) $(BP_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(QUIET_CC)$(CC) $(BP_CFLAGS) -MMD -MP -c -o $@ $<

archive = $(QUIET_AR)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

$(COMMON_LIB): $(call objs,$(COMMON_SRC))
	$(archive)

$(DAEMON_LIB): $(call objs,$(DAEMON_SRC)) $(BUILD)/obj/gen/migrations.o $(BUILD)/obj/gen/openapi.o
	$(archive)

$(CLIENT_LIB): $(call objs,$(CLIENT_SRC))
	$(archive)

$(TEST_LIB): $(call objs,$(TESTLIB_SRC))
	$(archive)

# What is compiled in from schema/: the migrations, and the API's description with its schemas as one JSON document.
SCHEMAS = $(wildcard schema/*.schema.json)
MIGRATIONS = $(sort $(wildcard schema/migrations/*.sql))

$(BUILD)/gen/openapi.json: schema/openapi.yaml schema/bundle.py daemon/http/routes.def $(SCHEMAS)
	@mkdir -p $(@D)
	$(QUIET_GEN)$(PYTHON) schema/bundle.py schema/openapi.yaml daemon/http/routes.def >$@.tmp && mv $@.tmp $@

$(BUILD)/gen/openapi.c: $(BUILD)/gen/openapi.json schema/embed.sh
	$(QUIET_GEN)sh schema/embed.sh bp_openapi $(BUILD)/gen/openapi.json >$@.tmp && mv $@.tmp $@

$(BUILD)/gen/migrations.c: $(MIGRATIONS) schema/embed.sh
	@mkdir -p $(@D)
	$(QUIET_GEN)sh schema/embed.sh bp_migrations $(MIGRATIONS) >$@.tmp && mv $@.tmp $@

link = $(QUIET_LINK)$(CC) $(BP_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^)

$(BUILD)/blueprintd: $(call objs,daemon/main.c) $(DAEMON_LIB) $(COMMON_LIB)
	$(link) $(DAEMON_LIBS) $(COMMON_LIBS)

$(BUILD)/blueprint: $(call objs,client/main.c) $(CLIENT_LIB) $(COMMON_LIB)
	$(link) $(CLIENT_LIBS) $(COMMON_LIBS)

# --- tests

$(BUILD)/tests/unit: $(call objs,$(UNIT_SRC)) $(TEST_LIB) $(DAEMON_LIB) $(CLIENT_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(DAEMON_LIBS) $(CLIENT_LIBS) $(COMMON_LIBS) $(TEST_LIBS)

$(BUILD)/tests/property: $(call objs,$(PROPERTY_SRC)) $(TEST_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(COMMON_LIBS) $(TEST_LIBS)

$(BUILD)/tests/api: $(call objs,$(API_SRC)) $(TEST_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(call pkg,--libs,sqlite3 libzstd) $(CLIENT_LIBS) $(COMMON_LIBS) $(TEST_LIBS)

$(BUILD)/tests/fault: $(call objs,$(FAULT_SRC)) $(TEST_LIB) $(DAEMON_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(DAEMON_LIBS) $(CLIENT_LIBS) $(COMMON_LIBS) $(TEST_LIBS)

$(BUILD)/tests/bench: $(call objs,$(BENCH_SRC)) $(DAEMON_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(DAEMON_LIBS) $(COMMON_LIBS)

$(BUILD)/docs/render: $(call objs,docs/render.c) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(COMMON_LIBS)

$(BUILD)/docs/completion: $(call objs,docs/completion.c) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(COMMON_LIBS)

# A completion is what the tables say, and the rest of it.
$(BUILD)/completions/%: $(BUILD)/docs/completion systemd/completion/%
	@mkdir -p $(@D)
	$(QUIET_GEN){ $(BUILD)/docs/completion $* && cat systemd/completion/$*; } >$@.tmp && mv $@.tmp $@

completions: $(BUILD)/completions/blueprint $(BUILD)/completions/blueprintd

programs: all completions $(BUILD)/tests/unit $(BUILD)/tests/property $(BUILD)/tests/api $(BUILD)/tests/fault

# deps may install what pkg-config answers, so what follows it runs in a fresh make.
deps:
	@sh tests/deps.sh build

check: deps
	@$(MAKE) --no-print-directory check-arrows check-symbols check-unit check-property check-api check-faults check-crash

check-unit: $(BUILD)/tests/unit
	$(BUILD)/tests/unit $(SUITES)

check-property: $(BUILD)/tests/property
	$(BUILD)/tests/property $(SUITES)

check-api: all $(BUILD)/tests/api
	BP_BUILD=$(BUILD) $(BUILD)/tests/api $(SUITES)

# Disks and memory that fail, one call after the other.
FAULTS = vfs memory disk schema
check-faults: all $(BUILD)/tests/fault
	BP_BUILD=$(BUILD) $(BUILD)/tests/fault $(FAULTS)

# kill -9 under load, BP_CRASH_ROUNDS times, and within collections, BP_COLLECT_ROUNDS times.
check-crash: all $(BUILD)/tests/fault
	BP_BUILD=$(BUILD) $(BUILD)/tests/fault crash collect

# Two hours' worth of requests, BP_SOAK_REQUESTS of them.
check-soak: all $(BUILD)/tests/fault
	BP_BUILD=$(BUILD) $(BUILD)/tests/fault soak

# Every fuzz target for FUZZ_SECONDS, two at a time, by clang's libFuzzer with its sanitizers. The build is one of its
# own; what the runs found interesting stays in build/fuzz/corpus.
FUZZ_SECONDS = 20
FUZZ_SANITIZERS = address,undefined
check-fuzz: fuzz-deps
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=$(CLANG) CFLAGS='-O1 -g -fno-omit-frame-pointer' \
		EXTRA_CFLAGS='-Werror -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZERS) -fno-sanitize-recover=undefined' fuzz-run

fuzz-deps:
	@sh tests/deps.sh fuzz

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call objs,$(FUZZ_SRC)) $(DAEMON_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) -fsanitize=fuzzer $(CLIENT_LIBS) $(COMMON_LIBS)

fuzz-run: $(patsubst %,$(BUILD)/fuzz/%,$(FUZZ_TARGETS))
	sh tests/fuzz/run.sh $(BUILD) $(FUZZ_SECONDS)

# What a pass at a new revision is held to from now on: tests/passes.json.
golden: all $(BUILD)/tests/api
	BP_GOLDEN_WRITE=1 BP_BUILD=$(BUILD) $(BUILD)/tests/api golden

check-arrows:
	sh tests/check_arrows.sh --self-test
	sh tests/check_arrows.sh

# A pass keeps no state: nothing of common/passes may be in a writable section.
check-symbols: $(COMMON_LIB)
	sh tests/check_symbols.sh $(call objs,$(wildcard common/passes/*.c))

check-long: deps
	@sh tests/deps.sh long
	@$(MAKE) --no-print-directory check-long-built
	@$(MAKE) --no-print-directory check-sanitized
	@$(MAKE) --no-print-directory check-valgrind
	@$(MAKE) --no-print-directory check-fuzz FUZZ_SECONDS=300

# The unit tests' own processes, each test in one: what valgrind finds in one ends it with a status that Check reports.
VALGRIND = valgrind
check-valgrind: $(BUILD)/tests/unit
	CK_TIMEOUT_MULTIPLIER=200 $(VALGRIND) -q --error-exitcode=97 --leak-check=full --show-leak-kinds=definite,indirect \
		--errors-for-leak-kinds=definite,indirect --num-callers=24 $(BUILD)/tests/unit $(SUITES)

# The least that a sanitizer finds ends the process.
check-sanitized:
	ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 $(MAKE) --no-print-directory \
		BUILD=$(BUILD)/asan CFLAGS='-O1 -g' EXTRA_CFLAGS='-fsanitize=address,undefined -fno-omit-frame-pointer' sanitized-built
	TSAN_OPTIONS=halt_on_error=1 $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan CFLAGS='-O1 -g' \
		EXTRA_CFLAGS=-fsanitize=thread sanitized-built

sanitized-built: check-unit check-property check-api check-faults check-crash check-soak

check-long-built: programs
	BP_LONG=1 $(BUILD)/tests/unit
	BP_LONG=1 $(BUILD)/tests/property
	BP_LONG=1 BP_BUILD=$(BUILD) $(BUILD)/tests/api
	BP_LONG=1 BP_BUILD=$(BUILD) $(BUILD)/tests/fault

# /metrics by promtool, and the Grafana dashboard by a Prometheus that scrapes a daemon.
.PHONY: check-metrics
check-metrics: all
	BUILD=$(BUILD) PYTHON=$(PYTHON) sh tests/metrics/run.sh

check-node: programs $(BUILD)/gen/openapi.json
	BUILD=$(BUILD) sh tests/node/run.sh

demo: deps
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) sh tests/demo.sh

bench: deps
	@$(MAKE) --no-print-directory bench-built

bench-built: all $(BUILD)/tests/bench
	BP_BUILD=$(BUILD) $(BUILD)/tests/bench $(SECTIONS)

docs: all $(BUILD)/docs/render
	$(BUILD)/docs/render docs
	BUILD=$(BUILD) sh tests/readme.sh --write

check-docs: all $(BUILD)/docs/render
	rm -rf $(BUILD)/docs/passes && mkdir -p $(BUILD)/docs/passes
	$(BUILD)/docs/render $(BUILD)/docs
	diff -ru docs/passes $(BUILD)/docs/passes
	diff -u docs/metrics.md $(BUILD)/docs/metrics.md
	BUILD=$(BUILD) sh tests/readme.sh

check-systemd:
	BUILD=$(BUILD) sh tests/package/systemd.sh

check-man: all
	BUILD=$(BUILD) sh tests/package/man.sh

check-completion: all completions
	BUILD=$(BUILD) bash tests/package/completion.sh

check-package:
	@$(MAKE) --no-print-directory deb DEB_OPTIONS='nocheck noautodbgsym parallel=2'
	lintian --fail-on error,warning $(BUILD)/deb/blueprintd_*.changes
	sh tests/package/run.sh $(BUILD)/deb/blueprintd_*.deb $(BUILD)/package-test

# --- sources

FORMATTED = $(wildcard common/*.[ch] common/*/*.[ch] daemon/*.[ch] daemon/*/*.[ch] client/*.[ch] docs/*.[ch] tests/*/*.[ch])

format:
	$(CLANG_FORMAT) -i $(FORMATTED)

check-format:
	$(CLANG_FORMAT) --dry-run --Werror $(FORMATTED)

coverage:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/coverage CFLAGS='-O0 -g' EXTRA_CFLAGS='-Werror --coverage' coverage-run

coverage-run: programs
	find $(BUILD) -name '*.gcda' -delete
	$(BUILD)/tests/unit & unit=$$!; BP_PROPERTY_CASES=20 $(BUILD)/tests/property && \
		BP_BUILD=$(BUILD) $(BUILD)/tests/api golden kinds capacity && wait $$unit
	GCOV=$(GCOV) sh tests/coverage.sh $(BUILD) $(COVERAGE_LEAST)

configure: configure.ac
	autoconf -o $@ $<
	rm -rf autom4te.cache

# --- installation

UNITS = blueprintd.service blueprintd.socket blueprintd-tcp.socket
INSTALLED = $(bindir)/blueprintd $(bindir)/blueprint $(mandir)/man1/blueprint.1 $(mandir)/man8/blueprintd.8 \
	$(addprefix $(unitdir)/,$(UNITS)) $(sysusersdir)/blueprintd.conf $(tmpfilesdir)/blueprintd.conf \
	$(completionsdir)/blueprint $(completionsdir)/blueprintd

# An edited configuration is left as it is.
install: all completions
	install -d $(addprefix $(DESTDIR),$(sort $(dir $(INSTALLED)))) $(DESTDIR)$(sysconfdir)
	install -m 755 $(BUILD)/blueprintd $(BUILD)/blueprint $(DESTDIR)$(bindir)/
	install -m 644 docs/man/blueprint.1 $(DESTDIR)$(mandir)/man1/
	install -m 644 docs/man/blueprintd.8 $(DESTDIR)$(mandir)/man8/
	install -m 644 $(filter %.socket,$(addprefix systemd/,$(UNITS))) $(DESTDIR)$(unitdir)/
	sed 's|@bindir@|$(bindir)|g; s|@sysconfdir@|$(sysconfdir)|g' systemd/blueprintd.service \
		>$(DESTDIR)$(unitdir)/blueprintd.service
	install -m 644 systemd/sysusers.conf $(DESTDIR)$(sysusersdir)/blueprintd.conf
	install -m 644 systemd/tmpfiles.conf $(DESTDIR)$(tmpfilesdir)/blueprintd.conf
	install -m 644 $(BUILD)/completions/blueprint $(BUILD)/completions/blueprintd $(DESTDIR)$(completionsdir)/
	[ -e $(DESTDIR)$(sysconfdir)/blueprintd.ini ] || \
		install -m 644 systemd/blueprintd.ini $(DESTDIR)$(sysconfdir)/blueprintd.ini

# The configuration and the database stay.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))

# dpkg wants debian/ at the top of a tree: it is in that of the copy that is built.
DEB_TREE = $(BUILD)/deb/blueprintd-$(VERSION)
deb:
	@sh tests/deps.sh package
	[ "$$(dpkg-parsechangelog -l systemd/debian/changelog -S Version)" = "$(VERSION)" ]
	rm -rf $(BUILD)/deb && mkdir -p $(DEB_TREE)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(DEB_TREE)
	mv $(DEB_TREE)/systemd/debian $(DEB_TREE)/debian
	cd $(DEB_TREE) && DEB_BUILD_OPTIONS="$(DEB_OPTIONS)" dpkg-buildpackage -b -us -uc
	@ls $(BUILD)/deb/*.deb

dist:
	@mkdir -p $(BUILD)
	git archive --prefix=blueprintd-$(VERSION)/ HEAD | gzip -n9 >$(BUILD)/blueprintd-$(VERSION).tar.gz
	@echo $(BUILD)/blueprintd-$(VERSION).tar.gz

clean:
	rm -rf $(BUILD)

distclean: clean
	rm -rf config.mk config.log config.status configure autom4te.cache tests/node/node_modules

force:
.PHONY: all force programs deps check check-unit check-property check-api check-faults check-crash check-soak check-fuzz fuzz-deps fuzz-run check-valgrind check-sanitized sanitized-built golden check-arrows check-symbols check-long \
	check-long-built check-node demo bench bench-built docs check-docs format check-format coverage coverage-run \
	install uninstall deb completions check-systemd check-man check-completion check-package dist clean distclean
.DELETE_ON_ERROR:

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d)
