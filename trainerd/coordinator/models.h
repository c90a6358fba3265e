/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of engines, made once for equal layout, kind and config.json, and kept while somebody
 * needs them: ranks of an engine, engines of one model, and plans share one. Pure.
 */
#ifndef SW_TRAINERD_COORDINATOR_MODELS_H
#define SW_TRAINERD_COORDINATOR_MODELS_H

#include "common/message.h"
#include "trainerd/layouts.h"
#include "trainerd/plan/model.h"

struct sw_models;
struct sw_model_entry;

/* `layouts` is borrowed; NULL = only the identity layout is known. NULL = no memory. */
struct sw_models *sw_models_new(const struct sw_layouts *layouts);
void sw_models_free(struct sw_models *m); /* all entries were released */

/*
 * The model for what an engine rank says, whose layout is not the identity; the caller holds a
 * reference. SW_ERR_UNSUPPORTED: no such layout, no layout for its architecture, a format that we
 * don't do; SW_ERR_INVALID: a config.json that is broken, or that the rules can't be applied to.
 */
int sw_models_get(struct sw_models *m, const struct sw_engine_rank *rank,
    struct sw_model_entry **entry, struct sw_error *e);
struct sw_model_entry *sw_model_entry_hold(struct sw_model_entry *entry);
void sw_model_entry_release(struct sw_model_entry *entry); /* accepts NULL */

const struct sw_model *sw_model_entry_model(const struct sw_model_entry *entry);
/* Rows and columns of an FP8 block by config.json, or 0, 0. */
const uint32_t *sw_model_entry_block(const struct sw_model_entry *entry);

#endif
