/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files and folders, as a normal test. Fails when there is nothing to run:
 * a corpus that got lost is no success. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path, long size)
{
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1); /* exactly: reading behind it is noticed */
    FILE *file = fopen(path, "rb");
    int rc = -1;

    if (data && file && fread(data, 1, (size_t)size, file) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        rc = 0;
    }
    if (file)
        fclose(file);
    free(data);
    return rc;
}

static long run_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    long n = 0;

    if (!dir)
        return -1;
    while (n >= 0 && (entry = readdir(dir))) {
        char path[4096];
        struct stat st;

        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        n = run_file(path, (long)st.st_size) ? -1 : n + 1;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    long total = 0;

    for (int i = 1; i < argc; i++) {
        const long n = run_folder(argv[i]);

        if (n < 0) {
            fprintf(stderr, "%s: can't be read\n", argv[i]);
            return EXIT_FAILURE;
        }
        total += n;
    }
    printf("%ld inputs\n", total);
    return total ? EXIT_SUCCESS : EXIT_FAILURE;
}
