/* SPDX-License-Identifier: Apache-2.0 */
/* One trainer rank: its declared states, its manifest and its load program as they arrive in parts.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/host/impl.h"

#define PARTS_MIN 64u      /* so many parts may be as small as they like; */
#define PART_ITEMS_MIN 32u /* on average, further ones hold at least this many items */

static const char *const state_names[RANK_STATE_COUNT] = {"new", "declaring", "idle", "beginning",
    "preparing", "staging", "sharing", "draining", "ended"};

/* From each state, a bit for every state that may follow. */
#define TO(s) (1u << RANK_##s)
static const unsigned allowed[RANK_STATE_COUNT] = {
    [RANK_NEW] = TO(DECLARING),
    [RANK_DECLARING] = TO(DECLARING) | TO(IDLE) | TO(NEW),
    [RANK_IDLE] = TO(DECLARING) | TO(BEGINNING) | TO(NEW),
    [RANK_BEGINNING] = TO(PREPARING) | TO(STAGING) | TO(IDLE) | TO(NEW),
    [RANK_PREPARING] = TO(STAGING) | TO(IDLE) | TO(NEW),
    [RANK_STAGING] = TO(SHARING) | TO(DRAINING) | TO(IDLE) | TO(NEW),
    [RANK_SHARING] = TO(STAGING) | TO(IDLE) | TO(NEW),
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

void rank_forget_sources(struct rank *r)
{
    parts_clear(&r->sources);
    r->n_sources = 0;
}

void rank_forget_program(struct rank *r)
{
    parts_clear(&r->program);
    free(r->tile_bytes);
    free(r->tile_source);
    free(r->live);
    r->tile_bytes = NULL;
    r->tile_source = NULL;
    r->live = NULL;
    r->layout_epoch = r->sent_layout = 0;
    r->n_tiles = 0;
    r->n_maxima = 0;
    r->received = (struct program_received){0};
}

/* What a hostile process may not do: grow memory by parts that hold nothing, or next to nothing. */
static bool parts_too_small(const struct parts *p, uint32_t items, uint64_t total)
{
    return (items == 0 && total) || p->n > PARTS_MIN + total / PART_ITEMS_MIN;
}

int rank_take_sources(struct rank *r, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_sources *s = &msg->u.sources;
    uint32_t total = s->total, first = s->first, end = s->first + s->n;

    if (s->first == 0)
        rank_forget_sources(r);
    if (r->sources.complete || s->first != r->n_sources || end < first || end > total ||
        (r->sources.n && r->sources.items[0]->u.sources.total != total) ||
        parts_too_small(&r->sources, s->n, total)) {
        sw_msg_free(msg);
        return sw_fail(e, SW_ERR_PROTOCOL,
            "trainer rank %u: manifest parts do not join (part at %u of %u, had %u in %zu parts)",
            r->rank, first, total, r->n_sources, r->sources.n);
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

    rank_forget_program(r);
    r->tile_bytes = calloc(n, sizeof(*r->tile_bytes));
    r->tile_source = calloc(n, sizeof(*r->tile_source));
    r->live = calloc(n, sizeof(*r->live));
    if (!r->tile_bytes || !r->tile_source || !r->live)
        return sw_fail(e, SW_ERR_NOMEM, "trainer rank %u: no memory for %zu tiles", r->rank, n);
    for (uint32_t i = 0; i < p->total_tiles; i++)
        r->tile_source[i] = UINT32_MAX;
    r->layout_epoch = p->layout_epoch;
    r->replica_bytes = p->replica_bytes;
    r->n_maxima = p->n_maxima;
    r->n_tiles = p->total_tiles;
    return 0;
}

static bool joins(uint32_t first, uint32_t n, uint32_t total, uint32_t received)
{
    return first == received && received <= total && n <= total - received;
}

/* Whether a part goes on where the last one ended, in each of its five lists. */
static bool program_joins(const struct rank *r, const struct sw_load_program *p)
{
    const struct program_received *have = &r->received;
    const struct sw_load_program *head = p;
    const uint64_t items =
        (uint64_t)p->n_templates + p->n_loads + p->n_grids + p->n_checks + p->n_tiles;
    const uint64_t total = (uint64_t)p->total_templates + p->total_loads + p->total_grids +
                           p->total_checks + p->total_tiles;

    if (r->program.n)
        head = &r->program.items[0]->u.load_program;
    return !r->program.complete && p->layout_epoch == r->layout_epoch &&
           p->replica_bytes == r->replica_bytes && p->n_maxima == r->n_maxima &&
           p->total_templates == head->total_templates && p->total_grids == head->total_grids &&
           p->total_loads == head->total_loads && p->total_checks == head->total_checks &&
           p->total_tiles == r->n_tiles &&
           joins(p->first_template, p->n_templates, p->total_templates, have->templates) &&
           joins(p->first_load, p->n_loads, p->total_loads, have->loads) &&
           joins(p->first_grid, p->n_grids, p->total_grids, have->grids) &&
           joins(p->first_check, p->n_checks, p->total_checks, have->checks) &&
           joins(p->first_tile, p->n_tiles, p->total_tiles, have->tiles) && (items || !total);
}

static int check_tiles(const struct rank *r, const struct sw_load_program *p, struct sw_error *e)
{
    for (uint32_t i = 0; i < p->n_tiles; i++)
        if (sw_range_exceeds(p->tiles[i].offset, p->tiles[i].bytes, p->replica_bytes))
            return sw_fail(e, SW_ERR_PLAN,
                "trainer rank %u: tile %u ends outside the replica of %llu bytes", r->rank,
                p->first_tile + i, (unsigned long long)p->replica_bytes);
    return 0;
}

int rank_take_program(struct rank *r, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_load_program *p = &msg->u.load_program;
    bool first =
        !p->first_template && !p->first_load && !p->first_grid && !p->first_check && !p->first_tile;
    int err = first ? program_start(r, p, e) : 0;

    if (!err && ((!first && !r->program.n) || !program_joins(r, p)))
        err =
            sw_fail(e, SW_ERR_PROTOCOL, "trainer rank %u: load program parts do not join", r->rank);
    if (!err)
        err = check_tiles(r, p, e);
    if (err) {
        rank_forget_program(r);
        sw_msg_free(msg);
        return err;
    }
    for (uint32_t i = 0; i < p->n_tiles; i++)
        r->tile_bytes[p->first_tile + i] = p->tiles[i].bytes;
    for (uint32_t i = 0; i < p->n_loads; i++)
        if (p->loads[i].tile < r->n_tiles && r->tile_source[p->loads[i].tile] == UINT32_MAX)
            r->tile_source[p->loads[i].tile] = p->loads[i].source;
    r->received.templates += p->n_templates;
    r->received.loads += p->n_loads;
    r->received.grids += p->n_grids;
    r->received.checks += p->n_checks;
    r->received.tiles += p->n_tiles;
    if (!parts_add(&r->program, msg)) {
        rank_forget_program(r);
        return sw_fail(e, SW_ERR_NOMEM, "trainer rank %u: no memory for its load program", r->rank);
    }
    r->program.complete =
        r->received.templates == p->total_templates && r->received.loads == p->total_loads &&
        r->received.grids == p->total_grids && r->received.checks == p->total_checks &&
        r->received.tiles == p->total_tiles;
    return 0;
}
