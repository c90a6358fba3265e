# SPDX-License-Identifier: Apache-2.0
"""Import this first in a test that needs NumPy. It goes on in the Python of SHARDWIRE_ORACLE_PYTHON
(`scripts/deps --oracle`) if this one has no NumPy, and ends with 77, skipped, where there is none."""
import os
import sys

try:
    import numpy  # noqa: F401, only to know
except ImportError:
    other = os.environ.get("SHARDWIRE_ORACLE_PYTHON")
    if not other or os.path.abspath(other) == os.path.abspath(sys.executable):
        print("no NumPy here: scripts/deps --oracle installs it")
        sys.exit(77)
    os.execv(other, [other, *sys.argv])
