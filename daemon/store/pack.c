/* How snapshots are kept: one zstd frame each. No checksum in the frame: the digest is the check. */
#include <stdlib.h>

#include <zstd.h>

#include "daemon/store/store.h"

enum { LEVEL = 1 };

/* Contexts are made at their first use: a worker only packs, a reader only unpacks. */
struct bp_store_packer {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
};

struct bp_store_packer *bp_store_packer_new(void)
{
    return calloc(1, sizeof(struct bp_store_packer));
}

void bp_store_packer_free(struct bp_store_packer *packer)
{
    if (!packer)
        return;
    ZSTD_freeCCtx(packer->compress);
    ZSTD_freeDCtx(packer->decompress);
    free(packer);
}

int bp_store_pack(struct bp_store_packer *packer, const void *bytes, size_t n, struct bp_buf *out, struct bp_err *err)
{
    if (n > BP_STORE_SNAPSHOT_MAX)
        return bp_fail(err, BP_E_quantity_overflow, "", "a snapshot of %zu bytes is too large to be stored", n);
    if (!packer->compress)
        packer->compress = ZSTD_createCCtx();
    if (!packer->compress || !bp_buf_reserve(out, ZSTD_compressBound(n)))
        return bp_fail(err, BP_E_out_of_memory, "", "no memory to pack %zu bytes", n);
    size_t packed =
        ZSTD_compressCCtx(packer->compress, out->data + out->len, out->allocated - out->len, bytes, n, LEVEL);
    if (ZSTD_isError(packed)) /* there is room enough: only its own memory can be short */
        return bp_fail(err, BP_E_out_of_memory, "", "packing %zu bytes: %s", n, ZSTD_getErrorName(packed));
    out->len += packed;
    return 0;
}

int bp_store_unpack(struct bp_store_packer *packer, const void *packed, size_t n, uint64_t n_bytes, struct bp_buf *out,
                    struct bp_err *err)
{
    /* Before memory is asked for on the word of bytes that may be damaged: two records of the length must agree. */
    if (n_bytes > BP_STORE_SNAPSHOT_MAX || ZSTD_getFrameContentSize(packed, n) != n_bytes)
        return bp_fail(err, BP_E_snapshot_corrupt, "", "the packed bytes do not have the length they are stored with");
    if (!packer->decompress)
        packer->decompress = ZSTD_createDCtx();
    if (!packer->decompress || !bp_buf_reserve(out, (size_t)n_bytes + 1))
        return bp_fail(err, BP_E_out_of_memory, "", "no memory to unpack a snapshot");
    size_t unpacked = ZSTD_decompressDCtx(packer->decompress, out->data + out->len, (size_t)n_bytes, packed, n);
    if (ZSTD_isError(unpacked) || unpacked != n_bytes)
        return bp_fail(err, BP_E_snapshot_corrupt, "", "the packed bytes do not unpack: %s",
                       ZSTD_getErrorName(unpacked));
    out->len += unpacked;
    return 0;
}
