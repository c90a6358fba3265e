/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/checkpoint_index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/file.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define FILE_SUFFIX ".safetensors"
#define INDEX_SUFFIX ".safetensors.index.json"
#define INDEX_BYTES_MAX (256ull << 20)

struct listing {              /* of a folder */
    bool single, index;       /* SINGLE and INDEX are there */
    unsigned files, indexes;  /* names that end like ours */
    char *file, *other_index; /* one of each */
};

static bool ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

static bool keep(char **where, unsigned *count, const char *name)
{
    if ((*count)++ == 0)
        *where = strdup(name);
    return *where != NULL;
}

static int list_folder(int dir, const char *folder, struct listing *l, struct sw_error *e)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool ok = true;

    if (!d) {
        const int err = errno;
        if (fd >= 0)
            close(fd);
        return sw_fail_errno(e, SW_ERR_IO, err, "list %s", folder);
    }
    while (ok && (entry = readdir(d))) {
        l->single |= strcmp(entry->d_name, SINGLE) == 0;
        l->index |= strcmp(entry->d_name, INDEX) == 0;
        if (ends_with(entry->d_name, FILE_SUFFIX))
            ok = keep(&l->file, &l->files, entry->d_name);
        else if (ends_with(entry->d_name, INDEX_SUFFIX))
            ok = keep(&l->other_index, &l->indexes, entry->d_name);
    }
    closedir(d);
    return ok ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory to list %s", folder);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A name that stays in the folder. */
static bool plain_name(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* The distinct files of the map, sorted: into x->files, which has room for all entries. */
static int collect_files(struct sw_checkpoint_index *x, struct sw_error *e)
{
    const char *tensor;
    json_t *value, *seen = json_object();

    json_object_foreach(x->map, tensor, value)
    {
        const char *file = json_string_value(value);
        if (json_object_get(seen, file))
            continue;
        if (x->n == SW_CHECKPOINT_FILES_MAX) {
            json_decref(seen);
            return sw_fail(e, SW_ERR_LIMIT, "more than %d files", SW_CHECKPOINT_FILES_MAX);
        }
        x->files[x->n] = strdup(file);
        if (!x->files[x->n] || json_object_set_new(seen, file, json_true()) < 0) {
            x->n += x->files[x->n] != NULL;
            json_decref(seen);
            return sw_fail(e, SW_ERR_NOMEM, "no memory for file names");
        }
        x->n++;
    }
    json_decref(seen);
    qsort(x->files, x->n, sizeof(*x->files), compare_names);
    return 0;
}

static int check_map(json_t *map, struct sw_error *e)
{
    const char *tensor;
    json_t *value;

    if (!json_is_object(map))
        return sw_fail(e, SW_ERR_INVALID, "no \"weight_map\" object");
    if (!json_object_size(map))
        return sw_fail(e, SW_ERR_INVALID, "its \"weight_map\" is empty");
    if (json_object_size(map) > SW_TENSORS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%zu tensors, at most %u are supported",
            json_object_size(map), SW_TENSORS_MAX);
    json_object_foreach(map, tensor, value)
    {
        if (!json_is_string(value))
            return sw_fail(e, SW_ERR_INVALID, "tensor %.200s: its file name is no string", tensor);
        if (!plain_name(json_string_value(value)))
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %.200s: \"%.200s\" is no name of a file in the same folder", tensor,
                json_string_value(value));
    }
    return 0;
}

static int read_index(int dir, const char *folder, const char *name, struct sw_checkpoint_index *x,
    struct sw_error *e)
{
    char *text;
    size_t length;
    json_error_t why;
    json_t *root;
    int code = sw_file_read(dir, folder, name, INDEX_BYTES_MAX, &text, &length, e);

    if (code)
        return code;
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!root)
        return sw_fail(e, SW_ERR_INVALID, "%s/%s is no valid JSON (line %d): %s", folder, name,
            why.line, why.text);
    x->map = json_incref(json_object_get(root, "weight_map"));
    json_decref(root);
    code = check_map(x->map, e);
    if (code)
        return sw_error_context(e, code, "%s/%s", folder, name);
    x->name = strdup(name);
    x->files = calloc(json_object_size(x->map), sizeof(*x->files));
    if (!x->name || !x->files)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the file names of %s/%s", folder, name);
    code = collect_files(x, e);
    return code ? sw_error_context(e, code, "%s/%s", folder, name) : 0;
}

static int one_file(const char *name, struct sw_checkpoint_index *x, struct sw_error *e)
{
    x->files = calloc(1, sizeof(*x->files));
    if (!x->files || !(x->files[0] = strdup(name)))
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a file name");
    x->n = 1;
    return 0;
}

static int choose(int dir, const char *folder, const struct listing *l,
    struct sw_checkpoint_index *x, struct sw_error *e)
{
    if (l->single) {
        if (l->index &&
            !(x->warning = strdup(INDEX " is there too and was not used: " SINGLE " comes first")))
            return sw_fail(e, SW_ERR_NOMEM, "no memory for a warning");
        return one_file(SINGLE, x, e);
    }
    if (l->index)
        return read_index(dir, folder, INDEX, x, e);
    if (l->indexes == 1)
        return read_index(dir, folder, l->other_index, x, e);
    if (l->indexes > 1)
        return sw_fail(e, SW_ERR_INVALID,
            "%s has %u *" INDEX_SUFFIX " files and no " INDEX ": which one is meant?", folder,
            l->indexes);
    if (l->files == 1)
        return one_file(l->file, x, e);
    if (l->files > 1)
        return sw_fail(e, SW_ERR_INVALID,
            "%s has %u *" FILE_SUFFIX " files and no index (" INDEX ")", folder, l->files);
    return sw_fail(e, SW_ERR_NOT_FOUND, "%s holds no checkpoint: no " SINGLE ", no " INDEX, folder);
}

int sw_checkpoint_index_read(
    int dir, const char *folder, struct sw_checkpoint_index *out, struct sw_error *e)
{
    struct sw_checkpoint_index x = {0};
    struct listing l = {0};
    int code = list_folder(dir, folder, &l, e);

    if (!code)
        code = choose(dir, folder, &l, &x, e);
    free(l.file);
    free(l.other_index);
    if (code) {
        sw_checkpoint_index_clear(&x);
        return code;
    }
    *out = x;
    return 0;
}

void sw_checkpoint_index_clear(struct sw_checkpoint_index *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->files[i]);
    free(x->files);
    free(x->name);
    free(x->warning);
    if (x->map)
        json_decref(x->map);
    *x = (struct sw_checkpoint_index){0};
}
