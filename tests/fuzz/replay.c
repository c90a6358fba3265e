/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of folders: how a corpus becomes a normal test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    uint8_t *bytes;
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return -1;
    }
    fseek(f, 0, SEEK_END);
    n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n ? n : 1); /* exactly as long, so that a sanitizer sees reads past the end */
    if (!bytes || fread(bytes, 1, n, f) != n) {
        fprintf(stderr, "%s: can't be read\n", path);
        free(bytes);
        fclose(f);
        return -1;
    }
    fclose(f);
    LLVMFuzzerTestOneInput(bytes, n);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        struct dirent *entry;
        if (!d) {
            perror(argv[i]);
            return EXIT_FAILURE;
        }
        while ((entry = readdir(d))) {
            if (entry->d_name[0] == '.')
                continue;
            if (replay_file(argv[i], entry->d_name) < 0)
                return EXIT_FAILURE;
            files++;
        }
        closedir(d);
    }
    printf("%u inputs\n", files);
    return files ? EXIT_SUCCESS : EXIT_FAILURE;
}
