/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that declare what may not be, for tests: odd_engine SOCKET GROUP CASE. The library's own
 * checks are passed by, where it has them, by a region that is right in itself.
 */
#include <stdio.h>
#include <string.h>
#include <shardwire/engine.h>

static int fill(sw_engine *en, const char *what, struct sw_error *e)
{
    const uint64_t shape[] = {16, 16}, half[] = {8, 16};
    void *memory;
    uint32_t region;
    int code = sw_engine_alloc(en, 1024, &memory, &region, e);

    if (!code)
        code = sw_engine_parameter(en, "a", SW_F32, 2, shape, region, 0, e);
    if (!code && strcmp(what, "small") == 0)
        return sw_engine_parameter(en, "b", SW_F32, 2, shape, region, 512, e);
    if (!code && strcmp(what, "overlap") == 0)
        return sw_engine_parameter(en, "b", SW_F32, 2, half, region, 512, e);
    return code;
}

int main(int argc, char **argv)
{
    struct sw_engine_options options = {.size = sizeof(options)};
    struct sw_error e = {0};
    sw_engine *en = NULL;
    int code;

    if (argc != 4)
        return 2;
    options.socket = argv[1];
    options.group = argv[2];
    options.engine = "odd";
    code = sw_engine_open(&options, &en, &e);
    if (!code)
        code = fill(en, argv[3], &e);
    if (!code)
        code = sw_engine_register(en, &e);
    printf("%d %s\n", code, code ? e.text : "registered");
    sw_engine_close(en);
    return 0;
}
