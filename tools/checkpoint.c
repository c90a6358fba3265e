/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening: the index says which files there are; each file's header gives a table of tensors; the
 * tables are joined, checked against the index and sorted by name beside. On any error everything
 * is given back: sw_checkpoint_close copes with a half-built object.
 */
#include "tools/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/checkpoint_index.h"
#include "tools/file.h"
#include "tools/mapping.h"
#include "tools/safetensors.h"

#define CONFIG "config.json"
#define CONFIG_BYTES_MAX (64ull << 20)
#define WARNING_NAMES 3
#define LL(x) ((unsigned long long)(x))

struct file {
    int fd;               /* -1 = closed */
    uint64_t bytes, data; /* size, and where the data starts */
    struct sw_safetensors table;
    struct sw_mapping map;
};

struct sw_checkpoint {
    char *folder;
    struct sw_checkpoint_index index;
    struct file *files; /* index.n */
    size_t n;
    struct sw_checkpoint_tensor *tensors;
    const struct sw_checkpoint_tensor **by_name;
    uint64_t bytes;
    bool tied;
    size_t n_warnings;
    char *warnings[2];
};

static int open_file(struct sw_checkpoint *c, int dir, size_t i, bool map, struct sw_error *e)
{
    const char *name = c->index.files[i];
    struct file *f = &c->files[i];
    uint8_t first[8] = {0};
    uint64_t length;
    char *json;
    int code = sw_file_open(dir, c->folder, name, &f->fd, &f->bytes, e);

    if (code && c->index.name && code == SW_ERR_NOT_FOUND)
        return sw_error_context(e, code, "%s names a file that is missing", c->index.name);
    if (code)
        return code;
    if (f->bytes >= sizeof(first)) {
        code = sw_file_pread(f->fd, name, first, sizeof(first), 0, e);
        if (code)
            return code;
    }
    code = sw_safetensors_length(first, f->bytes, &length, e);
    if (code)
        return sw_error_context(e, code, "%s/%s", c->folder, name);
    json = malloc(length + 1);
    if (!json)
        return sw_fail(e, SW_ERR_NOMEM, "%s/%s: no memory for its header of %llu bytes", c->folder,
            name, LL(length));
    f->data = sizeof(first) + length;
    code = sw_file_pread(f->fd, name, json, length, sizeof(first), e);
    if (!code)
        code = sw_safetensors_parse(json, length, f->bytes - f->data, &f->table, e);
    free(json);
    if (code)
        return sw_error_context(e, code, "%s/%s", c->folder, name);
    if (map) {
        code = sw_mapping_open(f->fd, name, &f->map, e);
        if (!code && f->map.bytes != f->bytes)
            code = sw_fail(e, SW_ERR_IO, "%s/%s changed while it was opened: %llu bytes, then %llu",
                c->folder, name, LL(f->bytes), LL(f->map.bytes));
        return code;
    }
    close(f->fd);
    f->fd = -1;
    return 0;
}

static int open_files(struct sw_checkpoint *c, int dir, bool map, struct sw_error *e)
{
    c->files = calloc(c->index.n, sizeof(*c->files));
    if (!c->files)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu files", c->index.n);
    for (size_t i = 0; i < c->index.n; i++) {
        c->files[i].fd = -1;
        c->files[i].map.slot = -1;
    }
    for (size_t i = 0; i < c->index.n; i++) {
        const int code = open_file(c, dir, i, map, e);
        if (code)
            return code;
    }
    return 0;
}

static void add_tensor(struct sw_checkpoint *c, size_t file, const struct sw_safetensor *t)
{
    const struct file *f = &c->files[file];
    struct sw_checkpoint_tensor *out = &c->tensors[c->n++];

    out->name = t->name;
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    memcpy(out->shape, t->shape, sizeof(out->shape));
    out->file = (uint32_t)file;
    out->offset = f->data + t->begin;
    out->bytes = t->end - t->begin;
    if (f->map.base && out->bytes)
        out->data = f->map.base + out->offset;
    c->bytes += out->bytes;
}

