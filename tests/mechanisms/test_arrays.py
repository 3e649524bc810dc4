import subprocess
import sys

import numpy as np
import torch

from attnviz.mechanisms.arrays import namespace, transpose

ATTEND = """
import sys
import numpy
from attnviz.mechanisms.dot_product import multi_head
inputs = numpy.ones((3, 4))
multi_head(inputs, inputs, inputs, heads=2)
print("numpy" in sys.modules, "torch" in sys.modules, "array_api_compat" in sys.modules)
"""


def test_attention_of_numpy_arrays_never_loads_torch():
    ran = subprocess.run([sys.executable, "-c", ATTEND], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False", "False"]


def test_kinds_have_functions_and_transpose():
    assert namespace(np.ones(2)) is np
    assert isinstance(namespace(torch.ones(2)).zeros_like(torch.ones(2)), torch.Tensor)
    assert transpose(np.ones((2, 3, 4))).shape == (2, 4, 3)
    assert transpose(torch.ones(2, 3, 4)).shape == (2, 4, 3)
