"""A tour of `attnviz browse`, which `python -m tests.features.browse.tour` records in tmux.

Each moment is drawn as SVG as textual draws its screens; here they follow one another in one file.
"""

import io
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

PLACE = Path(__file__).parents[3] / "docs" / "browse.svg"
TEXT = "My sister bought a red car and sold her bike."
MOMENTS = ("", "n n Tab", "x", "w")
SIZE, SECONDS, QUIET = (104, 26), 3, 1.0


def tmux(*words: str) -> str:
    """What tmux answers, on a server of its own."""
    run = ("tmux", "-L", "tour", "-f", "/dev/null", *words)
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def still_screen() -> str:
    """The screen with its colours, once it no longer changes and nothing is waited for."""
    before = ""
    while True:
        screen = tmux("capture-pane", "-e", "-p", "-t", "tour")
        if screen == before and "quit" in screen and "esc ends it" not in screen:
            return screen
        before = screen
        time.sleep(QUIET)


def moments() -> list[str]:
    """The screen after the keys of each moment, as SVG."""
    variables = "COLORTERM=truecolor COLORFGBG='15;0' HF_HUB_OFFLINE=1"
    command = f"{variables} {sys.executable} -m attnviz browse {shlex.quote(TEXT)}"
    width, height = map(str, SIZE)
    tmux("new-session", "-d", "-s", "tour", "-x", width, "-y", height, command)
    drawn = []
    try:
        for number, keys in enumerate(MOMENTS):
            for key in keys.split():
                tmux("send-keys", "-t", "tour", key)
                time.sleep(QUIET)
            console = Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True)
            console.print(Text.from_ansi(still_screen().rstrip("\n")), no_wrap=True)
            title = f"attnviz browse · {keys}".rstrip(" ·")
            drawn.append(console.export_svg(title=title, unique_id=f"moment-{number}"))
    finally:
        tmux("kill-server")
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
    PLACE.write_text(joined(moments()), encoding="utf-8")