struct strays { /* tensors that the index does not name */
    size_t n;
    char names[WARNING_NAMES * (SW_NAME_MAX + 64)];
};

static void add_stray(struct strays *s, const char *name, const char *file)
{
    const size_t used = strlen(s->names);

    if (s->n++ < WARNING_NAMES)
        snprintf(s->names + used, sizeof(s->names) - used, "%s%s in %.60s", used ? ", " : "", name,
            file);
}

/* Takes the tensors of a file, as far as the index gives them to it. */
static int join_file(struct sw_checkpoint *c, size_t i, struct strays *strays, struct sw_error *e)
{
    const char *file = c->index.files[i];
    const struct sw_safetensors *table = &c->files[i].table;

    for (size_t k = 0; k < table->n; k++) {
        const char *name = table->tensors[k].name;
        const char *home =
            c->index.map ? json_string_value(json_object_get(c->index.map, name)) : file;
        if (!home)
            add_stray(strays, name, file);
        else if (strcmp(home, file) != 0)
            return sw_fail(e, SW_ERR_INVALID,
                "%s: tensor %s is in %s, and %s says that it is in %s", c->folder, name, file,
                c->index.name, home);
        else
            add_tensor(c, i, &table->tensors[k]);
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct sw_checkpoint_tensor *const *)a)->name,
        (*(const struct sw_checkpoint_tensor *const *)b)->name);
}

static int sort_names(struct sw_checkpoint *c, struct sw_error *e)
{
    c->by_name = malloc((c->n + 1) * sizeof(*c->by_name));
    if (!c->by_name)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", c->n);
    for (size_t i = 0; i < c->n; i++)
        c->by_name[i] = &c->tensors[i];
    qsort(c->by_name, c->n, sizeof(*c->by_name), compare_names);
    return 0;
}

/* Every tensor of the index has been found in its file. */
static int check_index(const struct sw_checkpoint *c, struct sw_error *e)
{
    const char *name;
    json_t *file;

    if (!c->index.map || json_object_size(c->index.map) == c->n)
        return 0;
    json_object_foreach(c->index.map, name, file)
    {
        if (!sw_checkpoint_find(c, name))
            return sw_fail(e, SW_ERR_INVALID,
                "%s: %s says that tensor %.512s is in %s, which lacks it", c->folder, c->index.name,
                name, json_string_value(file));
    }
    return 0;
}

static int warn(struct sw_checkpoint *c, char *text, struct sw_error *e)
{
    if (!text)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a warning");
    c->warnings[c->n_warnings++] = text;
    return 0;
}

static int warn_of_strays(struct sw_checkpoint *c, const struct strays *s, struct sw_error *e)
{
    char *text;

    if (!s->n)
        return 0;
    if (asprintf(&text, "%zu tensors are in no index and were left out: %s%s", s->n, s->names,
            s->n > WARNING_NAMES ? ", ..." : "") < 0)
        text = NULL;
    return warn(c, text, e);
}

static int join(struct sw_checkpoint *c, struct sw_error *e)
{
    struct strays strays = {0};
    size_t total = 0;
    int code = 0;

    for (size_t i = 0; i < c->index.n; i++)
        total += c->files[i].table.n;
    if (total > SW_TENSORS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%s: %zu tensors, at most %u are supported", c->folder,
            total, SW_TENSORS_MAX);
    c->tensors = calloc(total + 1, sizeof(*c->tensors));
    if (!c->tensors)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", total);
    for (size_t i = 0; !code && i < c->index.n; i++)
        code = join_file(c, i, &strays, e);
    if (!code)
        code = sort_names(c, e);
    if (!code)
        code = check_index(c, e);
    if (!code && c->index.warning)
        code = warn(c, strdup(c->index.warning), e);
    return code ? code : warn_of_strays(c, &strays, e);
}

