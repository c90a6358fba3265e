/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A byte stream, cut into pieces: its first byte says how. However it is cut, the same frames come
 * out; each goes through the codec and, as a conversation, through both ends of the handshake.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec.h"
#include "common/frame.h"
#include "common/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sw_identity self = {.group = "rl",
    .role = SW_ROLE_TRAINERD,
    .host = "fuzz",
    .secret = (const uint8_t *)"0123456789abcdef",
    .secret_bytes = 16};

struct session {
    struct sw_handshake *dialler, *listener;
    uint64_t frames, sum;
};

static void step(struct sw_handshake *h, const struct sw_msg *msg)
{
    struct sw_msg *reply;
    struct sw_peer peer;
    bool done;

    if (sw_handshake_step(h, msg, &reply, &done, &peer, NULL) == 0 && done)
        abort(); /* nobody proves a secret that it can't know */
    sw_msg_free(reply);
}

static void take(struct session *s, const uint8_t *payload, uint32_t length, uint32_t n_fds)
{
    struct sw_msg *msg;

    s->frames++;
    s->sum = s->sum * 31 + length * 17 + n_fds;
    if (sw_codec_decode(payload, length, &msg, NULL))
        return;
    s->sum = s->sum * 31 + (uint64_t)msg->kind;
    step(s->dialler, msg);
    step(s->listener, msg);
    sw_msg_free(msg);
}

static void session(const uint8_t *data, size_t size, size_t piece, struct session *s)
{
    struct sw_splitter *splitter = sw_splitter_new();
    const uint8_t *payload;
    uint32_t length, n_fds;
    size_t at = 0, used;

    if (!splitter)
        abort();
    while (at < size) {
        const size_t n = size - at < piece ? size - at : piece;

        if (sw_splitter_feed(splitter, data + at, n, &used, &payload, &length, &n_fds, NULL))
            break;
        if (used == 0 || used > n)
            abort();
        at += used;
        if (payload)
            take(s, payload, length, n_fds);
    }
    sw_splitter_free(splitter);
}

static void begin(struct session *s)
{
    memset(s, 0, sizeof(*s));
    s->dialler = sw_handshake_dial(&self, true, NULL);
    s->listener = sw_handshake_listen(&self, true, ~0u);
    if (!s->dialler || !s->listener)
        abort();
    sw_msg_free(sw_handshake_start(s->dialler));
}

static void end(struct session *s)
{
    sw_handshake_free(s->dialler);
    sw_handshake_free(s->listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session whole, pieces;

    if (size < 1)
        return 0;
    begin(&whole);
    session(data + 1, size - 1, SIZE_MAX, &whole);
    end(&whole);
    begin(&pieces);
    session(data + 1, size - 1, 1 + (size_t)data[0], &pieces);
    end(&pieces);
    if (whole.frames != pieces.frames || whole.sum != pieces.sum)
        abort();
    return 0;
}
