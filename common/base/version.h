/* The version of this source tree, for --version, /healthz and the user agent. */
#ifndef BP_BASE_VERSION_H
#define BP_BASE_VERSION_H

#define BP_VERSION "0.1.0"

#endif
