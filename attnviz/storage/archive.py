"""Several texts' attention in one .npz archive that loads without pickle.

Member "attnviz" is a JSON text: a list of documents without their weights. The weights of map m of
text t are the float32 member "t/m/stream", so that `numpy.load(file)["0/0/self"]` needs nothing
of this package.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnviz.attention_map import Attention
from attnviz.errors import InputError
from attnviz.storage.document import from_document, to_document
from attnviz.storage.json import dump_json, parse_json

INDEX = "attnviz"
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, LookupError, TypeError),
    RuntimeError,  # encrypted, or of a version that zipfile does not know
)
"""What reading a damaged archive may raise; no single error of zipfile and numpy covers it."""


def dump_archive(attentions: Sequence[Attention]) -> bytes:
    """The archive's bytes, the same for the same maps."""
    documents: list[dict[str, Any]] = []
    members: dict[str, Any] = {}
    for number, attention in enumerate(attentions):
        document = to_document(attention)
        for position, item in enumerate(document["maps"]):
            members[_member(number, position, item["stream"])] = item.pop("weights")
        documents.append(document)
    file = io.BytesIO()
    members[INDEX] = np.array(dump_json(documents))
    np.savez_compressed(file, **members)
    return file.getvalue()


def load_archive(data: bytes) -> Iterator[Attention]:
    """The attention of each text in an archive.

    Raises:
        InputError: the bytes are not such an archive.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            if INDEX not in archive.files:
                raise InputError(
                    f"the .npz archive has no member '{INDEX}': attnviz did not write it; "
                    "for matrices of your own use 'attnviz self --weights FILE'"
                )
            documents = parse_json(str(archive[INDEX]), f"member '{INDEX}'")
            for number, document in enumerate(documents):
                yield from_document(_with_weights(document, number, archive))
    except DAMAGE as error:
        raise InputError(f"the .npz archive is damaged: {error}") from error


def _with_weights(document: dict[str, Any], number: int, archive: Any) -> dict[str, Any]:
    for position, item in enumerate(document["maps"]):
        item["weights"] = archive[_member(number, position, item["stream"])]
    return document


def _member(number: int, position: int, stream: str) -> str:
    return f"{number}/{position}/{stream.replace('/', '_')}"