/* config.json need not be there. */
static int read_config(struct sw_checkpoint *c, int dir, struct sw_error *e)
{
    json_error_t why;
    json_t *root;
    size_t length;
    char *text;
    int code = sw_file_read(dir, c->folder, CONFIG, CONFIG_BYTES_MAX, &text, &length, e);

    if (code == SW_ERR_NOT_FOUND)
        return 0;
    if (code)
        return code;
    root = json_loadb(text, length, 0, &why);
    free(text);
    if (!root)
        return sw_fail(e, SW_ERR_INVALID, "%s/" CONFIG " is no valid JSON (line %d): %s", c->folder,
            why.line, why.text);
    c->tied = json_is_true(json_object_get(root, "tie_word_embeddings"));
    json_decref(root);
    return 0;
}

int sw_checkpoint_open(const char *folder, enum sw_checkpoint_mode mode,
    struct sw_checkpoint **checkpoint, struct sw_error *e)
{
    struct sw_checkpoint *c;
    int code, dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return sw_fail_errno(e, errno == ENOENT ? SW_ERR_NOT_FOUND : SW_ERR_IO, errno,
            "open checkpoint folder %s", folder);
    c = calloc(1, sizeof(*c));
    if (!c || !(c->folder = strdup(folder))) {
        code = sw_fail(e, SW_ERR_NOMEM, "no memory to open %s", folder);
        goto out;
    }
    code = sw_checkpoint_index_read(dir, folder, &c->index, e);
    if (!code)
        code = open_files(c, dir, mode == SW_CHECKPOINT_DATA, e);
    if (!code)
        code = join(c, e);
    if (!code)
        code = read_config(c, dir, e);
out:
    close(dir);
    if (code) {
        sw_checkpoint_close(c);
        return code;
    }
    *checkpoint = c;
    return 0;
}

const struct sw_checkpoint_tensor *sw_checkpoint_tensors(const struct sw_checkpoint *c, size_t *n)
{
    *n = c->n;
    return c->tensors;
}

static int compare_to_key(const void *key, const void *item)
{
    return strcmp(key, (*(const struct sw_checkpoint_tensor *const *)item)->name);
}

const struct sw_checkpoint_tensor *sw_checkpoint_find(
    const struct sw_checkpoint *c, const char *name)
{
    const struct sw_checkpoint_tensor **found =
        bsearch(name, c->by_name, c->n, sizeof(*c->by_name), compare_to_key);
    return found ? *found : NULL;
}

uint64_t sw_checkpoint_bytes(const struct sw_checkpoint *c)
{
    return c->bytes;
}

size_t sw_checkpoint_files(const struct sw_checkpoint *c)
{
    return c->index.n;
}

const char *sw_checkpoint_file(const struct sw_checkpoint *c, size_t i)
{
    return i < c->index.n ? c->index.files[i] : NULL;
}

const char *sw_checkpoint_warning(const struct sw_checkpoint *c, size_t i)
{
    return i < c->n_warnings ? c->warnings[i] : NULL;
}

bool sw_checkpoint_tied(const struct sw_checkpoint *c)
{
    return c->tied;
}

int sw_checkpoint_intact(const struct sw_checkpoint *c, struct sw_error *e)
{
    for (size_t i = 0; i < c->index.n; i++) {
        int code;
        if (c->files[i].fd < 0)
            continue;
        code = sw_mapping_check(&c->files[i].map, c->files[i].fd, c->index.files[i], e);
        if (code)
            return sw_error_context(e, code, "%s", c->folder);
    }
    return 0;
}

void sw_checkpoint_close(struct sw_checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->files && i < c->index.n; i++) {
        sw_mapping_close(&c->files[i].map);
        sw_safetensors_clear(&c->files[i].table);
        if (c->files[i].fd >= 0)
            close(c->files[i].fd);
    }
    for (size_t i = 0; i < c->n_warnings; i++)
        free(c->warnings[i]);
    free(c->files);
    free(c->tensors);
    free(c->by_name);
    sw_checkpoint_index_clear(&c->index);
    free(c->folder);
    free(c);
}
