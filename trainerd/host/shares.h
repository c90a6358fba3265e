/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block maxima of this host's trainer ranks are the same block's: a MAXIMA_PROGRAM as it
 * comes in parts, and the reduction that it asks for. Immutable once whole; counted references,
 * since a reduction may run on another thread when the next program comes. Takes, holds and
 * releases are the loop thread's.
 */
#ifndef SW_TRAINERD_HOST_SHARES_H
#define SW_TRAINERD_HOST_SHARES_H

#include <stdbool.h>
#include <shardwire/error.h>
#include "common/message.h"

struct sw_shares;

/* Takes the next part (its arrays are copied) into *s; a first part replaces what is there. When
 * parts do not join, or a share has no members among them, *s is NULL afterwards: SW_ERR_PROTOCOL,
 * SW_ERR_NOMEM. */
int sw_shares_add(struct sw_shares **s, const struct sw_maxima_program *part, struct sw_error *e);
struct sw_shares *sw_shares_hold(struct sw_shares *s);
void sw_shares_release(struct sw_shares *s); /* accepts NULL */

uint64_t sw_shares_epoch(const struct sw_shares *s);
bool sw_shares_whole(const struct sw_shares *s); /* accepts NULL */

/*
 * Whether every member lies inside the maxima of its rank: n_maxima(rank) is their number, 0 for a
 * rank that is not here. SW_ERR_PROTOCOL names the first that does not.
 */
int sw_shares_check(const struct sw_shares *s, uint64_t (*n_maxima)(uint32_t rank, void *arg),
    void *arg, struct sw_error *e);

/* One more than the largest rank among the members. */
uint32_t sw_shares_ranks(const struct sw_shares *s);
/* Whether the rank is among the members. */
bool sw_shares_has(const struct sw_shares *s, uint32_t rank);

/* Each float becomes the largest of its share; maxima[rank] holds a rank's. They passed check. Safe
 * to repeat. Any thread. */
void sw_shares_reduce(const struct sw_shares *s, float *const *maxima);

#endif
