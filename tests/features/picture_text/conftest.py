"""The tiny models of texts, which these tests show to what reads none."""

from tests.hugging_face.conftest import copy_of as copy_of
from tests.hugging_face.conftest import folder_of as folder_of
from tests.hugging_face.conftest import loaded as loaded
