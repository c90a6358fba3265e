/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine registers: regions, parameters, aliases. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client/declaration.h"
#include "client/engine_impl.h"
#include "common/error.h"
#include "common/limits.h"
#include "common/memory.h"

/* ---- regions ---- */

static int check_open(const struct sw_engine *en, const char *what, struct sw_error *e)
{
    if (!en->declared)
        return 0;
    return sw_fail(e, SW_ERR_STATE,
        "%s: engine %s rank %u is registered; what it has is fixed from then on: open another one",
        what, en->name, en->rank);
}

static int check_region(
    const struct sw_engine *en, const char *what, uint64_t bytes, struct sw_error *e)
{
    int rc = check_open(en, what, e);

    if (rc)
        return rc;
    if (en->n_regions == ENGINE_REGIONS_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "%s: an engine rank can have %d regions", what, ENGINE_REGIONS_MAX);
    if (bytes == 0 || bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_INVALID,
            "%s: a region of %" PRIu64 " bytes; 1 to %" PRIu64 " are possible", what, bytes,
            (uint64_t)SW_BYTES_MAX);
    return 0;
}

static void add_region(struct sw_engine *en, struct engine_region r, uint32_t *region)
{
    en->regions[en->n_regions] = r;
    if (region)
        *region = en->n_regions;
    en->n_regions++;
}

int sw_engine_alloc(
    sw_engine *en, uint64_t bytes, void **memory, uint32_t *region, struct sw_error *e)
{
    struct engine_region r = {.bytes = bytes, .ours = true};
    int rc = check_region(en, "sw_engine_alloc", bytes, e);

    if (!rc)
        rc = sw_memory_create("shardwire-engine", bytes, false, en->threads, &r.fd, NULL, e);
    if (rc)
        return rc;
    rc = sw_memory_map(r.fd, bytes, true, SW_FILL_NEW, en->threads, &r.base, e);
    if (rc) {
        close(r.fd);
        return rc;
    }
    add_region(en, r, region);
    *memory = r.base;
    return 0;
}

int sw_engine_region(
    sw_engine *en, int memfd, void *memory, uint64_t bytes, uint32_t *region, struct sw_error *e)
{
    struct engine_region r = {.base = memory, .bytes = bytes};
    int rc = check_region(en, "sw_engine_region", bytes, e);

    if (!rc && !memory)
        rc = sw_fail(e, SW_ERR_INVALID, "sw_engine_region: memory is NULL");
    if (!rc)
        rc = sw_memory_check(memfd, bytes, true, NULL, e);
    if (rc)
        return rc;
    r.fd = fcntl(memfd, F_DUPFD_CLOEXEC, 3);
    if (r.fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "duplicate of a region's descriptor");
    add_region(en, r, region);
    return 0;
}

void engine_memory_free(struct sw_engine *en)
{
    for (uint32_t i = 0; i < en->n_regions; i++) {
        if (en->regions[i].ours)
            sw_memory_unmap(en->regions[i].base, en->regions[i].bytes);
        close(en->regions[i].fd);
    }
    sw_names_free(en->names);
    free(en->parameters);
    sw_arena_clear(&en->arena);
}

/* ---- parameters ---- */

/* Appends a parameter; its name is copied. */
static int add_parameter(
    struct sw_engine *en, const char *name, struct sw_parameter p, struct sw_error *e)
{
    int rc = check_open(en, name ? name : "a parameter", e);

    if (!rc)
        rc = sw_name_check("parameter", en->n_parameters, name, e);
    if (rc)
        return rc;
    if (sw_names_find(en->names, name) != SW_NAMES_NONE)
        return sw_fail(e, SW_ERR_EXISTS, "parameter %s is declared twice", name);
    if (en->n_parameters == SW_PARAMETERS_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "parameter %s: an engine rank can have %u", name, SW_PARAMETERS_MAX);
    if (en->n_parameters == en->room) {
        const uint32_t room = en->room ? 2 * en->room : 256;
        struct sw_parameter *more = realloc(en->parameters, room * sizeof(*more));

        if (!more)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for parameter %s", name);
        en->parameters = more;
        en->room = room;
    }
    p.name = sw_arena_strdup(&en->arena, name);
    if (!p.name || sw_names_add(en->names, p.name, en->n_parameters))
        return sw_fail(e, SW_ERR_NOMEM, "no memory for parameter %s", name);
    en->parameters[en->n_parameters++] = p;
    return 0;
}

