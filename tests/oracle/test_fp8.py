# SPDX-License-Identifier: Apache-2.0
"""The kernels that put casts and quantises with, against NumPy and ml_dtypes: a second opinion on
every rounding case. usage: test_fp8.py TEST_FILTER"""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import with_numpy  # noqa: F401

import numpy as np

try:
    import ml_dtypes
except ImportError:
    print("no ml_dtypes here: scripts/deps --oracle installs it")
    sys.exit(77)

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
FLOORS = {"fp32": np.float32(1e-10), "ue8m0": np.float32(1e-4)}
FILTER = ""


def filtered(x, *arguments):
    return subprocess.run([FILTER, *map(str, arguments)], input=x.tobytes(), check=True,
                          stdout=subprocess.PIPE).stdout


def isas():
    return subprocess.run([FILTER, "isas"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.split()


def every(dtype):
    """Every number of a format of 16 bits."""
    return np.arange(65536, dtype=np.uint32).astype(np.uint16).view(TYPES[dtype])


def cases(rng):
    """Single precision: every number of both halves, what lies halfway and beside, random bits."""
    numbers = [rng.integers(0, 1 << 32, 1 << 20, np.uint64).astype(np.uint32).view(np.float32)]
    for dtype in ("F16", "BF16"):
        exact = every(dtype).astype(np.float32)
        exact = np.unique(exact[np.isfinite(exact)]).astype(np.float64)
        halfway = ((exact[1:] + exact[:-1]) / 2).astype(np.float32)
        for some in (exact.astype(np.float32), halfway):
            numbers += [some, np.nextafter(some, np.float32(np.inf)),
                        np.nextafter(some, np.float32(-np.inf))]
    return np.concatenate(numbers)


def quantised(x, height, width, form):
    """The formula, in single precision: values, and a scale for each block."""
    rows, columns = x.shape
    scales = np.zeros((-(-rows // height), -(-columns // width)), np.float32)
    values = np.zeros(x.shape, ml_dtypes.float8_e4m3fn)
    x = x.astype(np.float32)
    for i in range(scales.shape[0]):
        for k in range(scales.shape[1]):
            at = np.s_[i * height:(i + 1) * height, k * width:(k + 1) * width]
            scale = max(np.abs(x[at]).max(), FLOORS[form]) / np.float32(448)
            if form == "ue8m0":
                mantissa, exponent = np.frexp(scale)
                scale = np.ldexp(np.float32(1), exponent - (mantissa == 0.5))
            scales[i, k] = scale
            inverse = np.float32(1) / np.float32(scale)
            with np.errstate(under="ignore"):
                values[at] = np.clip(x[at] * inverse, np.float32(-448), np.float32(448)).astype(
                    ml_dtypes.float8_e4m3fn)
    return values, scales


class Kernels(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(1)

    def test_casts(self):
        sources = {"F32": cases(self.rng), "F16": every("F16"), "BF16": every("BF16")}
        for isa in isas():
            for source, x in sources.items():
                for target in set(TYPES) - {source}:
                    with self.subTest(isa=isa, source=source, target=target):
                        got = np.frombuffer(filtered(x, isa, "cast", source, target), TYPES[target])
                        with np.errstate(all="ignore"):
                            want = x.astype(np.float32).astype(TYPES[target])
                        bits = np.uint32 if target == "F32" else np.uint16
                        nan = np.isnan(want)
                        np.testing.assert_array_equal(np.isnan(got), nan)
                        np.testing.assert_array_equal(got.view(bits)[~nan], want.view(bits)[~nan])

    def check(self, x, dtype, height, width, form):
        values, scales = quantised(x, height, width, form)
        for isa in isas():
            with self.subTest(isa=isa, dtype=dtype, shape=x.shape, block=(height, width), form=form):
                out = filtered(x, isa, "quantise", dtype, x.shape[1], height, width, form)
                np.testing.assert_array_equal(
                    np.frombuffer(out[x.size:], np.float32).reshape(scales.shape), scales)
                np.testing.assert_array_equal(
                    np.frombuffer(out[:x.size], np.uint8).reshape(x.shape), values.view(np.uint8))

    def test_blocks(self):
        for dtype, kind in TYPES.items():
            for form in FLOORS:
                for shape, block in (((300, 500), (128, 128)), ((70, 900), (64, 64)),
                                     ((5, 1), (3, 7)), ((33, 257), (1, 16))):
                    x = self.rng.standard_normal(shape) * np.exp2(self.rng.uniform(-12, 4, shape))
                    self.check(x.astype(kind), dtype, *block, form)

    def test_every_half_by_many_maxima(self):
        """Rows of every finite number up to a maximum, which is in each block of them."""
        for dtype in ("BF16", "F16"):
            numbers = every(dtype)
            numbers = numbers[np.isfinite(numbers.astype(np.float32))]
            magnitude = np.abs(numbers.astype(np.float32))
            for top in np.unique(magnitude)[::1999]:
                row = numbers[magnitude <= top]
                for form in FLOORS:
                    self.check(row.reshape(1, -1), dtype, 1, row.size, form)

    def test_every_tie(self):
        """All numbers of E4M3, and points halfway between them, by scales that are powers of two."""
        exact = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        halfway = (exact[1:] + exact[:-1]) / 2
        inf = np.float32(np.inf)
        x = np.concatenate([exact, halfway, np.nextafter(halfway, inf), np.nextafter(halfway, -inf)])
        x = np.concatenate([x, -x]).astype(np.float32)
        for power in range(-14, 15):
            for form in FLOORS:
                self.check(np.ldexp(x, power).reshape(1, -1), "F32", 1, x.size, form)


if __name__ == "__main__":
    FILTER = sys.argv.pop(1)
    unittest.main()
