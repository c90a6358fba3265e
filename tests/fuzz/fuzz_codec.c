/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload of a frame. What decodes must encode, and decode again to the same bytes; a copy must
 * encode to them, too.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const struct sw_msg *msg, uint8_t **bytes, size_t *length)
{
    if (sw_codec_encode(msg, bytes, length, NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_msg *msg, *again, *copy;
    uint8_t *a, *b, *c;
    size_t n_a, n_b, n_c;

    if (sw_codec_decode(data, size, &msg, NULL))
        return 0;
    encode(msg, &a, &n_a);
    if (sw_codec_decode(a, n_a, &again, NULL))
        abort();
    encode(again, &b, &n_b);
    copy = sw_msg_copy(msg);
    if (!copy)
        abort();
    encode(copy, &c, &n_c);
    if (n_a != n_b || memcmp(a, b, n_a) != 0 || n_a != n_c || memcmp(a, c, n_a) != 0)
        abort();
    free(a);
    free(b);
    free(c);
    sw_msg_free(msg);
    sw_msg_free(again);
    sw_msg_free(copy);
    return 0;
}
