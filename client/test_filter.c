/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts and quantises what comes on standard input with the kernels of one instruction set, for
 * tests/oracle/test_fp8.py.
 *
 *     test_filter isas                                       those of this machine, one a line
 *     test_filter ISA cast FROM TO                           elements -> elements
 *     test_filter ISA quantise FROM COLUMNS BLOCK-ROWS BLOCK-COLUMNS fp32|ue8m0
 *                                                            rows -> values, then F32 scales
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/cast.h"
#include "client/quantise.h"

static int fail(const char *what)
{
    fprintf(stderr, "test_filter: %s\n", what);
    return 2;
}

static char *read_all(size_t *bytes)
{
    size_t room = 1 << 20, used = 0, n;
    char *data = malloc(room);

    while (data && (n = fread(data + used, 1, room - used, stdin)) > 0) {
        used += n;
        if (used == room) {
            char *bigger = realloc(data, room *= 2);

            if (!bigger)
                free(data);
            data = bigger;
        }
    }
    *bytes = used;
    return data;
}

static int cast(enum sw_isa isa, char **args, const char *in, size_t bytes)
{
    const enum sw_dtype from = sw_dtype_from_name(args[0]), to = sw_dtype_from_name(args[1]);
    sw_cast_fn *run = sw_cast_find(isa, from, to);
    const size_t n = run ? bytes / (sw_dtype_bits(from) / 8) : 0;
    const size_t out_bytes = n * sw_dtype_bits(to) / 8;
    char *out = malloc(out_bytes + 1);

    if (!run || !out) {
        free(out);
        return fail("there is no such cast");
    }
    run(out, in, n, false);
    fwrite(out, 1, out_bytes, stdout);
    free(out);
    return 0;
}

struct grid {
    const struct sw_quantiser *q;
    enum sw_scale_format format;
    size_t rows, columns, height, width, size; /* of the tensor, of a block, of an element */
};

/* One row of blocks, as many at once as a panel may have. */
static void quantise_row(const struct grid *g, const char *in, size_t row, char *out, float *scales)
{
    const size_t step = g->width * SW_PANEL_BLOCKS;

    for (size_t c = 0; c < g->columns; c += step) {
        const struct sw_panel p = {.src = in + (row * g->columns + c) * g->size,
            .stride = (int64_t)(g->columns * g->size),
            .rows = g->rows - row < g->height ? g->rows - row : g->height,
            .columns = g->columns - c < step ? g->columns - c : step,
            .first = g->width,
            .block = g->width};
        float amax[SW_PANEL_BLOCKS], inverse[SW_PANEL_BLOCKS];

        g->q->maxima(&p, amax);
        for (uint32_t b = 0; b < sw_panel_blocks(&p); b++) {
            scales[c / g->width + b] = sw_scale_of(g->format, amax[b]);
            inverse[b] = 1.0f / scales[c / g->width + b];
        }
        g->q->values(&p, inverse, out + row * g->columns + c, (int64_t)g->columns, true, NULL);
    }
}

static int quantise(enum sw_isa isa, char **args, const char *in, size_t bytes)
{
    const enum sw_dtype from = sw_dtype_from_name(args[0]);
    struct grid g = {.q = sw_quantiser_find(isa, from),
        .format = strcmp(args[4], "ue8m0") == 0 ? SW_SCALE_UE8M0 : SW_SCALE_FP32,
        .columns = strtoul(args[1], NULL, 10),
        .height = strtoul(args[2], NULL, 10),
        .width = strtoul(args[3], NULL, 10)};
    size_t across, down;
    float *scales;
    char *out;

    if (!g.q || !g.columns || !g.height || !g.width)
        return fail("quantise what, and how?");
    g.size = sw_dtype_bits(from) / 8;
    g.rows = bytes / g.size / g.columns;
    across = (g.columns + g.width - 1) / g.width;
    down = (g.rows + g.height - 1) / g.height;
    out = malloc(g.rows * g.columns + 1);
    scales = calloc(across * down + 1, sizeof(*scales));
    for (size_t row = 0; row < down && out && scales; row++)
        quantise_row(&g, in, row * g.height, out, scales + row * across);
    if (out && scales) {
        fwrite(out, 1, g.rows * g.columns, stdout);
        fwrite(scales, sizeof(*scales), across * down, stdout);
    }
    free(out);
    free(scales);
    return 0;
}

int main(int argc, char **argv)
{
    enum sw_isa isa = 0;
    size_t bytes;
    char *in;
    int rc;

    if (argc == 2 && strcmp(argv[1], "isas") == 0) {
        for (; isa < SW_ISA_COUNT; isa++)
            if (sw_isa_has(isa))
                puts(sw_isa_name(isa));
        return 0;
    }
    while (argc > 1 && isa < SW_ISA_COUNT && strcmp(argv[1], sw_isa_name(isa)) != 0)
        isa++;
    if (argc < 5 || isa == SW_ISA_COUNT || !(in = read_all(&bytes)))
        return fail("see its source");
    if (strcmp(argv[2], "cast") == 0 && argc == 5)
        rc = cast(isa, argv + 3, in, bytes);
    else if (strcmp(argv[2], "quantise") == 0 && argc == 8)
        rc = quantise(isa, argv + 3, in, bytes);
    else
        rc = fail("see its source");
    free(in);
    return rc;
}
