/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "common/text.h"

#define KEY_PARTS_MAX 8
#define UNCONVERTED_MAX 1000000u
#define BLOCK_MAX 65536

struct sw_config {
    json_t *root;
    const json_t *architectures; /* list, or NULL */
    const json_t *unconverted;   /* list, or NULL */
    bool fp8;
    uint32_t block[2];
};

/* ---- values ---- */

static const json_t *find(const struct sw_config *c, const char *key)
{
    const json_t *at = c->root;

    for (unsigned i = 0; at && i < KEY_PARTS_MAX; i++) {
        const size_t n = strcspn(key, ".");
        char part[SW_LABEL_MAX + 1];

        if (n > SW_LABEL_MAX)
            return NULL;
        memcpy(part, key, n);
        part[n] = '\0';
        at = json_object_get(at, part);
        if (key[n] == '\0')
            return at;
        key += n + 1;
    }
    return NULL;
}

static bool whole(const json_t *v, int64_t *value)
{
    if (json_is_integer(v)) {
        *value = json_integer_value(v);
        return true;
    }
    if (json_is_boolean(v)) {
        *value = json_is_true(v);
        return true;
    }
    if (json_is_real(v)) {
        const double d = json_real_value(v);

        /* Up to 2^53 a whole number is held exactly. */
        if (d < -9007199254740992.0 || d > 9007199254740992.0 || d != (double)(int64_t)d)
            return false;
        *value = (int64_t)d;
        return true;
    }
    return false;
}

enum sw_config_found sw_config_get(const struct sw_config *c, const char *key, int64_t *value)
{
    const json_t *v = find(c, key);

    if (!v)
        return SW_CONFIG_MISSING;
    if (json_is_null(v)) {
        *value = 0;
        return SW_CONFIG_NULL;
    }
    return whole(v, value) ? SW_CONFIG_NUMBER : SW_CONFIG_OTHER;
}

bool sw_config_is(const struct sw_config *c, const char *key, const char *word)
{
    const char *text = json_string_value(find(c, key));

    return text && strcmp(text, word) == 0;
}

size_t sw_config_list(const struct sw_config *c, const char *key, int64_t *out, size_t n)
{
    const json_t *list = find(c, key);
    const size_t size = json_array_size(list);
    size_t found = 0;
    int64_t value;

    for (size_t i = 0; i < size; i++) {
        if (!whole(json_array_get(list, i), &value))
            continue;
        if (found < n)
            out[found] = value;
        found++;
    }
    return found;
}

/* ---- quantisation ---- */

static int refuse(struct sw_error *e, const char *what, const char *found)
{
    char shown[64];

    return sw_fail(e, SW_ERR_UNSUPPORTED,
        "config.json: %s is '%s': expected fp8 with a weight_block_size, or no quantisation", what,
        sw_text_escape(shown, sizeof(shown), found));
}

static int read_block(struct sw_config *c, const json_t *q, struct sw_error *e)
{
    const json_t *size = json_object_get(q, "weight_block_size");

    if (!size || json_is_null(size))
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "config.json: quantization_config is fp8 without weight_block_size: expected one, as "
            "[128, 128]; scales of whole tensors or channels are not done");
    if (json_array_size(size) != 2)
        return sw_fail(e, SW_ERR_INVALID,
            "config.json: quantization_config.weight_block_size: expected a list of 2 numbers");
    for (size_t i = 0; i < 2; i++) {
        int64_t n;

        if (!whole(json_array_get(size, i), &n) || n < 1 || n > BLOCK_MAX)
            return sw_fail(e, SW_ERR_INVALID,
                "config.json: quantization_config.weight_block_size: expected numbers from 1 to %d",
                BLOCK_MAX);
        c->block[i] = (uint32_t)n;
    }
    c->fp8 = true;
    return 0;
}

static int read_quantisation(struct sw_config *c, const json_t *q, struct sw_error *e)
{
    static const char *const lists[] = {"modules_to_not_convert", "ignored_layers"};
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const char *format = json_string_value(json_object_get(q, "fmt"));
    const char *activations = json_string_value(json_object_get(q, "activation_scheme"));

    if (!json_is_object(q))
        return sw_fail(
            e, SW_ERR_INVALID, "config.json: quantization_config: expected an object or null");
    if (!method) {
        method = json_string_value(json_object_get(q, "quant_algo")); /* modelopt's */
        return refuse(e, "quantization_config.quant_method", method ? method : "(none)");
    }
    if (strcmp(method, "fp8") != 0)
        return refuse(e, "quantization_config.quant_method", method);
    if (format && strcmp(format, "e4m3") != 0 && strcmp(format, "float8_e4m3fn") != 0)
        return refuse(e, "quantization_config.fmt", format);
    if (activations && strcmp(activations, "dynamic") != 0)
        return refuse(e, "quantization_config.activation_scheme", activations);
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists) && !c->unconverted; i++) {
        const json_t *list = json_object_get(q, lists[i]);

        if (json_is_array(list))
            c->unconverted = list;
    }
    if (json_array_size(c->unconverted) > UNCONVERTED_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "config.json: modules_to_not_convert has over %u entries",
            UNCONVERTED_MAX);
    return read_block(c, q, e);
}

