"""Late interaction as a picture: similarities, the largest of each row in a frame."""

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.features.match.report import MatchReport
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.figure import fit_width
from attnviz.renderers.figures.heatmap import heatmap as draw_map

FRAME, ROOMY = 1.6, 14  # the width of a frame in points, and the cells in pixels that take it


@sheet.own_settings()
def heatmap(report: MatchReport) -> Figure:
    """Rows are query tokens, columns document tokens; a frame marks the largest of each row."""
    attention = report.attention
    figure: Figure = fit_width(
        draw_map,
        attention.main,
        title=f"{attention.provenance.title} · late interaction",
        subtitle=f"score {report.score:.4f}: the sum of the framed similarities; not attention",
        texts=attention.texts_of(attention.main),
    )
    axes = figure.axes[0]
    box = axes.get_window_extent()
    cell = min(
        box.width / len(attention.main.key_tokens), box.height / len(attention.main.query_tokens)
    )
    for row, column in enumerate(report.best):
        axes.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                fill=False,
                edgecolor=sheet.ink((0, 0, 0)),
                linewidth=FRAME if cell >= ROOMY else FRAME / 2,
                gid="maximum",
                clip_on=False,
            )
        )
    return figure
