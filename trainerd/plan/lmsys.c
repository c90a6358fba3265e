/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mapping of the LMSYS post, for comparison. For each set of ranks that hold the same (a
 * pipeline stage after all-gathers) the targets are listed engine by engine: the first ones get a
 * source each; each further one the source that already has the same rank of another engine (of
 * several the one with the fewest targets), or else one in turn. It looks at neither bytes nor
 * NICs. What targets of different sources want is staged by each of these.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/build.h"

#define MAPPING_MAX (1u << 26) /* sets x targets */

struct mapping {
    struct sw_build *b;
    uint32_t n_sets, n_kinds; /* each target is a kind here */
    uint32_t *set;            /* by raw slab: number of its set of ranks */
    uint32_t *sources;        /* by set: how many there are to choose from */
    uint32_t *source;         /* by set and kind: SW_NONE - 1: wants something, has none yet;
                               * SW_NONE: wants nothing */
};

#define UNSOURCED (SW_NONE - 1)

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to map targets to sources");
}

static int find_sets(struct mapping *m, const struct sw_slab_set *raw, struct sw_error *e)
{
    struct sw_build *b = m->b;

    m->set = malloc(((size_t)raw->n + 1) * sizeof(*m->set));
    if (!m->set)
        return no_memory(e);
    for (uint32_t i = 0; i < raw->n; i++) {
        uint32_t choice;
        const int err = sw_build_choice(b, &raw->items[i], &choice, e);

        if (err)
            return err;
        m->set[i] = b->choices.items[choice].set;
    }
    m->n_sets = b->choices.n_sets;
    m->sources = calloc((size_t)m->n_sets + 1, sizeof(*m->sources));
    if (!m->sources)
        return no_memory(e);
    for (uint32_t i = 0; i < b->choices.n; i++)
        m->sources[b->choices.items[i].set] = b->choices.items[i].n;
    return 0;
}

static int find_targets(struct mapping *m, const uint32_t *raw_slab, struct sw_error *e)
{
    const struct sw_build *b = m->b;
    const size_t n = (size_t)m->n_sets * m->n_kinds;

    if (n > MAPPING_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "%u sets of trainer ranks and %u targets are too many for this mapping; at most %u "
            "pairs",
            m->n_sets, m->n_kinds, MAPPING_MAX);
    m->source = malloc((n + 1) * sizeof(*m->source));
    if (!m->source)
        return no_memory(e);
    memset(m->source, 0xff, n * sizeof(*m->source));
    for (uint32_t k = 0; k < m->n_kinds; k++)
        for (uint32_t i = b->kind_raw[k]; i < b->kind_raw[k + 1]; i++)
            m->source[(size_t)m->set[raw_slab[i]] * m->n_kinds + k] = UNSOURCED;
    return 0;
}

static const struct sw_plan_target *target_of(const struct mapping *m, uint32_t kind)
{
    return &m->b->targets[m->b->l->c.kinds[kind].target];
}

/* The source with fewest targets among those that have this engine rank; SW_NONE: none has. */
static uint32_t same_rank(
    const struct mapping *m, const uint32_t *source, uint32_t kind, const uint32_t *targets)
{
    uint32_t best = SW_NONE;

    for (uint32_t k = 0; k < kind; k++)
        if (source[k] < UNSOURCED &&
            target_of(m, k)->engine_rank == target_of(m, kind)->engine_rank &&
            (best == SW_NONE || targets[source[k]] < targets[best]))
            best = source[k];
    return best;
}

static int map_set(struct mapping *m, uint32_t set, struct sw_error *e)
{
    uint32_t *source = m->source + (size_t)set * m->n_kinds;
    uint32_t *targets = calloc((size_t)m->sources[set] + 1, sizeof(*targets));
    uint32_t listed = 0, turn = 0;

    if (!targets)
        return no_memory(e);
    assert(m->sources[set] > 0); /* a choice has variants */
    for (uint32_t k = 0; k < m->n_kinds; k++) {
        if (source[k] != UNSOURCED)
            continue;
        if (listed < m->sources[set])
            source[k] = listed;
        else
            source[k] = same_rank(m, source, k, targets);
        if (source[k] == SW_NONE)
            source[k] = turn++ % m->sources[set];
        targets[source[k]]++;
        listed++;
    }
    free(targets);
    return 0;
}

/* Slabs anew, each bound to its source. */
static int bind(struct mapping *m, struct sw_slab_set *raw, uint32_t *raw_slab, struct sw_error *e)
{
    const struct sw_build *b = m->b;
    struct sw_slab_set bound = {0};

    for (uint32_t k = 0; k < m->n_kinds; k++)
        for (uint32_t i = b->kind_raw[k]; i < b->kind_raw[k + 1]; i++) {
            struct sw_slab_key key = raw->items[raw_slab[i]];

            key.source = m->source[(size_t)m->set[raw_slab[i]] * m->n_kinds + k];
            raw_slab[i] = sw_slab_set_add(&bound, &key);
            if (raw_slab[i] == SW_NONE) {
                sw_slab_set_free(&bound);
                return no_memory(e);
            }
        }
    sw_slab_set_free(raw);
    *raw = bound;
    return 0;
}

int sw_build_lmsys(
    struct sw_build *b, struct sw_slab_set *raw, uint32_t *raw_slab, struct sw_error *e)
{
    struct mapping m = {.b = b, .n_kinds = b->l->c.n_kinds};
    int err = find_sets(&m, raw, e);

    if (!err)
        err = find_targets(&m, raw_slab, e);
    for (uint32_t s = 0; !err && s < m.n_sets; s++)
        err = map_set(&m, s, e);
    if (!err)
        err = bind(&m, raw, raw_slab, e);
    free(m.set);
    free(m.sources);
    free(m.source);
    return err;
}
