/* SPDX-License-Identifier: Apache-2.0 */
/* One trainer rank: its declared states, its manifest and its load program as they arrive in parts.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/host/impl.h"

static const char *const state_names[RANK_STATE_COUNT] = {
    "new", "declaring", "idle", "beginning", "preparing", "staging", "draining", "ended"};

/* From each state, a bit for every state that may follow. */
#define TO(s) (1u << RANK_##s)
static const unsigned allowed[RANK_STATE_COUNT] = {
    [RANK_NEW] = TO(DECLARING),
    [RANK_DECLARING] = TO(DECLARING) | TO(IDLE) | TO(NEW),
    [RANK_IDLE] = TO(DECLARING) | TO(BEGINNING) | TO(NEW),
    [RANK_BEGINNING] = TO(PREPARING) | TO(STAGING) | TO(IDLE) | TO(NEW),
    [RANK_PREPARING] = TO(STAGING) | TO(IDLE) | TO(NEW),
    [RANK_STAGING] = TO(DRAINING) | TO(IDLE) | TO(NEW),
    [RANK_DRAINING] = TO(STAGING) | TO(ENDED) | TO(IDLE) | TO(NEW),
    [RANK_ENDED] = TO(STAGING) | TO(IDLE) | TO(NEW),
};

const char *rank_state_name(enum rank_state state)
{
    return state_names[state];
}

void rank_enter(struct sw_host *h, struct rank *r, enum rank_state state)
{
    assert(state == r->state || (allowed[r->state] & (1u << state)));
    r->state = state;
    r->since_ns = h->now;
    r->deadline_ns = UINT64_MAX;
    if (state != RANK_DRAINING) {
        sw_msg_free(r->end);
        r->end = NULL;
    }
    if (state != RANK_PREPARING) {
        sw_msg_free(r->grant);
        r->grant = NULL;
    }
}

void parts_clear(struct parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        sw_msg_free(p->items[i]);
    free(p->items);
    memset(p, 0, sizeof(*p));
}

bool parts_add(struct parts *p, struct sw_msg *msg)
{
    if (p->n == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 4;
        struct sw_msg **grown = realloc(p->items, capacity * sizeof(*grown));

        if (!grown) {
            sw_msg_free(msg);
            return false;
        }
        p->items = grown;
        p->capacity = capacity;
    }
    p->items[p->n++] = msg;
    return true;
}

void rank_free(struct rank *r)
{
    if (!r)
        return;
    parts_clear(&r->sources);
    parts_clear(&r->program);
    free(r->tile_bytes);
    free(r->tile_source);
    free(r->live);
    sw_msg_free(r->end);
    sw_msg_free(r->grant);
    free(r);
}

const char *rank_source_name(const struct rank *r, uint32_t source)
{
    for (size_t i = 0; i < r->sources.n; i++) {
        const struct sw_sources *s = &r->sources.items[i]->u.sources;

        if (source - s->first < s->n)
            return s->items[source - s->first].name;
    }
    return "?";
}

int rank_take_sources(struct rank *r, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_sources *s = &msg->u.sources;
    uint32_t total = s->total, first = s->first, end = s->first + s->n;

    if (s->first == 0) {
        parts_clear(&r->sources);
        r->n_sources = 0;
    }
    if (r->sources.complete || s->first != r->n_sources ||
        (r->sources.n && r->sources.items[0]->u.sources.total != total)) {
        sw_msg_free(msg);
        return sw_fail(e, SW_ERR_PROTOCOL,
            "trainer rank %u: manifest parts do not join (part at %u of %u, had %u)", r->rank,
            first, total, r->n_sources);
    }
    if (!parts_add(&r->sources, msg))
        return sw_fail(e, SW_ERR_NOMEM, "trainer rank %u: no memory for its manifest", r->rank);
    r->n_sources = end;
    r->sources.complete = end == total;
    return 0;
}

static int program_start(struct rank *r, const struct sw_load_program *p, struct sw_error *e)
{
    size_t n = p->total_tiles ? p->total_tiles : 1;

    parts_clear(&r->program);
    free(r->tile_bytes);
    free(r->tile_source);
    free(r->live);
    r->tile_bytes = calloc(n, sizeof(*r->tile_bytes));
    r->tile_source = calloc(n, sizeof(*r->tile_source));
    r->live = calloc(n, sizeof(*r->live));
    r->n_tiles = r->tiles_received = 0;
    if (!r->tile_bytes || !r->tile_source || !r->live)
        return sw_fail(e, SW_ERR_NOMEM, "trainer rank %u: no memory for %zu tiles", r->rank, n);
    r->layout_epoch = p->layout_epoch;
    r->replica_bytes = p->replica_bytes;
    r->n_tiles = p->total_tiles;
    return 0;
}

int rank_take_program(struct rank *r, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_load_program *p = &msg->u.load_program;
    const struct sw_load_program *head;
    bool first = !p->first_template && !p->first_load && !p->first_check && !p->first_tile;

    if (first && program_start(r, p, e)) {
        sw_msg_free(msg);
        return SW_ERR_NOMEM;
    }
    head = r->program.n ? &r->program.items[0]->u.load_program : p;
    if (p->layout_epoch != r->layout_epoch || r->program.complete ||
        p->total_tiles != head->total_tiles || p->first_tile != r->tiles_received ||
        p->n_tiles > r->n_tiles - r->tiles_received) {
        sw_msg_free(msg);
        return sw_fail(
            e, SW_ERR_PROTOCOL, "trainer rank %u: load program parts do not join", r->rank);
    }
    for (uint32_t i = 0; i < p->n_tiles; i++)
        r->tile_bytes[p->first_tile + i] = p->tiles[i].bytes;
    for (uint32_t i = p->n_loads; i-- > 0;)
        if (p->loads[i].tile < r->n_tiles)
            r->tile_source[p->loads[i].tile] = p->loads[i].source;
    r->tiles_received += p->n_tiles;
    if (!parts_add(&r->program, msg))
        return sw_fail(e, SW_ERR_NOMEM, "trainer rank %u: no memory for its load program", r->rank);
    r->program.complete = p->first_template + p->n_templates == p->total_templates &&
                          p->first_load + p->n_loads == p->total_loads &&
                          p->first_check + p->n_checks == p->total_checks &&
                          p->first_tile + p->n_tiles == p->total_tiles;
    return 0;
}
