/* SPDX-License-Identifier: Apache-2.0 */
/* A layout file: whatever it holds, a model that is consistent or an error that says where. */
#include <stdlib.h>
#include <stdint.h>

#include "common/error.h"
#include "tests/fuzz/fuzz_model.h"
#include "trainerd/plan/test_small_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* "self" is the file again, "small" one that is right. */
struct file {
    const char *text;
    size_t length;
};

static int read_file(void *arg, const char *name, char **text, struct sw_error *e)
{
    const struct file *f = arg;

    if (strcmp(name, "small") == 0)
        *text = strdup(test_small_rules);
    else if (strncmp(name, "self", 4) == 0)
        *text = strndup(f->text, f->length);
    else
        return sw_fail(e, SW_ERR_NOT_FOUND, "no such file");
    return *text ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct file f = {(const char *)bytes, size};
    struct sw_rules *r;
    struct sw_config *c;
    struct sw_error e = {0};

    if (sw_rules_parse("file", f.text, size, read_file, &f, &r, &e)) {
        assert(e.code < 0 && e.text[0]);
        return 0;
    }
    if (sw_config_parse(test_small_fp8_config, strlen(test_small_fp8_config), &c, &e))
        abort();
    fuzz_model(r, c);
    sw_config_free(c);
    sw_rules_free(r);
    return 0;
}
