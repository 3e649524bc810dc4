"""The rows, which attnviz reads at every start: what they name is imported when it is used."""

from attnviz.core.registry import CommandEntry, Entry, Format, Lens, Measure, Mechanism, Policy

COSINE = Mechanism(
    "Attention by the cosine of query and key, times a fixed scale (Swin v2).",
    "attnviz_example.code:cosine",
    ("self", "cross"),
    many_heads=True,
    scaled=None,
)
SHARPER = Lens(
    "The weights of each row squared and divided by their sum.", "attnviz_example.code:sharper"
)
FAR = Measure(
    "Share that goes to tokens at least five places away.",
    "attnviz_example.code:far",
    "far",
    role="acts",
    color=(120, 94, 240),
)
DOT = Format(
    "The strongest links as a graph for Graphviz.", "attnviz_example.code:DotRenderer", ".dot"
)
PEAK = Policy("The tokens that any query has attended to most.", "attnviz_example.code:peak")
RECEIVED = Entry("What each key receives from all queries.", "attnviz_example.code:received")
REACH = CommandEntry("Show how far heads look.", "attnviz_example.command:reach", "Measure")
