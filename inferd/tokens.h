/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-time tokens that admit a writer's data connections to one engine rank. A set belongs to one
 * engine process (its instance), a token to one writer and one layout epoch. Pure.
 */
#ifndef SW_INFERD_TOKENS_H
#define SW_INFERD_TOKENS_H

#include "common/message.h"
#include <shardwire/error.h>

#define SW_TOKENS_MAX 8192u /* unused ones of one engine rank; PHASE_DONE with all fits a frame */

struct sw_token_entry;
struct sw_tokens { /* zeroed = empty */
    struct sw_token_entry *items;
    uint32_t n, capacity;
};

void sw_tokens_clear(struct sw_tokens *t);

/* Issues `count` tokens to a writer in place of those it has not used; they are also written to
 * out[count]. On failure nothing has changed. */
int sw_tokens_issue(struct sw_tokens *t, const struct sw_id *writer, uint32_t count,
    uint64_t layout_epoch, uint64_t expires_ns, void (*random)(void *, size_t, void *),
    void *random_arg, struct sw_token *out, struct sw_error *e);

/* Uses a token up. SW_ERR_AUTH when it is unknown, used, expired, or meant for another writer or
 * epoch (in the latter cases it is used up as well). */
int sw_tokens_use(struct sw_tokens *t, const struct sw_token *token, const struct sw_id *writer,
    uint64_t layout_epoch, uint64_t now_ns, struct sw_error *e);

/* Compares secrets in a time that does not depend on where they differ. */
bool sw_secret_equal(const uint8_t *a, const uint8_t *b, size_t n);

#endif
