/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/water.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HEAVY 128 /* parts of a vessel's share */
#define NOWHERE UINT32_MAX

static int u64_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The height to which `amount` fills vessels that hold `loads` (sorted) already. */
static uint64_t water_level(const uint64_t *loads, uint32_t n, uint64_t amount)
{
    uint64_t sum = amount;

    for (uint32_t i = 1; i <= n; i++) {
        sum += loads[i - 1];
        if (i == n || sum / i <= loads[i])
            return (sum + i - 1) / i;
    }
    return amount;
}

static uint32_t least(const uint64_t *loads, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        if (loads[i] < loads[best])
            best = i;
    return best;
}

/* Heavy amounts in order, each vessel as many as it can take below the level; what then fits
 * nowhere goes to the emptiest. */
static void pour_heavy(const uint64_t *amounts, uint32_t n_amounts, uint64_t heavy, uint64_t level,
    uint64_t *loads, uint32_t n, uint32_t *vessel)
{
    uint32_t v = 0;

    for (uint32_t i = 0; i < n_amounts; i++) {
        vessel[i] = NOWHERE;
        if (amounts[i] <= heavy)
            continue;
        while (v < n && (loads[v] > level || amounts[i] > level - loads[v]))
            v++;
        vessel[i] = v < n ? v : least(loads, n);
        loads[vessel[i]] += amounts[i];
    }
}

/* The others fill what is left up to the level: an amount goes to the vessel in whose room its
 * middle comes to lie, so that errors don't add up from vessel to vessel. */
static void pour_light(const uint64_t *amounts, uint32_t n_amounts, uint64_t level, uint64_t *loads,
    uint32_t n, uint32_t *vessel)
{
    uint64_t poured = 0, room = loads[0] < level ? level - loads[0] : 0;
    uint32_t v = 0;

    for (uint32_t i = 0; i < n_amounts; i++) {
        if (vessel[i] != NOWHERE)
            continue;
        while (v + 1 < n && poured + amounts[i] / 2 >= room) {
            v++;
            room += loads[v] < level ? level - loads[v] : 0;
        }
        vessel[i] = v;
        poured += amounts[i];
    }
}

static uint64_t level_for(const uint64_t *loads, uint32_t n, uint64_t amount, uint64_t *scratch)
{
    memcpy(scratch, loads, n * sizeof(*loads));
    qsort(scratch, n, sizeof(*loads), u64_compare);
    return water_level(scratch, n, amount);
}

void sw_pour(const uint64_t *amounts, uint32_t n_amounts, uint64_t *loads, uint32_t n,
    uint64_t *scratch, uint32_t *vessel)
{
    uint64_t amount = 0, light = 0, held = 0, heavy;

    assert(n > 0);
    for (uint32_t i = 0; i < n_amounts; i++)
        amount += amounts[i];
    for (uint32_t i = 0; i < n; i++)
        held += loads[i];
    heavy = (amount + held) / n / HEAVY;
    for (uint32_t i = 0; i < n_amounts; i++)
        light += amounts[i] <= heavy ? amounts[i] : 0;
    pour_heavy(amounts, n_amounts, heavy, level_for(loads, n, amount, scratch), loads, n, vessel);
    pour_light(amounts, n_amounts, level_for(loads, n, light, scratch), loads, n, vessel);
}
