# The property tests: see main.c for what the environment sets.
PROPERTY_OBJS = $(call objs,$(wildcard tests/property/*.c tests/reference/*.c))

$(BUILD)/tests/property: $(PROPERTY_OBJS) $(TEST_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	$(link) $(COMMON_LIBS) $(TEST_LIBS)

check-property: $(BUILD)/tests/property
	$(BUILD)/tests/property $(SUITES)

programs: $(BUILD)/tests/property
.PHONY: check-property
