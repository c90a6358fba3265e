/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "tools/file.h"

static int make(const char *config, const char *layout, enum sw_engine_kind kind,
    struct sw_model_files *m, struct sw_error *e)
{
    const struct sw_rules *rules;
    int code = sw_config_parse(m->text, m->length, &m->config, e);

    if (!code)
        code = sw_layouts_find(m->layouts, layout, m->config, &rules, e);
    if (!code)
        code = sw_model_make(rules, m->config, kind, &m->model, e);
    return code ? sw_error_context(e, code, "%s", config) : 0;
}

/* From m->text on. */
static int finish(const char *name, const char *folder, const char *layout,
    enum sw_engine_kind kind, struct sw_model_files *m, struct sw_error *e)
{
    const int code = sw_layouts_read(folder, &m->layouts, e);

    return code ? code : make(name, layout, kind, m, e);
}

int sw_model_files_read(const char *config, const char *folder, const char *layout,
    enum sw_engine_kind kind, struct sw_model_files *out, struct sw_error *e)
{
    struct sw_model_files m = {0};
    int code = sw_file_read(AT_FDCWD, ".", config, SW_CONFIG_FILE_MAX, &m.text, &m.length, e);

    if (!code)
        code = finish(config, folder, layout, kind, &m, e);
    if (code) {
        sw_model_files_clear(&m);
        return code;
    }
    *out = m;
    return 0;
}

int sw_model_files_make(const char *name, const char *text, const char *folder, const char *layout,
    enum sw_engine_kind kind, struct sw_model_files *out, struct sw_error *e)
{
    struct sw_model_files m = {.text = strdup(text), .length = strlen(text)};
    int code = m.text ? finish(name, folder, layout, kind, &m, e)
                      : sw_fail(e, SW_ERR_NOMEM, "no memory for %s", name);

    if (code) {
        sw_model_files_clear(&m);
        return code;
    }
    *out = m;
    return 0;
}

void sw_model_files_clear(struct sw_model_files *m)
{
    sw_model_free(m->model);
    sw_layouts_free(m->layouts);
    sw_config_free(m->config);
    free(m->text);
    *m = (struct sw_model_files){0};
}
