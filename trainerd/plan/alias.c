/* SPDX-License-Identifier: Apache-2.0 */
/* Alias sets: sources of different names that are one storage in some engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/build.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for alias sets");
}

/* Puts the names of a set's members together, in the order of names. */
static int name_set(char **text, const char *name, struct sw_error *e)
{
    const size_t old = *text ? strlen(*text) : 0;
    char *longer;

    if (old > 2 * SW_NAME_MAX) /* two or three names are enough for a message */
        return 0;
    longer = realloc(*text, old + strlen(name) + sizeof(" and "));
    if (!longer)
        return no_memory(e);
    sprintf(longer + old, "%s%s", old ? " and " : "", name);
    *text = longer;
    return 0;
}

static int name_compare(const void *a, const void *b, void *entries)
{
    const struct sw_catalogue_entry *all = entries;

    return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static int name_sets(struct sw_layout *l, uint32_t n_members, struct sw_error *e)
{
    uint32_t *members = malloc(((size_t)n_members + 1) * sizeof(*members)), n = 0;
    int err = members ? 0 : no_memory(e);

    l->set_names = calloc((size_t)l->n_sets + 1, sizeof(*l->set_names));
    if (!l->set_names)
        err = no_memory(e);
    for (uint32_t i = 0; !err && i < l->c.n_entries; i++)
        if (l->set[i] != SW_NONE)
            members[n++] = i;
    if (!err)
        qsort_r(members, n, sizeof(*members), name_compare, l->c.entries);
    for (uint32_t i = 0; !err && i < n; i++)
        err = name_set(&l->set_names[l->set[members[i]]], l->c.entries[members[i]].name, e);
    free(members);
    return err;
}

int sw_build_aliases(struct sw_build *b, struct sw_error *e)
{
    struct sw_layout *l = b->l;
    uint32_t *parent = b->w.parent, members = 0;

    for (uint32_t i = 0; i < l->c.n_entries; i++)
        members += sw_set_root(parent, i) != i;
    if (!members)
        return 0;
    l->set = malloc(((size_t)l->c.n_entries + 1) * sizeof(*l->set));
    if (!l->set)
        return no_memory(e);
    memset(l->set, 0xff, l->c.n_entries * sizeof(*l->set));
    for (uint32_t i = 0; i < l->c.n_entries; i++) { /* who isn't its root shows that there is one */
        const uint32_t root = sw_set_root(parent, i);

        if (root != i && l->set[root] == SW_NONE) {
            l->set[root] = l->n_sets++;
            members++;
        }
    }
    for (uint32_t i = 0; i < l->c.n_entries; i++)
        l->set[i] = l->set[sw_set_root(parent, i)];
    return name_sets(l, members, e);
}

const char *sw_layout_alias_names(const struct sw_layout *l, uint32_t set)
{
    if (!l->n_sets || !l->set_names[set % l->n_sets])
        return "?";
    return l->set_names[set % l->n_sets];
}
