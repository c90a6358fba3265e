/* SPDX-License-Identifier: Apache-2.0 */
/* A model, read from its config.json and a folder of layout files. */
#ifndef SW_TOOLS_MODEL_FILES_H
#define SW_TOOLS_MODEL_FILES_H

#include "trainerd/layouts.h"

struct sw_model_files {
    char *text; /* of config.json */
    size_t length;
    struct sw_config *config;
    struct sw_layouts *layouts;
    struct sw_model *model;
};

/* `layout`: a file's name without ".layout", or "auto". Messages name the file. Free with
 * sw_model_files_clear. */
int sw_model_files_read(const char *config, const char *folder, const char *layout,
    enum sw_engine_kind kind, struct sw_model_files *out, struct sw_error *e);

/* The same for the text of a config.json; `name` is for messages. The text is copied. */
int sw_model_files_make(const char *name, const char *text, const char *folder, const char *layout,
    enum sw_engine_kind kind, struct sw_model_files *out, struct sw_error *e);

void sw_model_files_clear(struct sw_model_files *m);

#endif
