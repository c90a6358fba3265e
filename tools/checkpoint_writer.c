/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The happy path: lay the tensors out in shards, write headers, then fill the data in blocks, each
 * a random stream of its own, on several threads; index, config.json and marker last; rename.
 */
#include "tools/checkpoint_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>
#include <openssl/evp.h>
#include "common/error.h"
#include "tools/checkpoint.h"
#include "tools/file.h"
#include "tools/jobs.h"
#include "tools/random_values.h"

#define BLOCK (4u << 20)
#define MARKER ".shardwire-checkpoint"
#define MARKER_MAX 512
#define INDEX "model.safetensors.index.json"
#define LL(x) ((unsigned long long)(x))

struct block { /* a job: part of a tensor */
    const struct sw_architecture_tensor *tensor;
    uint32_t shard;
    uint64_t at; /* in the tensor */
    uint64_t file_offset;
    uint32_t bytes;
};

struct writer {
    const struct sw_architecture *model;
    const struct sw_write_options *options;
    int dir;
    size_t n_shards;
    int *fds;           /* of the shards */
    uint32_t *shard_of; /* of each tensor */
    size_t n_blocks;
    struct block *blocks;
    json_t *map; /* the index's weight_map */
};

/* Next-fit: the shard of each tensor into shard_of (may be NULL); returns the number of shards. */
static size_t assign(const struct sw_architecture *m, uint64_t shard_bytes, uint32_t *shard_of)
{
    uint64_t used = 0;
    uint32_t shard = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (used && m->tensors[i].bytes > shard_bytes - used) {
            shard++;
            used = 0;
        }
        used += m->tensors[i].bytes;
        if (used > shard_bytes)
            used = shard_bytes;
        if (shard_of)
            shard_of[i] = shard;
    }
    return shard + 1;
}

size_t sw_checkpoint_shards(const struct sw_architecture *m, uint64_t shard_bytes)
{
    return assign(m, shard_bytes, NULL);
}

static void shard_name(const struct writer *w, size_t shard, char name[64])
{
    snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, w->n_shards);
}

static int write_file(int dir, const char *name, const void *bytes, size_t n, struct sw_error *e)
{
    const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int code;

    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "create %s", name);
    code = sw_file_pwrite(fd, name, bytes, n, 0, e);
    close(fd);
    return code;
}

static json_t *describe(const struct sw_architecture_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();

    for (uint32_t d = 0; d < t->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", sw_dtype_name(t->dtype), "shape", shape,
        "data_offsets", (json_int_t)begin, (json_int_t)begin + (json_int_t)t->bytes);
}

/* The header with its length in front, padded so that data starts at a multiple of 8; malloc'ed. */
static char *render_header(json_t *header, uint64_t *bytes)
{
    char *json = json_dumps(header, JSON_COMPACT), *out = NULL;

    if (json) {
        const size_t n = strlen(json), padded = (n + 7) / 8 * 8;
        out = malloc(8 + padded);
        if (out) {
            for (int i = 0; i < 8; i++)
                out[i] = (char)((uint64_t)padded >> (8 * i));
            memcpy(out + 8, json, n);
            memset(out + 8 + n, ' ', padded - n);
            *bytes = 8 + padded;
        }
    }
    free(json);
    return out;
}

static void add_blocks(
    struct writer *w, const struct sw_architecture_tensor *t, uint32_t shard, uint64_t at)
{
    for (uint64_t done = 0; done < t->bytes; done += BLOCK) {
        const uint64_t left = t->bytes - done;
        w->blocks[w->n_blocks++] = (struct block){.tensor = t,
            .shard = shard,
            .at = done,
            .file_offset = at + done,
            .bytes = left < BLOCK ? (uint32_t)left : BLOCK};
    }
}

