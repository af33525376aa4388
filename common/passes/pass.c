#include "common/passes/pass.h"

const char *const bp_binding_names[] = {"workload", "strategy", "target", "deployment", NULL};
