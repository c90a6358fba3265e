/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file from its first byte on: whatever it holds, a table that covers the data or an
 * error. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include "tools/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct sw_safetensors s;
    struct sw_error e = {0};
    uint64_t length = 0, data, covered = 0;

    if (size < 8 || sw_safetensors_length(bytes, size, &length, &e))
        return 0;
    data = size - 8 - length;
    if (sw_safetensors_parse((const char *)bytes + 8, length, data, &s, &e)) {
        assert(e.code < 0 && e.text[0]);
        return 0;
    }
    for (size_t i = 0; i < s.n; i++) {
        uint64_t n;
        assert(s.tensors[i].begin == covered);
        assert(!sw_tensor_bytes(s.tensors[i].dtype, s.tensors[i].ndim, s.tensors[i].shape, &n));
        covered += n;
    }
    assert(covered == data);
    sw_safetensors_clear(&s);
    return 0;
}
