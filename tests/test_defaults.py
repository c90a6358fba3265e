#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's table "Defaults" and common/limits.h say the same."""

import ast
import operator
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Sections of limits.h that a user can see: each of their constants must be in the table.
VISIBLE = {"what one group may hold", "where", "data", "deadlines"}
# ... but for what no user sets or notices.
INTERNAL = {"SW_TOKEN_BYTES", "SW_NONCE_BYTES", "SW_REPLICA_ALIGN", "SW_PARAMETER_ALIGN"}

UNITS = {
    "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000,
    "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}
OPERATORS = {ast.LShift: operator.lshift, ast.Mult: operator.mul, ast.Add: operator.add}


def number(text):
    """The value of a constant integer expression of C."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"{text!r} is no integer expression")

    return value(ast.parse(re.sub(r"(?<=\d)[uUlL]+", "", text), mode="eval").body)


def limits(text):
    """{section: {constant: int or str}} of limits.h."""
    sections = {}
    section = None
    for line in text.splitlines():
        heading = re.match(r"/\* ---- ([^:\-]+?)(:.*)? ---- \*/", line)
        define = re.match(r"#define (SW_\w+) (.+?)\s*(/\*.*)?$", line)
        if heading:
            section = heading.group(1)
            sections[section] = {}
        elif define:
            text = define.group(2)
            sections[section][define.group(1)] = (
                text[1:-1] if text.startswith('"') else number(text))
    return sections


def shown(text):
    """The value of a table cell: "5 s", "1 MiB", "1,000,000", "`/run/x`"."""
    if text.startswith("`"):
        return text.strip("`")
    match = re.fullmatch(r"([\d,]+)(?: (\w+))?", text)
    if not match or (match.group(2) and match.group(2) not in UNITS):
        raise ValueError(f"{text!r} is no value")
    return int(match.group(1).replace(",", "")) * UNITS.get(match.group(2), 1)


def table(text):
    """{constant: value} of the section "Defaults"; the same constant twice is an error."""
    section = re.search(r"^## Defaults\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    rows = {}
    for line in section.group(1).splitlines() if section else []:
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        name = cells[-1].strip("`")
        if line.startswith("|") and name.startswith("SW_"):
            if name in rows:
                raise ValueError(f"{name} is in the table twice")
            rows[name] = shown(cells[1])
    return rows


class Defaults(unittest.TestCase):
    def setUp(self):
        self.limits = limits((ROOT / "common/limits.h").read_text())
        self.rows = table((ROOT / "README.md").read_text())

    def test_every_row_is_right(self):
        every = {k: v for section in self.limits.values() for k, v in section.items()}
        self.assertGreater(len(self.rows), 20)
        for name, value in self.rows.items():
            with self.subTest(name):
                self.assertIn(name, every, f"README.md has {name}, limits.h has not")
                self.assertEqual(value, every[name])

    def test_nothing_is_missing(self):
        self.assertLessEqual(VISIBLE, set(self.limits), "a section of limits.h was renamed")
        for section in VISIBLE:
            for name in self.limits[section]:
                if name not in INTERNAL:
                    with self.subTest(name):
                        self.assertIn(name, self.rows, f"limits.h has {name}, README.md has not")


class Reading(unittest.TestCase):
    """The comparison above is worth something only if differences are seen."""

    def test_numbers(self):
        self.assertEqual(number("(1u << 20)"), 1 << 20)
        self.assertEqual(number("1000000u"), 1_000_000)
        self.assertEqual(number("(1ull << 46)"), 1 << 46)
        with self.assertRaises(ValueError):
            number("sizeof(int)")

    def test_cells(self):
        self.assertEqual(shown("10 min"), 600_000)
        self.assertEqual(shown("64 TiB"), 1 << 46)
        self.assertEqual(shown("1,000,000"), 1_000_000)
        self.assertEqual(shown("`/run/x`"), "/run/x")
        for bad in ("about 5", "5 minutes", ""):
            with self.assertRaises(ValueError):
                shown(bad)

    def test_table(self):
        text = "## Defaults\n| a | 5 s | `SW_A` |\n## Other\n| a | 6 s | `SW_B` |\n"
        self.assertEqual(table(text), {"SW_A": 5000})
        with self.assertRaises(ValueError):
            table("## Defaults\n| a | 5 s | `SW_A` |\n| a | 5 s | `SW_A` |\n")


if __name__ == "__main__":
    unittest.main()
