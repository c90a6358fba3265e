# SPDX-License-Identifier: Apache-2.0
"""Casts and FP8 quantisation as engine_weights.py does them: against ml_dtypes, on every rounding
case, and against numbers worked out by hand."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import with_numpy  # noqa: F401

import numpy as np

from formats import Refused, block_scale, cast, dequantise, f32_to_e4m3, quantise, to_f32

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def neighbours(x):
    """Each float32, and the next ones on both sides."""
    x = np.asarray(x, np.float32)
    inf = np.float32(np.inf)
    return np.concatenate([x, np.nextafter(x, inf), np.nextafter(x, -inf)])


def every_case(values):
    """All numbers of a format, all points halfway between two, and their neighbours; both signs."""
    values = np.unique(np.abs(values[np.isfinite(values)])).astype(np.float64)
    halfway = (values[1:] + values[:-1]) / 2
    assert (halfway.astype(np.float32) == halfway).all()
    cases = neighbours(np.concatenate([values, halfway]))
    return np.concatenate([cases, -cases])


class Formats(unittest.TestCase):
    def same(self, ours, theirs):
        np.testing.assert_array_equal(ours, theirs.view(ours.dtype))

    def test_e4m3_values(self):
        values = to_f32(np.arange(256, dtype=np.uint8), "F8_E4M3")
        self.assertEqual([values[i] for i in (0, 1, 7, 8, 0x38, 0x7E, 0x81)],
                         [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -(2**-9)])
        self.assertTrue(np.isnan(values[0x7F]) and np.isnan(values[0xFF]))
        self.assertEqual(np.isnan(values).sum(), 2)

    def test_e4m3_by_hand(self):
        for x, bits in ((0.0, 0), (-0.0, 0x80), (2**-10, 0), (1.5 * 2**-9, 2), (2**-6 * 0.999, 8),
                        (17, 0x58), (19, 0x5A), (448, 0x7E), (464, 0x7E), (464.0001, 0x7F)):
            self.assertEqual(int(f32_to_e4m3(np.float32([x]))[0]), bits, x)

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes")
    def test_e4m3_every_rounding(self):
        numbers = to_f32(np.arange(256, dtype=np.uint8), "F8_E4M3")
        x = np.concatenate([every_case(numbers), np.float32([
            np.inf, -np.inf, 464, 465, 1e9, -1e9, 1e-30, 1e-45, -1e-45])])
        theirs = x.astype(ml_dtypes.float8_e4m3fn)
        self.same(f32_to_e4m3(x), theirs)
        self.assertEqual(len(x), (127 + 126) * 3 * 2 + 9)

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes")
    def test_e4m3_of_every_bf16(self):
        x = to_f32(np.arange(65536, dtype=np.uint16), "BF16")
        x = x[~np.isnan(x)]
        self.same(f32_to_e4m3(x), x.astype(ml_dtypes.float8_e4m3fn))

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes")
    def test_bf16_every_rounding(self):
        bits = np.arange(65536, dtype=np.uint16)
        with np.errstate(invalid="ignore"):
            self.same(to_f32(bits, "BF16"), bits.view(ml_dtypes.bfloat16).astype(np.float32))
        x = every_case(to_f32(bits, "BF16"))
        x = np.concatenate([x, np.float32([np.inf, -np.inf, 3.4e38, -3.4e38])])
        self.same(cast(x, "F32", "BF16"), x.astype(ml_dtypes.bfloat16))

    def test_f16_every_rounding(self):
        x = every_case(to_f32(np.arange(65536, dtype=np.uint16), "F16"))
        with np.errstate(over="ignore"):
            self.same(cast(x, "F32", "F16"), x.astype(np.float16))

    def test_nan_stays_nan(self):
        for dtype in ("BF16", "F16"):
            back = to_f32(cast(np.float32([np.nan, 1]), "F32", dtype), dtype)
            self.assertTrue(np.isnan(back[0]) and back[1] == 1, dtype)

    def test_scales(self):
        for amax, scale_format, scale in (
                (448, "fp32", 1), (0, "fp32", np.float32(1e-10) / np.float32(448)),
                (448, "ue8m0", 1), (np.nextafter(np.float32(448), np.float32(500)), "ue8m0", 2),
                (0, "ue8m0", 2.0**-22), (224, "ue8m0", 0.5), (1, "ue8m0", 2.0**-8)):
            self.assertEqual(block_scale(amax, scale_format), np.float32(scale), (amax, scale_format))
        self.assertRaises(Refused, block_scale, 1, "e8m0")

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes")
    def test_quantise_as_ml_dtypes(self):
        generator = np.random.default_rng(1)
        x = to_f32(cast(generator.standard_normal((70, 100), np.float32), "F32", "BF16"), "BF16")
        for scale_format in ("fp32", "ue8m0"):
            values, scales = quantise(x, (32, 64), scale_format, "x")
            self.assertEqual(scales.shape, (3, 2))
            for i in range(3):
                for j in range(2):
                    part = x[i * 32:(i + 1) * 32, j * 64:(j + 1) * 64]
                    q = np.clip(part * (np.float32(1) / scales[i, j]), -448, 448)
                    self.same(values[i * 32:(i + 1) * 32, j * 64:(j + 1) * 64],
                              q.astype(ml_dtypes.float8_e4m3fn))
            self.assertLess(np.abs(dequantise(values, scales, (32, 64)) - x).max(), 0.26)

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes")
    def test_quantise_multiplies(self):
        """By the reciprocal, as engines do: dividing by the scale rounds some values otherwise."""
        numbers = to_f32(np.arange(0x7F, dtype=np.uint8), "F8_E4M3")
        halfway = (numbers[1:] + numbers[:-1]) / 2
        other = 0
        for amax in np.random.default_rng(2).uniform(0.1, 9, 100).astype(np.float32):
            scale = amax / np.float32(448)
            x = np.append(neighbours(halfway * scale), amax)[np.newaxis]
            values, _ = quantise(x, (1, x.size), "fp32", "x")
            self.same(values, (x * (np.float32(1) / scale)).astype(ml_dtypes.float8_e4m3fn))
            other += ((x / scale).astype(ml_dtypes.float8_e4m3fn).view(np.uint8) != values).sum()
        self.assertGreater(other, 100)

    def test_quantise_refuses(self):
        for bad in (np.nan, np.inf, -np.inf):
            x = np.zeros((2, 2), np.float32)
            x[1, 1] = bad
            with self.assertRaisesRegex(Refused, "name.of.it"):
                quantise(x, (128, 128), "fp32", "name.of.it")

    def test_zeros(self):
        values, scales = quantise(np.zeros((3, 3), np.float32), (2, 2), "fp32", "x")
        self.assertFalse(values.any())
        self.assertTrue((scales > 0).all() and np.isfinite(1 / scales).all())


if __name__ == "__main__":
    unittest.main()
