/* What the kernel says of this process, for the metrics. */
#ifndef BP_DAEMON_PROCESS_H
#define BP_DAEMON_PROCESS_H

#include "daemon/metrics.h"

/* Fills in the samples of the process; BP_UNKNOWN where the kernel does not say. They are taken at most once a second,
 * for counting descriptors takes as long as there are many. HTTP thread only. */
void bp_process_gauges(uint64_t gauges[BP_GAUGE_N]);

#endif