/* Header, room for the data, and the jobs that fill it. */
static int start_shard(struct writer *w, uint32_t shard, struct sw_error *e)
{
    const struct sw_architecture *m = w->model;
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, header_bytes = 0;
    char name[64], *bytes;
    int code, err;

    shard_name(w, shard, name);
    for (size_t i = 0; i < m->n; i++) {
        if (w->shard_of[i] != shard)
            continue;
        json_object_set_new(header, m->tensors[i].name, describe(&m->tensors[i], at));
        json_object_set_new(w->map, m->tensors[i].name, json_string(name));
        at += m->tensors[i].bytes;
    }
    bytes = render_header(header, &header_bytes);
    json_decref(header);
    if (!bytes)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the header of %s", name);
    w->fds[shard] = openat(w->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w->fds[shard] < 0)
        code = sw_fail_errno(e, SW_ERR_IO, errno, "create %s", name);
    else if ((err = posix_fallocate(w->fds[shard], 0, (off_t)(header_bytes + at))))
        code = sw_fail_errno(
            e, SW_ERR_IO, err, "%s: room for %llu bytes", name, LL(header_bytes + at));
    else
        code = sw_file_pwrite(w->fds[shard], name, bytes, header_bytes, 0, e);
    free(bytes);
    at = header_bytes;
    for (size_t i = 0; !code && i < m->n; i++) {
        if (w->shard_of[i] != shard)
            continue;
        add_blocks(w, &m->tensors[i], shard, at);
        at += m->tensors[i].bytes;
    }
    return code;
}

/* Values depend on seed, name and place in the tensor only, not on shards or threads. */
static uint64_t stream_of(const struct block *b)
{
    const char *name = b->tensor->tied_to ? b->tensor->tied_to : b->tensor->name;
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
    return hash + b->at;
}

static int fill_block(size_t i, void *arg, struct sw_error *e)
{
    const struct writer *w = arg;
    const struct block *b = &w->blocks[i];
    void *buffer = malloc(b->bytes);
    char name[64];
    int code;

    if (!buffer)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a block of %u bytes", b->bytes);
    sw_random_fill(buffer, b->bytes, b->tensor->dtype, w->options->seed, stream_of(b));
    shard_name(w, b->shard, name);
    code = sw_file_pwrite(w->fds[b->shard], name, buffer, b->bytes, b->file_offset, e);
    free(buffer);
    return code;
}

static int write_index(struct writer *w, struct sw_error *e)
{
    json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
        (json_int_t)w->model->bytes, "weight_map", w->map);
    char *text = index ? json_dumps(index, JSON_INDENT(2)) : NULL;
    int code = text ? write_file(w->dir, INDEX, text, strlen(text), e)
                    : sw_fail(e, SW_ERR_NOMEM, "no memory for the index");

    free(text);
    json_decref(index);
    return code;
}

static int make_marker(const struct sw_architecture *m, const struct sw_write_options *o,
    char text[MARKER_MAX], struct sw_error *e)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned n = 0;

    if (!EVP_Digest(o->config, o->config_bytes, digest, &n, EVP_sha256(), NULL))
        return sw_fail(e, SW_ERR_NOMEM, "SHA-256 of the config failed");
    for (unsigned i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    snprintf(text, MARKER_MAX,
        "format 1\nconfig %s\nseed %" PRIu64 "\nshard-bytes %" PRIu64
        "\ntensors %zu\nbytes %" PRIu64 "\n",
        hex, o->seed, o->shard_bytes, m->n, m->bytes);
    return 0;
}

static size_t count_blocks(const struct sw_architecture *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n; i++)
        n += (m->tensors[i].bytes + BLOCK - 1) / BLOCK;
    return n;
}

static int write_into(int dir, const struct sw_architecture *m, const struct sw_write_options *o,
    const char *marker, struct sw_error *e)
{
    struct writer w = {.model = m, .options = o, .dir = dir};
    int code = 0;

    w.n_shards = sw_checkpoint_shards(m, o->shard_bytes);
    w.fds = malloc(w.n_shards * sizeof(*w.fds));
    w.shard_of = calloc(m->n + 1, sizeof(*w.shard_of));
    w.blocks = calloc(count_blocks(m) + 1, sizeof(*w.blocks));
    w.map = json_object();
    if (!w.fds || !w.shard_of || !w.blocks || !w.map)
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for %zu tensors", m->n);
    for (size_t i = 0; w.fds && i < w.n_shards; i++)
        w.fds[i] = -1;
    if (!code)
        assign(m, o->shard_bytes, w.shard_of);
    for (size_t i = 0; !code && i < w.n_shards; i++)
        code = start_shard(&w, (uint32_t)i, e);
    if (!code)
        code = sw_jobs_run(o->threads, w.n_blocks, fill_block, &w, e);
    if (!code)
        code = write_index(&w, e);
    if (!code)
        code = write_file(dir, "config.json", o->config, o->config_bytes, e);
    if (!code)
        code = write_file(dir, MARKER, marker, strlen(marker), e);
    for (size_t i = 0; w.fds && i < w.n_shards; i++)
        if (w.fds[i] >= 0 && close(w.fds[i]) < 0 && !code)
            code = sw_fail_errno(e, SW_ERR_IO, errno, "close a shard");
    free(w.fds);
    free(w.shard_of);
    free(w.blocks);
    json_decref(w.map);
    return code;
}