int sw_engine_parameter(sw_engine *en, const char *name, enum sw_dtype dtype, uint32_t ndim,
    const uint64_t *shape, uint32_t region, uint64_t offset, struct sw_error *e)
{
    struct sw_parameter p = {.dtype = dtype, .ndim = ndim, .region = region, .offset = offset};
    const char *shown = name ? name : "(no name)";
    uint64_t bytes;

    if (!sw_dtype_bits(dtype))
        return sw_fail(
            e, SW_ERR_INVALID, "parameter %.512s: there is no dtype %d", shown, (int)dtype);
    if (ndim > SW_MAX_DIMS || (ndim && !shape) || sw_tensor_bytes(dtype, ndim, shape, &bytes))
        return sw_fail(e, SW_ERR_INVALID,
            "parameter %.512s: %u dimensions (at most %d), or a shape that overflows or ends in "
            "the middle of a byte",
            shown, ndim, SW_MAX_DIMS);
    if (region >= en->n_regions)
        return sw_fail(
            e, SW_ERR_INVALID, "parameter %.512s: region %u of %u", shown, region, en->n_regions);
    if (sw_range_exceeds(offset, bytes, en->regions[region].bytes))
        return sw_fail(e, SW_ERR_INVALID,
            "parameter %.512s: %" PRIu64 " bytes at offset %" PRIu64
            " do not fit into region %u of %" PRIu64 " bytes",
            shown, bytes, offset, region, en->regions[region].bytes);
    for (uint32_t d = 0; d < ndim; d++)
        p.shape[d] = shape[d];
    return add_parameter(en, name, p, e);
}

int sw_engine_alias(sw_engine *en, const char *name, const char *of, struct sw_error *e)
{
    const uint32_t i = of ? sw_names_find(en->names, of) : SW_NAMES_NONE;
    struct sw_parameter p;

    if (i == SW_NAMES_NONE)
        return sw_fail(e, SW_ERR_NOT_FOUND, "alias %.200s of %.512s: there is no such parameter",
            name ? name : "(no name)", of ? of : "(no name)");
    p = en->parameters[i];
    if (!p.alias_of) /* an alias of an alias is one of its storage */
        p.alias_of = p.name;
    return add_parameter(en, name, p, e);
}

/* ---- local copies ---- */

/* Declared bytes, merged. */
static struct sw_run *make_runs(const struct sw_engine *en, uint32_t *n)
{
    struct sw_run *runs = calloc(en->n_parameters + 1ull, sizeof(*runs));

    if (!runs)
        return NULL;
    for (uint32_t i = 0; i < en->n_parameters; i++) {
        const struct sw_parameter *p = &en->parameters[i];

        runs[i] = (struct sw_run){.region = p->region, .offset = p->offset};
        if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &runs[i].length))
            runs[i].length = 0;
    }
    *n = sw_runs_merge(runs, en->n_parameters);
    return runs;
}

int engine_local_new(struct sw_engine *en, struct sw_error *e)
{
    struct sw_port_region regions[ENGINE_REGIONS_MAX];
    struct sw_port_spec spec = {.n_regions = en->n_regions, .regions = regions};
    struct sw_run *runs = make_runs(en, &spec.n_runs);

    for (uint32_t i = 0; i < en->n_regions; i++)
        regions[i] = (struct sw_port_region){en->regions[i].base, en->regions[i].bytes};
    spec.runs = runs;
    sw_local_engine_free(en->local);
    en->local = runs ? sw_local_engine_new(&spec, en->threads) : NULL;
    free(runs);
    if (!en->local)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %u parameters", en->n_parameters);
    return 0;
}
