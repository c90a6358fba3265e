/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json: whatever it holds, a model that is consistent or an error. */
#include <stdint.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz_model.h"
#include "trainerd/plan/test_small_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct sw_rules *r;
    struct sw_config *c;
    struct sw_error e = {0};

    if (sw_config_parse((const char *)bytes, size, &c, &e)) {
        assert(e.code < 0 && e.text[0]);
        return 0;
    }
    if (sw_rules_parse("small", test_small_rules, strlen(test_small_rules), NULL, NULL, &r, &e))
        abort();
    (void)sw_config_dtype(c);
    (void)sw_config_unconverted(c, "lm_head");
    fuzz_model(r, c);
    sw_rules_free(r);
    sw_config_free(c);
    return 0;
}
