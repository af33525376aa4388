#include "daemon/http/tls.h"

#include <pthread.h>
#include <stdlib.h>

#include "daemon/access/secret.h"

/* Under the lock; NULL: none. */
static gnutls_certificate_credentials_t current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Reading ---- */

static int set_pair(gnutls_certificate_credentials_t credentials, const struct bp_buf *certificate,
                    const struct bp_buf *key, const char *path, struct bp_err *err)
{
    const gnutls_datum_t chain = {(unsigned char *)certificate->data, (unsigned)certificate->len};
    const gnutls_datum_t secret = {(unsigned char *)key->data, (unsigned)key->len};
    int rc = gnutls_certificate_set_x509_key_mem2(credentials, &chain, &secret, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc >= 0)
        return 0;
    return bp_fail(err, rc == GNUTLS_E_MEMORY_ERROR ? BP_E_out_of_memory : BP_E_config_invalid, path,
                   "is, with its key, no certificate to serve with: %s", gnutls_strerror(rc));
}

static int read_pair(const char *certificate, const char *key, gnutls_certificate_credentials_t *ret,
                     struct bp_err *err)
{
    struct bp_buf chain = {0}, secret = {0};
    gnutls_certificate_credentials_t credentials = NULL;
    int result = -1;
    if (bp_secret_read(certificate, BP_FILE_PUBLIC, &chain, err) == 0 &&
        bp_secret_read(key, BP_FILE_SECRET, &secret, err) == 0) {
        if (gnutls_certificate_allocate_credentials(&credentials) < 0)
            bp_fail(err, BP_E_out_of_memory, "", "no memory for the certificate");
        else
            result = set_pair(credentials, &chain, &secret, certificate, err);
    }
    bp_buf_release(&chain);
    bp_secret_release(&secret);
    if (result == 0)
        *ret = credentials;
    else if (credentials)
        gnutls_certificate_free_credentials(credentials);
    return result;
}

int bp_tls_check(const char *certificate, const char *key, struct bp_err *err)
{
    gnutls_certificate_credentials_t credentials;
    if (read_pair(certificate, key, &credentials, err))
        return -1;
    gnutls_certificate_free_credentials(credentials);
    return 0;
}

static void replace(gnutls_certificate_credentials_t credentials)
{
    pthread_mutex_lock(&lock);
    gnutls_certificate_credentials_t before = current;
    current = credentials;
    pthread_mutex_unlock(&lock);
    if (before)
        gnutls_certificate_free_credentials(before);
}

int bp_tls_load(const char *certificate, const char *key, struct bp_err *err)
{
    gnutls_certificate_credentials_t credentials;
    if (read_pair(certificate, key, &credentials, err))
        return -1;
    replace(credentials);
    return 0;
}

void bp_tls_release(void)
{
    replace(NULL);
}

/* ---- A handshake ---- */

static int copy_chain(gnutls_pcert_st **ret, unsigned *ret_n)
{
    gnutls_x509_crt_t *chain = NULL;
    unsigned n = 0, made = 0;
    int rc = gnutls_certificate_get_x509_crt(current, 0, &chain, &n);
    if (rc < 0)
        return rc;
    gnutls_pcert_st *copies = gnutls_calloc(n, sizeof *copies);
    rc = copies ? 0 : GNUTLS_E_MEMORY_ERROR;
    for (; rc >= 0 && made < n; made += rc >= 0)
        rc = gnutls_pcert_import_x509(&copies[made], chain[made], 0);
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    if (rc < 0) {
        while (made)
            gnutls_pcert_deinit(&copies[--made]);
        gnutls_free(copies);
        return rc;
    }
    *ret = copies;
    *ret_n = n;
    return 0;
}

static int copy_key(gnutls_privkey_t *ret)
{
    gnutls_x509_privkey_t secret;
    gnutls_privkey_t key;
    int rc = gnutls_certificate_get_x509_key(current, 0, &secret);
    if (rc < 0)
        return rc;
    rc = gnutls_privkey_init(&key);
    if (rc >= 0 && (rc = gnutls_privkey_import_x509(key, secret, GNUTLS_PRIVKEY_IMPORT_AUTO_RELEASE)) < 0)
        gnutls_privkey_deinit(key);
    if (rc < 0)
        gnutls_x509_privkey_deinit(secret);
    else
        *ret = key;
    return rc;
}

int bp_tls_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info, gnutls_pcert_st **ret_chain,
                    unsigned *ret_n, gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp, gnutls_privkey_t *ret_key,
                    unsigned *ret_flags)
{
    gnutls_pcert_st *chain = NULL;
    unsigned n = 0;
    (void)session, (void)info;
    pthread_mutex_lock(&lock);
    int rc = current ? copy_chain(&chain, &n) : GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (rc >= 0 && (rc = copy_key(ret_key)) < 0) {
        for (unsigned i = 0; i < n; i++)
            gnutls_pcert_deinit(&chain[i]);
        gnutls_free(chain);
    }
    pthread_mutex_unlock(&lock);
    if (rc < 0)
        return -1;
    *ret_chain = chain;
    *ret_n = n;
    *ret_ocsp = NULL;
    *ret_n_ocsp = 0;
    *ret_flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}
