"""A tour of `attnviz browse` for readers: `python -m tests.features.browse.tour` draws it.

textual writes each moment as SVG; here they follow one another in one file.
"""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import attnviz
from attnviz.features.browse.app import Browser
from attnviz.features.browse.ask import Asker
from attnviz.features.browse.state import begin
from attnviz.storage.texts import Text

PLACE = Path(__file__).parents[3] / "docs" / "browse.svg"
TEXT = "My sister bought a red car and sold her bike."
MOMENTS = ("", "n n tab", "x", "w")
SIZE, SECONDS = (104, 26), 3


async def moments() -> list[str]:
    """The screen after the keys of each moment, as SVG."""
    asker = Asker(attnviz.attend("a").again.origin, "self", Text("0", TEXT))
    state = begin(asker.attend(), live=True)
    app, drawn = Browser(replace(state, size=SIZE), asker), []
    async with app.run_test(size=SIZE) as pilot:
        for keys in MOMENTS:
            await pilot.press(*keys.split())
            while app.waits:
                await asyncio.sleep(0.01)
            await pilot.pause()
            drawn.append(app.export_screenshot(title=f"attnviz browse · {keys}".rstrip(" ·")))
    return drawn


def joined(screens: list[str]) -> str:
    """One picture in which the screens follow one another; without animation it is the first."""
    box = re.search(r'viewBox="([^"]+)"', screens[0])[1]
    share = 100 / len(screens)
    rules = [f"@keyframes turn {{0% {{opacity: 1}} {share:.4g}% {{opacity: 0}}}}"]
    rules.append(f".moment {{animation: turn {SECONDS * len(screens)}s step-end infinite}}")
    parts = []
    for number, screen in enumerate(screens):
        # No font is fetched: the reader's own has every character.
        screen = re.sub(r"@font-face \{.*?\}\s*", "", screen, flags=re.DOTALL)
        screen = screen.replace("Fira Code, ", "").replace(
            '<svg class="rich-terminal"', f'<svg class="moment m{number}"'
        )
        parts.append(screen.strip())
        rules.append(f".m{number} {{opacity: {int(not number)}}}")
        rules.append(f".m{number} {{animation-delay: {SECONDS * number}s}}")
    style = f"<style>{' '.join(rules)}</style>"
    names = "A tour of attnviz browse: heads, the next one, one off, and why it looks there"
    return (
        f'<svg viewBox="{box}" xmlns="http://www.w3.org/2000/svg" role="img">'
        f"<title>{names}</title>{style}\n" + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PLACE.write_text(joined(asyncio.run(moments())), encoding="utf-8")
