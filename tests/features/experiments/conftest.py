"""The tiny models of texts, made once a run."""

from tests.hugging_face.conftest import folder_of as folder_of
from tests.hugging_face.conftest import silence as silence
