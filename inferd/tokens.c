/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"

struct sw_token_entry {
    struct sw_token token;
    struct sw_id writer;
    uint64_t layout_epoch, expires_ns;
};

bool sw_secret_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    volatile uint8_t differ = 0;

    for (size_t i = 0; i < n; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

void sw_tokens_clear(struct sw_tokens *t)
{
    /* The bytes are secrets. */
    if (t->items)
        explicit_bzero(t->items, t->capacity * sizeof(*t->items));
    free(t->items);
    memset(t, 0, sizeof(*t));
}

static uint32_t count_others(const struct sw_tokens *t, const struct sw_id *writer)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n; i++)
        n += !sw_id_equal(&t->items[i].writer, writer);
    return n;
}

static void drop_writer(struct sw_tokens *t, const struct sw_id *writer)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < t->n; i++)
        if (!sw_id_equal(&t->items[i].writer, writer))
            t->items[kept++] = t->items[i];
    t->n = kept;
}

static int reserve(struct sw_tokens *t, uint32_t want)
{
    struct sw_token_entry *items;

    if (want <= t->capacity)
        return 0;
    items = calloc(want, sizeof(*items));
    if (!items)
        return -1;
    if (t->n)
        memcpy(items, t->items, t->n * sizeof(*items));
    if (t->items)
        explicit_bzero(t->items, t->capacity * sizeof(*t->items));
    free(t->items);
    t->items = items;
    t->capacity = want;
    return 0;
}

int sw_tokens_issue(struct sw_tokens *t, const struct sw_id *writer, uint32_t count,
    uint64_t layout_epoch, uint64_t expires_ns, void (*random)(void *, size_t, void *),
    void *random_arg, struct sw_token *out, struct sw_error *e)
{
    uint32_t others = count_others(t, writer);

    if (count > SW_TCP_CONNECTIONS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%u data connections asked for; at most %d can be had",
            count, SW_TCP_CONNECTIONS_MAX);
    if (count > SW_TOKENS_MAX - others)
        return sw_fail(e, SW_ERR_LIMIT,
            "%u data tokens are out, %u more asked for; the limit is %u", others, count,
            SW_TOKENS_MAX);
    if (reserve(t, others + count))
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %u data tokens", others + count);
    drop_writer(t, writer);
    for (uint32_t i = 0; i < count; i++) {
        struct sw_token_entry *entry = &t->items[t->n++];

        random(entry->token.bytes, sizeof(entry->token.bytes), random_arg);
        entry->writer = *writer;
        entry->layout_epoch = layout_epoch;
        entry->expires_ns = expires_ns;
        out[i] = entry->token;
    }
    return 0;
}

int sw_tokens_use(struct sw_tokens *t, const struct sw_token *token, const struct sw_id *writer,
    uint64_t layout_epoch, uint64_t now_ns, struct sw_error *e)
{
    struct sw_token_entry found = {0};
    bool known = false;

    for (uint32_t i = 0; i < t->n && !known; i++) {
        known = sw_secret_equal(t->items[i].token.bytes, token->bytes, SW_TOKEN_BYTES);
        if (!known)
            continue;
        found = t->items[i];
        t->items[i] = t->items[--t->n];
    }
    if (!known)
        return sw_fail(e, SW_ERR_AUTH, "the data token is unknown, or was used already");
    if (!sw_id_equal(&found.writer, writer))
        return sw_fail(e, SW_ERR_AUTH, "the data token was issued to another writer");
    if (found.layout_epoch != layout_epoch)
        return sw_fail(e, SW_ERR_AUTH,
            "the data token is of layout epoch %" PRIu64 ", not %" PRIu64, found.layout_epoch,
            layout_epoch);
    if (now_ns >= found.expires_ns)
        return sw_fail(e, SW_ERR_AUTH, "the data token expired %" PRIu64 " ms ago",
            (now_ns - found.expires_ns) / 1000000);
    return 0;
}
