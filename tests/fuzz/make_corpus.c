/* SPDX-License-Identifier: Apache-2.0 */
/* Writes seeds: for `codec` a payload of each kind, for `frame` streams of a few frames. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/codec.h"
#include "common/frame.h"
#include "common/test_messages.h"

static void append(FILE *file, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, file) != n)
        abort();
}

static FILE *create(const char *folder, const char *name, int number)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s-%d", folder, name, number);
    file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return file;
}

static void write_message(FILE *file, int kind, uint64_t seed, bool framed)
{
    struct sw_msg *msg = test_message((enum sw_msg_kind)kind, seed, 3);
    uint8_t header[SW_FRAME_HEADER], *bytes;
    size_t length;

    if (!msg || sw_codec_encode(msg, &bytes, &length, NULL))
        abort();
    sw_frame_header(header, (uint32_t)length, (uint32_t)seed % 3);
    if (framed)
        append(file, header, sizeof(header));
    append(file, bytes, length);
    free(bytes);
    sw_msg_free(msg);
}

int main(int argc, char **argv)
{
    const bool framed = argc == 3 && strcmp(argv[1], "frame") == 0;

    if (argc != 3) {
        fprintf(stderr, "usage: make_corpus codec|frame FOLDER\n");
        return EXIT_FAILURE;
    }
    mkdir(argv[2], 0777);
    for (int kind = 1; kind < SW_MSG_KIND_COUNT; kind++)
        for (int seed = 0; seed < 3; seed++) {
            FILE *file = create(argv[2], sw_msg_kind_name((enum sw_msg_kind)kind), seed);

            if (framed) {
                append(file, "\x07", 1);
                write_message(file, kind, (uint64_t)seed, true);
                write_message(file, kind % 5 + 1, (uint64_t)seed, true);
                append(file, "GET / HTTP", (size_t)seed * 5);
            } else {
                write_message(file, kind, (uint64_t)seed, false);
            }
            fclose(file);
        }
    return EXIT_SUCCESS;
}
