"""One command a file, and the table of them all; the function of Python stands beside."""

from attnviz.core.registry import CommandEntry, FeatureEntry

COMMANDS = {
    "self": CommandEntry("Show how a text attends to itself.", "self:self_command", "Look"),
    "cross": CommandEntry("Show how a target attends to a source.", "cross:cross", "Look"),
    "image": FeatureEntry(
        "Show where in a picture a vision model looks.", "image.command:image", "Look"
    ),
    "audio": FeatureEntry(
        "Show when a speech model listens, and when each word is spoken.",
        "audio.command:audio",
        "Look",
    ),
    "match": FeatureEntry(
        "Show how a query matches a document, token by token (ColBERT).",
        "match.command:match",
        "Look",
    ),
    "browse": FeatureEntry(
        "Browse attention by keys, in this terminal.", "browse.command:browse", "Look"
    ),
    "watch": FeatureEntry(
        "Run a program and show the attention in it.", "watch.command:watch", "Look"
    ),
    "ablate": FeatureEntry(
        "Show what changes when heads, links or tokens are switched off.",
        "ablate.command:ablate",
        "Ask",
    ),
    "why": FeatureEntry(
        "Show why a head looks at a token, and what it argues for.", "why.command:why", "Ask"
    ),
    "explain": FeatureEntry(
        "Show what decided an answer: the fewest tokens and heads that give it.",
        "explain.command:explain",
        "Ask",
    ),
    "sources": FeatureEntry(
        "Show which parts of a context an answer was made from.", "sources.command:sources", "Ask"
    ),
    "cache": FeatureEntry(
        "Show what it costs if a cache holds fewer keys.", "cache.command:cache", "Ask"
    ),
    "compare": FeatureEntry(
        "Show what changed between two attentions, or over a training run.",
        "compare.command:compare",
        "Ask",
    ),
    "heads": FeatureEntry(
        "Show what each head does in a text or a corpus.", "heads.command:heads", "Measure"
    ),
    "align": FeatureEntry("Align the words of sentence pairs.", "align.command:align", "Measure"),
    "steps": FeatureEntry(
        "Show the arithmetic of attention, matrix by matrix.", "steps.command:steps", "Learn"
    ),
    "lesson": FeatureEntry(
        "Teach one thing about attention in numbers.", "lessons.command:lesson", "Learn"
    ),
    "examples": FeatureEntry(
        "Write small files to try commands with.", "examples.command:examples", "Learn"
    ),
    "live": FeatureEntry(
        "Serve a page that answers as you type, with any model.", "live.command:live", "Learn"
    ),
    "render": CommandEntry(
        "Turn saved attention into any other output.", "render:render", "Manage"
    ),
    "models": FeatureEntry(
        "List the models found on this machine.", "models.command:models", "Manage"
    ),
}
