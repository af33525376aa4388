/* The certificate that TLS connections are answered with; it can be changed while they are served.
 *
 * libmicrohttpd 0.9.75 reads a certificate once, at its start, or asks for one in each handshake. We have it ask, and
 * give each handshake a copy of its own, so a certificate that is replaced lives on in the sessions begun with it and
 * nowhere else. The callback has no place for a pointer of ours: there is one certificate a process.
 *
 * Main thread, but for bp_tls_retrieve, which GnuTLS calls on the threads of the HTTP server.
 */
#ifndef BP_HTTP_TLS_H
#define BP_HTTP_TLS_H

#include <gnutls/abstract.h>

#include "common/base/err.h"

/* TLS 1.2 and 1.3, no others; the daemon's order of ciphers. */
#define BP_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* Reads the PEM chain and its key and answers with them from now on. On failure what was read before stays. Codes:
 * config_invalid (a file's permissions, its text, a key of another certificate), out_of_memory. */
int bp_tls_load(const char *certificate, const char *key, struct bp_err *err);

/* Reads them to see whether they could be loaded. */
int bp_tls_check(const char *certificate, const char *key, struct bp_err *err);

void bp_tls_release(void); /* nothing is served any more */

/* Of type gnutls_certificate_retrieve_function3. */
int bp_tls_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info, gnutls_pcert_st **ret_chain,
                    unsigned *ret_n, gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp, gnutls_privkey_t *ret_key,
                    unsigned *ret_flags);

#endif
