/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/layouts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/text.h"

#define SUFFIX ".layout"
#define LISTED 200 /* bytes of names in a message */

struct file {
    char *name; /* without the suffix */
    struct sw_rules *rules;
};

struct sw_layouts {
    uint32_t n;
    struct file files[SW_LAYOUT_FILES_MAX];
};

struct folder {
    int fd;
    const char *path;
};

/* ---- one file ---- */

static int fill(int fd, char *text, size_t size, size_t *length)
{
    *length = 0;
    while (*length < size) {
        const ssize_t n = read(fd, text + *length, size - *length);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            return 0;
        *length += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The whole of a regular file of at most SW_RULE_FILE_MAX bytes; text[*length] is NUL. */
static int read_text(
    const struct folder *f, const char *name, char **text, size_t *length, struct sw_error *e)
{
    const int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *buffer = NULL;
    int err = 0;

    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "layout file %s/%s", f->path, name);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)SW_RULE_FILE_MAX)
        err = sw_fail(e, SW_ERR_INVALID, "layout file %s/%s is no regular file of at most %u bytes",
            f->path, name, SW_RULE_FILE_MAX);
    if (!err && !(buffer = calloc(1, (size_t)st.st_size + 1)))
        err = sw_fail(e, SW_ERR_NOMEM, "no memory for layout file %s/%s", f->path, name);
    if (!err && fill(fd, buffer, (size_t)st.st_size, length) < 0)
        err = sw_fail_errno(e, SW_ERR_IO, errno, "layout file %s/%s", f->path, name);
    close(fd);
    if (err) {
        free(buffer);
        return err;
    }
    *text = buffer;
    return 0;
}

/* Included files are of the same folder: a name with a slash leads out of it. */
static int read_included(void *arg, const char *name, char **text, struct sw_error *e)
{
    size_t length;
    int err;

    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return sw_fail(e, SW_ERR_INVALID,
            "include %s: the name of a file in the same folder is "
            "expected",
            name);
    err = read_text(arg, name, text, &length, e);
    if (!err && strlen(*text) != length) {
        free(*text);
        *text = NULL;
        err = sw_fail(e, SW_ERR_INVALID, "layout file %s holds a NUL byte", name);
    }
    return err;
}

static int read_file(struct folder *f, const char *name, struct file *out, struct sw_error *e)
{
    const size_t stem = strlen(name) - strlen(SUFFIX);
    char *text = NULL;
    size_t length;
    int err = read_text(f, name, &text, &length, e);

    if (!err)
        err = sw_rules_parse(name, text, length, read_included, f, &out->rules, e);
    free(text);
    if (err)
        return err;
    out->name = strndup(name, stem);
    return out->name ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for layout file %s", name);
}

/* ---- the folder ---- */

static int is_layout(const struct dirent *d)
{
    const size_t n = strlen(d->d_name), suffix = strlen(SUFFIX);

    return d->d_name[0] != '.' && n > suffix && !strcmp(d->d_name + n - suffix, SUFFIX);
}

static bool is_for(const struct sw_rules *r, const char *architecture)
{
    const char *a;

    for (uint32_t i = 0; (a = sw_rules_architecture(r, i)); i++)
        if (!strcmp(a, architecture))
            return true;
    return false;
}

/* The last file must not claim an architecture that an earlier one has. */
static int check_claims(const struct sw_layouts *l, struct sw_error *e)
{
    const struct file *last = &l->files[l->n - 1];
    const char *a;

    for (uint32_t i = 0; (a = sw_rules_architecture(last->rules, i)); i++)
        for (uint32_t k = 0; k + 1 < l->n; k++)
            if (is_for(l->files[k].rules, a))
                return sw_fail(e, SW_ERR_INVALID,
                    "layout files %s" SUFFIX " and %s" SUFFIX
                    " are both for %s; one of them must go",
                    l->files[k].name, last->name, a);
    return 0;
}

static int read_all(
    struct folder *f, struct dirent **entries, int n, struct sw_layouts *l, struct sw_error *e)
{
    int err = 0;

    if (n > (int)SW_LAYOUT_FILES_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%s holds %d layout files; at most %u are read", f->path, n,
            SW_LAYOUT_FILES_MAX);
    for (int i = 0; !err && i < n; i++) {
        struct file *file = &l->files[l->n++];

        err = read_file(f, entries[i]->d_name, file, e);
        if (!err)
            err = check_claims(l, e);
    }
    return err;
}

int sw_layouts_read(const char *path, struct sw_layouts **layouts, struct sw_error *e)
{
    struct folder f = {.path = path};
    struct sw_layouts *l = calloc(1, sizeof(*l));
    struct dirent **entries = NULL;
    int n, err;

    if (!l)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for layout files");
    f.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    n = f.fd < 0 ? -1 : scandirat(f.fd, ".", &entries, is_layout, alphasort);
    if (n < 0)
        err = sw_fail_errno(e, SW_ERR_IO, errno, "folder of layout files %s", path);
    else
        err = read_all(&f, entries, n, l, e);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    if (f.fd >= 0)
        close(f.fd);
    if (err) {
        sw_layouts_free(l);
        return err;
    }
    *layouts = l;
    return 0;
}

void sw_layouts_free(struct sw_layouts *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->n; i++) {
        free(l->files[i].name);
        sw_rules_free(l->files[i].rules);
    }
    free(l);
}

uint32_t sw_layouts_count(const struct sw_layouts *l)
{
    return l->n;
}

const char *sw_layouts_name(const struct sw_layouts *l, uint32_t i)
{
    return i < l->n ? l->files[i].name : NULL;
}

/* ---- finding ---- */

static void list_names(const struct sw_layouts *l, char *out, size_t size)
{
    size_t used = 0;

    snprintf(out, size, "none");
    for (uint32_t i = 0; i < l->n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", l->files[i].name);
}

static const struct sw_rules *find_auto(const struct sw_layouts *l, const struct sw_config *config)
{
    const char *a;

    for (uint32_t i = 0; (a = sw_config_architecture(config, i)); i++)
        for (uint32_t k = 0; k < l->n; k++)
            if (is_for(l->files[k].rules, a))
                return l->files[k].rules;
    return NULL;
}

int sw_layouts_find(const struct sw_layouts *l, const char *name, const struct sw_config *config,
    const struct sw_rules **rules, struct sw_error *e)
{
    const bool by_architecture = !strcmp(name, "auto");
    const struct sw_rules *found = by_architecture ? find_auto(l, config) : NULL;
    const char *first;
    char names[LISTED], escaped[LISTED]; /* what config.json says may be anything */

    for (uint32_t i = 0; !by_architecture && !found && i < l->n; i++)
        if (!strcmp(l->files[i].name, name))
            found = l->files[i].rules;
    if (found) {
        *rules = found;
        return 0;
    }
    list_names(l, names, sizeof(names));
    if (!by_architecture)
        return sw_fail(e, SW_ERR_UNSUPPORTED, "there is no layout %s; there are: %s", name, names);
    first = sw_config_architecture(config, 0);
    sw_text_escape(escaped, sizeof(escaped), first ? first : "(its config.json names none)");
    return sw_fail(e, SW_ERR_UNSUPPORTED,
        "no layout file is for the model's architecture %s; there are: %s", escaped, names);
}
