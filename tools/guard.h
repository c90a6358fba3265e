/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches weights that nobody may change: a thread takes digests of all blocks again and again and
 * compares them with those before. It makes the SHA-256 digests that people and tests ask for, too.
 * It reads the weights only between sw_guard_resume and sw_guard_pause.
 */
#ifndef SW_TOOLS_GUARD_H
#define SW_TOOLS_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/error.h>
#include "tools/weights.h"

struct sw_guard;

enum sw_guard_news {
    SW_GUARD_NOTHING = 0,
    SW_GUARD_CHANGED = 1, /* a block changed: `offset` of `region` is in it; checking has ended */
    SW_GUARD_DIGESTS = 2, /* those asked for are there */
    SW_GUARD_FAILED = 3,  /* they could not be made; `error` */
};

struct sw_guard_report {
    enum sw_guard_news news;
    size_t region;
    uint64_t offset, bytes; /* of the changed block */
    uint64_t version;       /* DIGESTS: as given to resume */
    const char (*hex)[65];  /* DIGESTS: one for each weight; until the next request */
    struct sw_error error;
};

/* interval_ms: pause between two rounds of checking; 0 = no checking. It starts paused; `weights`
 * are borrowed. */
int sw_guard_new(const struct sw_weights *weights, unsigned threads, uint32_t interval_ms,
    struct sw_guard **guard, struct sw_error *e);
void sw_guard_free(struct sw_guard *g); /* accepts NULL */

/* When it returns, nothing reads the weights. Digests being made start again after resume. */
void sw_guard_pause(struct sw_guard *g);

/* The weights hold `version`. changed = true: they may differ from what they were before. */
void sw_guard_resume(struct sw_guard *g, uint64_t version, bool changed);

/* Asks for digests of all weights: as soon as it may read them. Asking again meanwhile is the same
 * request. */
void sw_guard_request(struct sw_guard *g);

/* Whole rounds of checking since the last resume. */
uint64_t sw_guard_rounds(const struct sw_guard *g);

/* Readable when there is news; sw_guard_take takes one piece of it. */
int sw_guard_fd(const struct sw_guard *g);
void sw_guard_take(struct sw_guard *g, struct sw_guard_report *report);

#endif
