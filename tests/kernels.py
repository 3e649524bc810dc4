"""Whether the kernels of another processor (OPENBLAS_CORETYPE) run: this ends with 0 if they do.

numpy 2.5.4 and 2.5.5 (OpenBLAS 0.3.34) die by a signal in large products with the kernels of a
processor without AVX-512 on one that has it.
"""

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest


def skip_where_numpy_dies(variables: dict[str, str]) -> None:
    """Skip a test where numpy alone dies with these variables."""
    environment = os.environ | variables | {"OMP_NUM_THREADS": "1"}
    if subprocess.run([sys.executable, __file__], env=environment, check=False).returncode:
        pytest.skip(f"numpy {np.__version__} itself dies with {variables}")


if __name__ == "__main__":
    for rows, kind in product((64, 700) * 4, (np.float32, np.float64)):
        one, other = np.ones((rows, 768), kind), np.ones((768, rows), kind)
        assert (one @ other == 768).all()
