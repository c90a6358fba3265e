/* SPDX-License-Identifier: Apache-2.0 */
#include "common/frame.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

#define FORMAT 1

/* Where a splitter's buffer may stay between frames; a larger one is given back. */
#define KEEP_MAX (64u << 10)

void sw_frame_header(uint8_t out[SW_FRAME_HEADER], uint32_t length, uint32_t n_fds)
{
    out[0] = 'S';
    out[1] = 'W';
    out[2] = FORMAT;
    out[3] = (uint8_t)n_fds;
    out[4] = (uint8_t)(length >> 24);
    out[5] = (uint8_t)(length >> 16);
    out[6] = (uint8_t)(length >> 8);
    out[7] = (uint8_t)length;
}

/* What may have sent these bytes; NULL = no idea. */
static const char *guess_protocol(const uint8_t h[SW_FRAME_HEADER])
{
    static const struct {
        const char *start, *what;
    } known[] = {
        {"GET ", "HTTP"},
        {"POST ", "HTTP"},
        {"PUT ", "HTTP"},
        {"HEAD ", "HTTP"},
        {"DELETE ", "HTTP"},
        {"OPTIONS ", "HTTP"},
        {"CONNECT ", "HTTP"},
        {"PRI * HT", "HTTP/2"},
        {"HTTP/", "HTTP"},
        {"SSH-", "SSH"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (memcmp(h, known[i].start, strlen(known[i].start)) == 0)
            return known[i].what;
    /* A TLS record: alert or handshake, major version 3. */
    if ((h[0] == 0x15 || h[0] == 0x16) && h[1] == 3 && h[2] <= 4)
        return "TLS";
    return NULL;
}

int sw_frame_parse(
    const uint8_t h[SW_FRAME_HEADER], uint32_t *length, uint32_t *n_fds, struct sw_error *e)
{
    const uint32_t bytes =
        (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | (uint32_t)h[7];

    if (h[0] != 'S' || h[1] != 'W') {
        const char *what = guess_protocol(h);

        if (what)
            return sw_fail(e, SW_ERR_PROTOCOL,
                "the other side does not speak Shardwire: it looks like %s; check host and port",
                what);
        return sw_fail(e, SW_ERR_PROTOCOL,
            "the other side does not speak Shardwire: a frame starts with bytes %02x %02x", h[0],
            h[1]);
    }
    if (h[2] != FORMAT)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "frame format %u, and this build knows %u: the other side has another release", h[2],
            FORMAT);
    if (h[3] > SW_FRAME_FDS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "a frame with %u descriptors; at most %u can be sent", h[3],
            SW_FRAME_FDS_MAX);
    if (bytes > SW_FRAME_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "a frame of %u bytes; the limit is %u", bytes, SW_FRAME_MAX);
    *length = bytes;
    *n_fds = h[3];
    return 0;
}

struct sw_splitter {
    uint8_t header[SW_FRAME_HEADER];
    uint32_t have_header; /* bytes of the header read */
    uint32_t have;        /* bytes of the payload read */
    uint32_t length, n_fds;
    uint8_t *payload;
    uint32_t capacity;
    bool delivered; /* the frame in `payload` was handed out: the next call starts a new one */
};

struct sw_splitter *sw_splitter_new(void)
{
    return calloc(1, sizeof(struct sw_splitter));
}

void sw_splitter_free(struct sw_splitter *s)
{
    if (!s)
        return;
    free(s->payload);
    free(s);
}

static void splitter_restart(struct sw_splitter *s)
{
    s->have_header = 0;
    s->have = 0;
    s->delivered = false;
    if (s->capacity > KEEP_MAX) {
        free(s->payload);
        s->payload = NULL;
        s->capacity = 0;
    }
}

static int splitter_reserve(struct sw_splitter *s, struct sw_error *e)
{
    const uint32_t want = s->length ? s->length : 1;

    if (want <= s->capacity)
        return 0;
    free(s->payload);
    s->capacity = 0;
    s->payload = malloc(want);
    if (!s->payload)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a frame of %u bytes", s->length);
    s->capacity = want;
    return 0;
}

static size_t take(
    uint8_t *to, uint32_t *have, uint32_t want, const uint8_t *bytes, size_t n, size_t used)
{
    size_t some = want - *have;

    if (some > n - used)
        some = n - used;
    if (some)
        memcpy(to + *have, bytes + used, some);
    *have += (uint32_t)some;
    return used + some;
}

int sw_splitter_feed(struct sw_splitter *s, const uint8_t *bytes, size_t n, size_t *used,
    const uint8_t **payload, uint32_t *length, uint32_t *n_fds, struct sw_error *e)
{
    size_t done = 0;
    int rc;

    *payload = NULL;
    if (s->delivered)
        splitter_restart(s);
    if (s->have_header < SW_FRAME_HEADER) {
        done = take(s->header, &s->have_header, SW_FRAME_HEADER, bytes, n, done);
        if (s->have_header < SW_FRAME_HEADER) {
            *used = done;
            return 0;
        }
        rc = sw_frame_parse(s->header, &s->length, &s->n_fds, e);
        if (rc == 0)
            rc = splitter_reserve(s, e);
        if (rc) {
            s->have_header = 0; /* no payload of it is ever read */
            return rc;
        }
    }
    done = take(s->payload, &s->have, s->length, bytes, n, done);
    *used = done;
    if (s->have == s->length) {
        *payload = s->payload;
        *length = s->length;
        *n_fds = s->n_fds;
        s->delivered = true;
    }
    return 0;
}

bool sw_splitter_partial(const struct sw_splitter *s)
{
    return !s->delivered && s->have_header > 0;
}
