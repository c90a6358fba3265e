/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/host/shares.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

#define STRIP 1024u /* floats reduced at a time: they stay in the cache */

struct sw_shares {
    unsigned refs;
    uint64_t epoch;
    uint32_t total_shares, total_members;
    uint32_t n_shares, n_members, room_shares, room_members;
    struct sw_share *shares;
    struct sw_share_member *members;
    uint32_t ranks;
    uint8_t has[SW_WORLD_MAX / 8]; /* by rank, a bit */
};

static struct sw_shares *shares_new(const struct sw_maxima_program *first)
{
    struct sw_shares *s = calloc(1, sizeof(*s));

    if (s) {
        s->refs = 1;
        s->epoch = first->layout_epoch;
        s->total_shares = first->total_shares;
        s->total_members = first->total_members;
    }
    return s;
}

struct sw_shares *sw_shares_hold(struct sw_shares *s)
{
    s->refs++;
    return s;
}

void sw_shares_release(struct sw_shares *s)
{
    if (!s || --s->refs > 0)
        return;
    free(s->shares);
    free(s->members);
    free(s);
}

uint64_t sw_shares_epoch(const struct sw_shares *s)
{
    return s->epoch;
}

bool sw_shares_whole(const struct sw_shares *s)
{
    return s && s->n_shares == s->total_shares && s->n_members == s->total_members;
}

uint32_t sw_shares_ranks(const struct sw_shares *s)
{
    return s->ranks;
}

bool sw_shares_has(const struct sw_shares *s, uint32_t rank)
{
    return rank < SW_WORLD_MAX && s->has[rank / 8] & 1u << rank % 8;
}

/* ---- parts ---- */

/* Room grows with what came, never with what was announced. */
static int append(
    void **array, uint32_t *used, uint32_t *room, const void *items, uint32_t n, size_t size)
{
    if (n > *room - *used) {
        const uint64_t want = (uint64_t)*used + n + *room / 2;
        void *bigger = realloc(*array, want * size);

        if (!bigger)
            return -1;
        *array = bigger;
        *room = (uint32_t)want;
    }
    if (n)
        memcpy((char *)*array + *used * size, items, n * size);
    *used += n;
    return 0;
}

static bool joins(uint32_t first, uint32_t n, uint32_t have, uint32_t total)
{
    return first == have && !sw_range_exceeds(first, n, total);
}

/* Shares come first, so that no member is kept which no share can have. */
static bool part_joins(const struct sw_shares *s, const struct sw_maxima_program *p)
{
    return p->layout_epoch == s->epoch && p->total_shares == s->total_shares &&
           p->total_members == s->total_members && p->total_shares <= SW_EXTENTS_MAX &&
           p->total_members <= SW_EXTENTS_MAX &&
           joins(p->first_share, p->n_shares, s->n_shares, s->total_shares) &&
           joins(p->first_member, p->n_members, s->n_members, s->total_members) &&
           (p->n_members == 0 || s->n_shares + p->n_shares == s->total_shares) &&
           (p->n_shares || p->n_members || (!s->total_shares && !s->total_members));
}

static int check_items(const struct sw_shares *s, const struct sw_maxima_program *p)
{
    for (uint32_t i = 0; i < p->n_shares; i++) {
        const struct sw_share *share = &p->shares[i];

        if (share->count == 0 || share->n_members == 0 ||
            sw_range_exceeds(share->first_member, share->n_members, s->total_members))
            return -1;
    }
    for (uint32_t i = 0; i < p->n_members; i++)
        if (p->members[i].rank >= SW_WORLD_MAX)
            return -1;
    return 0;
}

static int add_part(struct sw_shares *s, const struct sw_maxima_program *p, struct sw_error *e)
{
    if (sw_shares_whole(s) && (p->n_shares || p->n_members))
        return sw_fail(e, SW_ERR_PROTOCOL, "a maxima program goes on after its end");
    if (!part_joins(s, p))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "a part of the maxima program of layout epoch %llu does not join: it starts at share "
            "%u, member %u; %u and %u are there",
            (unsigned long long)p->layout_epoch, p->first_share, p->first_member, s->n_shares,
            s->n_members);
    if (check_items(s, p))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "maxima program: of the shares from %u and members from %u on one is empty, or beyond "
            "the "
            "%u members or %u ranks that there can be",
            p->first_share, p->first_member, s->total_members, SW_WORLD_MAX);
    if (append((void **)&s->shares, &s->n_shares, &s->room_shares, p->shares, p->n_shares,
            sizeof(*s->shares)) ||
        append((void **)&s->members, &s->n_members, &s->room_members, p->members, p->n_members,
            sizeof(*s->members)))
        return sw_fail(
            e, SW_ERR_NOMEM, "no memory for a maxima program of %u shares", p->total_shares);
    for (uint32_t i = 0; i < p->n_members; i++) {
        const uint32_t rank = p->members[i].rank;

        s->has[rank / 8] |= (uint8_t)(1u << rank % 8);
        if (rank >= s->ranks)
            s->ranks = rank + 1;
    }
    return 0;
}

int sw_shares_add(struct sw_shares **s, const struct sw_maxima_program *part, struct sw_error *e)
{
    const bool first = !part->first_share && !part->first_member;
    int rc;

    if (first) {
        sw_shares_release(*s);
        *s = shares_new(part);
        if (!*s)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for a maxima program");
    }
    rc = *s ? add_part(*s, part, e) : sw_fail(e, SW_ERR_PROTOCOL, "a maxima program has no start");
    if (rc) {
        sw_shares_release(*s);
        *s = NULL;
    }
    return rc;
}

/* ---- use ---- */

int sw_shares_check(const struct sw_shares *s, uint64_t (*n_maxima)(uint32_t rank, void *arg),
    void *arg, struct sw_error *e)
{
    for (uint32_t i = 0; i < s->n_shares; i++) {
        const struct sw_share *share = &s->shares[i];

        for (uint32_t m = 0; m < share->n_members; m++) {
            const struct sw_share_member *member = &s->members[share->first_member + m];
            const uint64_t have = n_maxima(member->rank, arg);

            if (sw_range_exceeds(member->first, share->count, have))
                return sw_fail(e, SW_ERR_PROTOCOL,
                    "maxima program: share %u takes %llu maxima from %llu on of trainer rank %u, "
                    "which has %llu on this host",
                    i, (unsigned long long)share->count, (unsigned long long)member->first,
                    member->rank, (unsigned long long)have);
        }
    }
    return 0;
}

static void reduce_strip(const struct sw_share_member *members, uint32_t n, uint64_t at,
    uint64_t length, float *const *maxima)
{
    float most[STRIP];

    memcpy(most, maxima[members[0].rank] + members[0].first + at, length * sizeof(*most));
    for (uint32_t m = 1; m < n; m++) {
        const float *from = maxima[members[m].rank] + members[m].first + at;

        for (uint64_t i = 0; i < length; i++)
            most[i] = from[i] > most[i] ? from[i] : most[i];
    }
    for (uint32_t m = 0; m < n; m++)
        memcpy(maxima[members[m].rank] + members[m].first + at, most, length * sizeof(*most));
}

void sw_shares_reduce(const struct sw_shares *s, float *const *maxima)
{
    for (uint32_t i = 0; i < s->n_shares; i++) {
        const struct sw_share *share = &s->shares[i];

        for (uint64_t at = 0; at < share->count; at += STRIP)
            reduce_strip(&s->members[share->first_member], share->n_members, at,
                share->count - at < STRIP ? share->count - at : STRIP, maxima);
    }
}
