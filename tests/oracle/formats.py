# SPDX-License-Identifier: Apache-2.0
"""Number formats of weights, from their definitions: casts, e4m3 rounding, FP8 block quantisation.

Values of a format are kept as NumPy arrays of its bits: BF16 and F16 as uint16, F8_E4M3 as uint8;
F32 as float32. Written to be read, and slow.
"""
import numpy as np

KEPT_AS = {"F32": np.float32, "BF16": np.uint16, "F16": np.uint16, "F8_E4M3": np.uint8}
E4M3_MAX = np.float32(448)


class Refused(Exception):
    """What an engine (or Shardwire) must refuse, with the name of the tensor."""


def round_to(x, mantissa_bits, lowest_exponent):
    """The nearest numbers that have so many bits after the point; ties to even. Between 2^e and
    2^(e+1) these lie 2^(e - mantissa_bits) apart, below 2^lowest_exponent as far apart as there."""
    x = np.asarray(x, np.float64)  # holds every fp32 exactly, and whatever is computed below
    _, exponent = np.frexp(x)  # |x| is in [2^(exponent - 1), 2^exponent)
    step = np.ldexp(1.0, np.maximum(exponent - 1, lowest_exponent) - mantissa_bits)
    return np.rint(x / step) * step


def to_f32(bits, dtype):
    """The values of a format, as float32: always exact."""
    if dtype == "F32":
        return bits
    if dtype == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        return bits.view(np.float16).astype(np.float32)
    if dtype == "F8_E4M3":
        sign = np.where(bits & 0x80, -1.0, 1.0)
        exponent, mantissa = (bits >> 3 & 15).astype(np.int32), (bits & 7).astype(np.float64)
        value = np.where(exponent == 0, np.ldexp(mantissa / 8, -6),
                         np.ldexp(1 + mantissa / 8, exponent - 7))
        return np.where((bits & 0x7F) == 0x7F, np.nan, sign * value).astype(np.float32)
    raise Refused(f"no numbers of {dtype} here")


def f32_to_bf16(x):
    with np.errstate(over="ignore"):  # to infinity, as it must
        rounded = round_to(x, 7, -126).astype(np.float32)
    upper = (rounded.view(np.uint32) >> 16).astype(np.uint16)
    nan = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16 | 0x7FC0).astype(np.uint16)
    return np.where(np.isnan(x), nan & 0xFFC0, upper)


def f32_to_f16(x):
    with np.errstate(over="ignore"):
        return round_to(x, 10, -14).astype(np.float16).view(np.uint16)


def f32_to_e4m3(x):
    """Without infinities: what rounds to more than 448, and NaN, is NaN (0x7f)."""
    value = np.abs(round_to(x, 3, -6))
    _, exponent = np.frexp(value)
    normal = value >= 2.0 ** -6
    bits = np.where(normal,
                    (exponent - 1 + 7) * 8 + np.rint(np.ldexp(value, 4 - exponent)) - 8,
                    np.rint(value * 512))  # 2^-9 is the smallest step
    bits = np.where(np.isnan(value) | (value > E4M3_MAX), 0x7F, bits).astype(np.uint8)
    return np.where(np.signbit(x), bits | 0x80, bits).astype(np.uint8)


def cast(bits, source, target):
    """Bits of one format to those of another, to nearest, ties to even."""
    if source == target:
        return bits
    x = to_f32(bits, source)
    if target == "F32":
        return x
    if target == "BF16":
        return f32_to_bf16(x)
    if target == "F16":
        return f32_to_f16(x)
    raise Refused(f"no cast from {source} to {target}")


def block_scale(amax, scale_format):
    """The factor by which a block's e4m3 numbers are to be multiplied. All in fp32."""
    if scale_format == "fp32":
        return np.float32(max(np.float32(amax), np.float32(1e-10)) / E4M3_MAX)
    if scale_format == "ue8m0":
        wanted = np.float32(max(np.float32(amax), np.float32(1e-4)) / E4M3_MAX)
        mantissa, exponent = np.frexp(wanted)  # wanted = mantissa * 2^exponent, mantissa in [0.5, 1)
        return np.float32(np.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent))
    raise Refused(f"scale format {scale_format}?")


def quantise(x, block, scale_format, name):
    """(e4m3 bits, one fp32 scale a block) of a float32 matrix; blocks begin at its first element."""
    if not np.isfinite(x).all():
        raise Refused(f"{name}: a value is not finite")
    (rows, columns), (bn, bk) = x.shape, block
    values = np.empty((rows, columns), np.uint8)
    scales = np.empty((-(-rows // bn), -(-columns // bk)), np.float32)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            where = np.s_[i * bn:(i + 1) * bn, j * bk:(j + 1) * bk]
            scale = block_scale(np.abs(x[where]).max(), scale_format)
            inverse = np.float32(1) / scale
            values[where] = f32_to_e4m3(np.clip(x[where] * inverse, -E4M3_MAX, E4M3_MAX))
            scales[i, j] = scale
    return values, scales


def dequantise(values, scales, block):
    """float32 of e4m3 bits with a scale for each block."""
    x = to_f32(values, "F8_E4M3")
    (rows, columns), (bn, bk) = x.shape, block
    return x * np.repeat(np.repeat(scales, bn, 0), bk, 1)[:rows, :columns]
