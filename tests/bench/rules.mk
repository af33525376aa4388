# make bench: one program, see main.c.
BENCH_OBJS = $(call objs,$(wildcard tests/bench/*.c))

$(BUILD)/bench: $(BENCH_OBJS) $(DAEMON_LIB) $(COMMON_LIB)
	$(link) $(DAEMON_LIBS) $(COMMON_LIBS)

BENCHES += $(BUILD)/bench
bench-built: $(BUILD)/bench
