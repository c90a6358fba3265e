/* SPDX-License-Identifier: Apache-2.0 */
/* bench-memcpy BYTES THREADS: what memcpy gives on this machine, in nanoseconds for BYTES (median
 * of five after a warm-up). It copies a block of at most 256 MiB again and again: memory stays
 * small. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/copy.h"

#define BLOCK (256ull << 20)
#define ROUNDS 5

int main(int argc, char **argv)
{
    uint64_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    unsigned threads = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    uint64_t block = bytes < BLOCK ? bytes : BLOCK;
    double rounds[ROUNDS];
    char *from, *to;

    if (!bytes || !threads || threads > 64) {
        fprintf(stderr, "usage: bench-memcpy BYTES THREADS (1 to 64)\n");
        return 2;
    }
    from = malloc(block);
    to = malloc(block);
    if (!from || !to) {
        fprintf(stderr, "bench-memcpy: no memory for two blocks of %" PRIu64 " bytes\n", block);
        free(from);
        free(to);
        return 1;
    }
    memset(from, 1, block);
    memset(to, 2, block);
    for (int i = -1; i < ROUNDS; i++) {
        double ns = 0;

        for (uint64_t done = 0; done < bytes; done += block)
            ns +=
                (double)bench_copy(to, from, bytes - done < block ? bytes - done : block, threads);
        if (i >= 0)
            rounds[i] = ns;
    }
    printf("%.0f\n", bench_median(rounds, ROUNDS));
    free(from);
    free(to);
    return 0;
}