static int check_quantisation(struct sw_config *c, struct sw_error *e)
{
    /* "quantization" is MLX's, "compression_config" an old name of compressed-tensors'. */
    static const char *const others[] = {"quantization", "compression_config"};
    const json_t *q = find(c, "quantization_config");

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        const json_t *o = json_object_get(c->root, others[i]);

        if (o && !json_is_null(o))
            return refuse(e, others[i], "there");
    }
    if (!q)
        q = find(c, "text_config.quantization_config");
    return !q || json_is_null(q) ? 0 : read_quantisation(c, q, e);
}

/* ---- the whole ---- */

static int parse(struct sw_config *c, const char *text, size_t length, struct sw_error *e)
{
    json_error_t error;
    char shown[160];

    c->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!c->root)
        return sw_fail(e, SW_ERR_INVALID, "config.json:%d:%d: expected JSON: %s", error.line,
            error.column, sw_text_escape(shown, sizeof(shown), error.text));
    if (!json_is_object(c->root))
        return sw_fail(e, SW_ERR_INVALID, "config.json:1:1: expected an object");
    c->architectures = json_object_get(c->root, "architectures");
    return check_quantisation(c, e);
}

int sw_config_parse(const char *text, size_t length, struct sw_config **config, struct sw_error *e)
{
    struct sw_config *c;
    int err;

    if (length > SW_CONFIG_FILE_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "config.json has %zu bytes: expected at most %u", length,
            SW_CONFIG_FILE_MAX);
    c = calloc(1, sizeof(*c));
    if (!c)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for config.json");
    err = parse(c, text, length, e);
    if (err) {
        sw_config_free(c);
        return err;
    }
    *config = c;
    return 0;
}

void sw_config_free(struct sw_config *c)
{
    if (!c)
        return;
    json_decref(c->root);
    free(c);
}

const char *sw_config_architecture(const struct sw_config *c, uint32_t i)
{
    return json_string_value(json_array_get(c->architectures, i));
}

enum sw_dtype sw_config_dtype(const struct sw_config *c)
{
    static const struct {
        const char *name;
        enum sw_dtype dtype;
    } names[] = {{"bfloat16", SW_BF16}, {"float16", SW_F16}, {"half", SW_F16}, {"float32", SW_F32},
        {"float", SW_F32}};
    static const char *const keys[] = {
        "torch_dtype", "dtype", "text_config.torch_dtype", "text_config.dtype"};

    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        const json_t *v = find(c, keys[k]);
        const char *text = json_string_value(v);

        if (!v || json_is_null(v))
            continue;
        if (text && strncmp(text, "torch.", 6) == 0)
            text += 6;
        for (size_t i = 0; text && i < sizeof(names) / sizeof(*names); i++)
            if (strcmp(names[i].name, text) == 0)
                return names[i].dtype;
        return SW_DTYPE_INVALID;
    }
    return SW_BF16;
}

bool sw_config_fp8(const struct sw_config *c, uint32_t block[2])
{
    if (c->fp8) {
        block[0] = c->block[0];
        block[1] = c->block[1];
    }
    return c->fp8;
}

const char *sw_config_unconverted_module(const struct sw_config *c, uint32_t i)
{
    const size_t n = json_array_size(c->unconverted);

    if (i >= n)
        return NULL;
    /* What is no string names nothing. */
    return json_is_string(json_array_get(c->unconverted, i))
               ? json_string_value(json_array_get(c->unconverted, i))
               : "";
}

bool sw_config_unconverted(const struct sw_config *c, const char *parameter)
{
    const char *module;

    for (uint32_t i = 0; (module = sw_config_unconverted_module(c, i)); i++) {
        const size_t n = strlen(module);

        /* The module, or one that it is in; or the parameter itself. */
        if (n && strncmp(parameter, module, n) == 0 && (parameter[n] == '.' || !parameter[n]))
            return true;
    }
    return false;
}