/* Removes a folder of plain files, best effort: what is in the way stays. */
static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *entry;

    if (!d)
        return;
    while ((entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    rmdir(path);
}

enum found { ABSENT, SAME, OURS, FOREIGN };

/* Does it hold what the marker says? A folder that was damaged afterwards is written anew. */
static bool whole(const char *folder, const struct sw_architecture *m)
{
    struct sw_checkpoint *c;
    size_t n;
    bool same;

    if (sw_checkpoint_open(folder, SW_CHECKPOINT_HEADERS, &c, NULL))
        return false;
    sw_checkpoint_tensors(c, &n);
    same = n == m->n && sw_checkpoint_bytes(c) == m->bytes;
    sw_checkpoint_close(c);
    return same;
}

static enum found look(const char *folder, const char *marker, const struct sw_architecture *m)
{
    const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum found found;
    size_t length;
    char *text;

    if (dir < 0)
        return errno == ENOENT ? ABSENT : FOREIGN;
    if (sw_file_read(dir, folder, MARKER, MARKER_MAX, &text, &length, NULL)) {
        close(dir);
        return rmdir(folder) == 0 ? ABSENT : FOREIGN; /* an empty folder is as good as none */
    }
    close(dir);
    found = strcmp(text, marker) == 0 && whole(folder, m) ? SAME : OURS;
    free(text);
    return found;
}

/* rename(2) with flags, on file systems that know them; otherwise as near as it gets. */
static int rename_with(const char *from, const char *to, unsigned flags)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (flags == RENAME_EXCHANGE)
        remove_folder(to);
    return rename(from, to); /* refuses a folder that is not empty */
}

/* Puts `made` in the place of `folder`, whose old content (if any) is removed afterwards. */
static int move_in(const char *made, const char *folder, bool replace, struct sw_error *e)
{
    if (rename_with(made, folder, replace ? RENAME_EXCHANGE : RENAME_NOREPLACE) < 0)
        return sw_fail_errno(e, errno == EEXIST || errno == ENOTEMPTY ? SW_ERR_EXISTS : SW_ERR_IO,
            errno, "rename %s to %s", made, folder);
    if (replace)
        remove_folder(made);
    return 0;
}

/* Writes it beside `folder` and renames it. */
static int write_beside(const char *folder, char *made, const struct sw_architecture *m,
    const struct sw_write_options *options, const char *marker, bool replace, struct sw_error *e)
{
    int code = 0, dir;

    if (!mkdtemp(made))
        return sw_fail_errno(e, SW_ERR_IO, errno, "create %s", made);
    dir = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fchmod(dir, 0755) < 0)
        code = sw_fail_errno(e, SW_ERR_IO, errno, "open %s", made);
    if (!code)
        code = write_into(dir, m, options, marker, e);
    if (dir >= 0)
        close(dir);
    if (!code)
        code = move_in(made, folder, replace, e);
    if (code)
        remove_folder(made);
    return code;
}

int sw_checkpoint_write(const char *folder, const struct sw_architecture *m,
    const struct sw_write_options *options, bool *kept, struct sw_error *e)
{
    char marker[MARKER_MAX], made[4096];
    size_t n = strlen(folder);
    enum found found;
    int code;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    if ((size_t)snprintf(made, sizeof(made), "%.*s.new-XXXXXX", (int)n, folder) >= sizeof(made))
        return sw_fail(e, SW_ERR_INVALID, "path too long: %.200s...", folder);
    code = make_marker(m, options, marker, e);
    if (code)
        return code;
    found = look(folder, marker, m);
    if (found == FOREIGN)
        return sw_fail(e, SW_ERR_EXISTS, "%s exists and was not made by this tool", folder);
    if (found == OURS && !options->replace)
        return sw_fail(e, SW_ERR_EXISTS, "%s exists and holds another checkpoint", folder);
    if (found != SAME) {
        code = write_beside(folder, made, m, options, marker, found == OURS, e);
        /* Somebody else may have made the same one meanwhile. */
        if (code == SW_ERR_EXISTS && look(folder, marker, m) == SAME)
            found = SAME;
        else if (code)
            return code;
    }
    *kept = found == SAME;
    return 0;
}
