/* Stage `concrete`: devices, regions, offsets, chosen implementations, commands, and a typed target extension. No
 * predicted time. The ids of regions are made of the name "memory", of buffers of the portable buffer's role, of
 * commands of the portable task's name.
 */
#ifndef BP_IR_CONCRETE_IR_H
#define BP_IR_CONCRETE_IR_H

#include "common/ir/ir.h"

#define BP_QUEUE(suffix, name) BP_QUEUE_##suffix,
enum bp_queue {
#include "common/ir/vocabulary.def"
    BP_QUEUE_NONE
};
#undef BP_QUEUE
extern const char *const bp_queue_names[]; /* NULL-terminated */

struct bp_concrete_region {
    struct bp_id id;
    uint64_t device;
    struct bp_bytes capacity;
};

struct bp_concrete_buffer {
    struct bp_id id;
    struct bp_id source; /* the portable buffer */
    uint32_t region;
    struct bp_bytes offset, size;
    uint64_t alignment;
    struct bp_lineage lineage;
};

struct bp_concrete_use {
    uint32_t buffer;
    enum bp_access access;
};

struct bp_concrete_command {
    struct bp_id id;
    struct bp_id task; /* the portable task */
    enum bp_task_kind kind;
    enum bp_queue queue; /* BP_QUEUE_NONE on a target without queues */
    const char *implementation;
    struct bp_list dependencies; /* of `commands` */
    const struct bp_concrete_use *uses;
    uint32_t n_uses;
    struct bp_lineage lineage;
};

struct bp_slot_issue {
    uint32_t command;
    uint64_t cycle, slot;
};
struct bp_slot_route {
    uint32_t command;
    uint64_t source, destination, channel;
};

struct bp_concrete_ir {
    struct bp_digest parent;  /* the portable snapshot */
    struct bp_digest binding; /* fingerprint of {deployment, target}, which the ids are made of; zero when decoded, as
                               * it is not in the snapshot */
    struct bp_digest target_fingerprint, deployment_fingerprint;
    enum bp_target_kind target;
    uint64_t n_devices; /* devices 0 to n_devices - 1 */
    const struct bp_concrete_region *regions;
    uint32_t n_regions;
    const struct bp_concrete_buffer *buffers;
    uint32_t n_buffers;
    const struct bp_concrete_command *commands;
    uint32_t n_commands;
    struct bp_list queues[BP_QUEUE_NONE]; /* queue-order extension: commands in issue order */
    const struct bp_slot_issue *issues;   /* slot-dataflow extension */
    uint32_t n_issues;
    const struct bp_slot_route *routes;
    uint32_t n_routes;
};

int bp_concrete_ir_encode(const struct bp_concrete_ir *ir, struct bp_buf *out, struct bp_err *err);
const struct bp_concrete_ir *bp_concrete_ir_decode(const char *bytes, size_t n, struct bp_arena *arena,
                                                   struct bp_err *err);

#endif
