"""Which parts of a chat a model looks at: types of the report."""

from __future__ import annotations

from attnviz.core.attention_map import Provenance
from attnviz.core.records import dataclass

TEMPLATE = "template"  # what stands in the prompt and in no message
BEGINNING = 200  # characters of a part that a report keeps


@dataclass(frozen=True, slots=True)
class ChatPart:
    """One part of the prompt, and the attention that goes to it."""

    name: str  # "system", "user 1", "template", or a group of a file
    tokens: int
    text: str  # how it begins
    share: float  # of the attention of all rows together
    even: float  # the share that an even look at all visible tokens would give it
    over: float  # share / even; NaN where no row sees it


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A sentence, word or token that looks at the parts."""

    text: str
    first: int  # the number of its first token in the prompt
    tokens: int
    shares: tuple[float, ...]  # for each part


@dataclass(frozen=True, slots=True)
class ChatHead:
    """One head: what its rows together give each part, and how far that is from the mean."""

    layer: str
    head: str
    shares: tuple[float, ...]
    difference: float  # half the sum of absolute differences from the mean of heads, 0 to 1


@dataclass(frozen=True, slots=True)
class ChatReport:
    """Which parts of a chat its answer, or its last turn, looks at."""

    caption: str
    id: str
    tokens: int  # of the whole prompt, the answer with it
    heads_shown: str  # the heads that shares are of: "mean of 32 heads", "layer 3 head 2"
    looks: str  # the message whose rows these are
    unit: str  # what a row is: "sentences", "words", "tokens"
    has_answer: bool  # False: rows are of the last turn, and the last row is the next token's
    written: bool  # whether the model wrote the answer
    first_token: float  # the share of the prompt's first token, which belongs to one of the parts
    parts: tuple[ChatPart, ...]
    rows: tuple[ChatRow, ...]
    heads: tuple[ChatHead, ...]  # the one that differs most from the mean first
    notes: tuple[str, ...]
    provenance: Provenance
