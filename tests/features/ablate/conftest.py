"""The quiet of tiny models."""

from tests.hugging_face.conftest import silence as silence
