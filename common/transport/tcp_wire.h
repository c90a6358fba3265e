/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tcp data connection speaks after PATH_DONE. Little-endian records of 64 bytes:
 *
 *    0 magic "SWDR"   4 kind (u16)   6 zero (u16)   8 n (u32)   12 code (i32)
 *   16 window (16 bytes)            32 bytes (u64)
 *   40 offset (u64)  48 length (u64)  56 region (u32)  60 zero (u32)        <- the first extent
 *
 * WRITE   writer -> target: n extents (1 .. SW_WIRE_EXTENTS). The first is in the record, the
 * others follow as a table of 24 bytes each (offset, length, region, zero), then the payloads in
 *         that order. `bytes` is the sum of the lengths.
 * FLUSH   writer -> target: answered by ACK, whose `bytes` were placed for writes of this window
 * that came on this connection since the FLUSH before (or since the window's first write). READ
 * writer -> target: extents as in WRITE, without payload; answered by READ_REPLY and the bytes, in
 * that order. The target reads on only when the answer is sent. REFUSED target -> writer, last:
 * `code` is one of enum sw_code, `bytes` of text follow.
 *
 * Many small extents in one record cost one call on either side, and a large one costs its 64
 * bytes, received along with the payload before it. Connections know no order among each other.
 */
#ifndef SW_COMMON_TRANSPORT_TCP_WIRE_H
#define SW_COMMON_TRANSPORT_TCP_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <string.h>
#include "common/message.h"

#define SW_WIRE_RECORD 64u
#define SW_WIRE_EXTENT 24u
#define SW_WIRE_EXTENTS 512u /* with its header, well under IOV_MAX pieces */
#define SW_WIRE_TABLE ((SW_WIRE_EXTENTS - 1) * SW_WIRE_EXTENT)
#define SW_WIRE_TEXT 512u       /* at most, in REFUSED */
#define SW_WIRE_READ (1u << 18) /* bytes that one READ may ask for */

enum sw_wire_kind {
    SW_WIRE_WRITE = 1,
    SW_WIRE_FLUSH = 2,
    SW_WIRE_ACK = 3,
    SW_WIRE_READ_ASK = 4,
    SW_WIRE_READ_REPLY = 5,
    SW_WIRE_REFUSED = 6,
};

struct sw_wire_extent {
    uint64_t offset, length;
    uint32_t region;
};

struct sw_wire_record {
    uint32_t kind, n;
    int32_t code;
    struct sw_id window;
    uint64_t bytes;
    struct sw_wire_extent first;
};

static inline void sw_wire_put16(uint8_t *at, uint16_t v)
{
    v = htole16(v);
    memcpy(at, &v, sizeof(v));
}

static inline void sw_wire_put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static inline void sw_wire_put64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static inline uint16_t sw_wire_get16(const uint8_t *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof(v));
    return le16toh(v);
}

static inline uint32_t sw_wire_get32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static inline uint64_t sw_wire_get64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

static inline void sw_wire_put_extent(uint8_t *at, const struct sw_wire_extent *x)
{
    sw_wire_put64(at, x->offset);
    sw_wire_put64(at + 8, x->length);
    sw_wire_put32(at + 16, x->region);
    sw_wire_put32(at + 20, 0);
}

static inline void sw_wire_get_extent(const uint8_t *at, struct sw_wire_extent *x)
{
    x->offset = sw_wire_get64(at);
    x->length = sw_wire_get64(at + 8);
    x->region = sw_wire_get32(at + 16);
}

static inline void sw_wire_put_record(uint8_t out[SW_WIRE_RECORD], const struct sw_wire_record *r)
{
    memcpy(out, "SWDR", 4);
    sw_wire_put16(out + 4, (uint16_t)r->kind);
    sw_wire_put16(out + 6, 0);
    sw_wire_put32(out + 8, r->n);
    sw_wire_put32(out + 12, (uint32_t)r->code);
    memcpy(out + 16, r->window.bytes, 16);
    sw_wire_put64(out + 32, r->bytes);
    sw_wire_put_extent(out + 40, &r->first);
}

/* False: no record (wrong magic). Values are not checked. */
static inline bool sw_wire_get_record(const uint8_t in[SW_WIRE_RECORD], struct sw_wire_record *r)
{
    if (memcmp(in, "SWDR", 4) != 0 || sw_wire_get16(in + 6) != 0)
        return false;
    r->kind = sw_wire_get16(in + 4);
    r->n = sw_wire_get32(in + 8);
    r->code = (int32_t)sw_wire_get32(in + 12);
    memcpy(r->window.bytes, in + 16, 16);
    r->bytes = sw_wire_get64(in + 32);
    sw_wire_get_extent(in + 40, &r->first);
    return true;
}

#endif
