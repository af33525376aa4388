/* The check of a whole database beyond its rows: what can be derived again must be what is stored. */
#ifndef BP_SERVICE_VERIFY_H
#define BP_SERVICE_VERIFY_H

#include "daemon/store/store.h"

/* bp_store_verify, and then of every plan: that its request is in canonical form, and that its id, its model, mode and
 * parameters, its stages, the bindings of its derivations and its facts are what follows from it and from the stored
 * snapshots; that every snapshot names its stage, its schema and its parent; and of what passes of the present
 * revisions derived, that the same snapshot and the same evidence come out again. The file may be in use. -1 as
 * bp_store_verify. Any thread. */
int bp_service_verify(const char *database, const struct bp_store_verifier *verifier, struct bp_store_verified *ret,
                      struct bp_err *err);

#endif
