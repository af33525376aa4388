/* Deterministic replay and re-derivation: the pass was run again in another arena, and the bytes must be the same. */
#include <string.h>

#include "common/gate/checks.h"
#include "common/ir/difference.h"

static void check_again(struct bp_gate *gate)
{
    const struct bp_buf *first = gate->bytes, *second = gate->again;
    char pointer[BP_POINTER_MAX] = "";
    gate->compared++;
    if (!first || !second) {
        bp_gate_finding(gate, BP_E_law_violated, "", "the pass was not run twice");
        return;
    }
    if (first->len == second->len && (first->len == 0 || memcmp(first->data, second->data, first->len) == 0))
        return;
    size_t at = 0;
    while (at < first->len && at < second->len && first->data[at] == second->data[at])
        at++;
    bp_first_difference(first->data, first->len, second->data, second->len, pointer, NULL);
    bp_gate_finding(gate, BP_E_law_violated, pointer, "the second run differs from byte %zu on", at);
}

static const struct bp_check replay_rows[] = {
    {"replay.bytes", BP_CHECK_REPLAY, "A second run of the pass gives the same bytes.", check_again},
};
const struct bp_check_group bp_replay_checks = BP_GATE_GROUP(replay_rows);

static const struct bp_check rederivation_rows[] = {
    {"rederivation.bytes", BP_CHECK_REDERIVATION, "The construction derived again is equal, byte for byte.",
     check_again},
};
const struct bp_check_group bp_rederivation_checks = BP_GATE_GROUP(rederivation_rows);
