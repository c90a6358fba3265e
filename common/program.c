/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include <stdlib.h>

bool sw_runs_contain(
    const struct sw_run *runs, uint32_t n, uint32_t region, uint64_t offset, uint64_t length)
{
    uint32_t low = 0, high = n;

    /* low becomes the number of runs that start at or before (region, offset). */
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (runs[mid].region < region || (runs[mid].region == region && runs[mid].offset <= offset))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || length == 0 || runs[low - 1].region != region)
        return false;
    return !sw_range_exceeds(offset - runs[low - 1].offset, length, runs[low - 1].length);
}

static int run_compare(const void *a, const void *b)
{
    const struct sw_run *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* One past the run's last byte; a run that would go past the end of all numbers ends there. */
static uint64_t run_end(const struct sw_run *run)
{
    return run->length > UINT64_MAX - run->offset ? UINT64_MAX : run->offset + run->length;
}

uint32_t sw_runs_merge(struct sw_run *runs, uint32_t n)
{
    uint32_t out = 0;

    if (n)
        qsort(runs, n, sizeof(*runs), run_compare);
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_run run = runs[i];
        struct sw_run *last = out ? &runs[out - 1] : NULL;

        if (run.length == 0)
            continue;
        if (last && last->region == run.region && run.offset <= run_end(last)) {
            if (run_end(&run) > run_end(last))
                last->length = run_end(&run) - last->offset;
        } else {
            runs[out] = run;
            runs[out++].length = run_end(&run) - run.offset;
        }
    }
    return out;
}
