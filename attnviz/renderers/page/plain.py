"""A page of words, tables and pictures in one HTML file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1a1c20; --faint: #646a73; --line: #dde1e6;
  --paper: #fff; --ground: #f6f7f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --faint: #98a1ad; --line: #313843;
  --paper: #15181d; --ground: #1c2027; } }
body { margin: 0 auto; padding: 24px clamp(12px, 3vw, 40px) 40px; max-width: 1180px;
  color: var(--ink); background: var(--paper);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { margin: 0 0 14px; font-size: 20px; font-weight: 650; overflow-wrap: anywhere; }
p { margin: 8px 0; max-width: 72ch; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; margin: 14px 0; padding: 8px; border-radius: 8px;
  background: #fff; box-sizing: border-box; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 14px 0; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; color: var(--faint); vertical-align: bottom; }
.word { text-align: left; }
.faint { color: var(--faint); font-size: 13px; }
code { padding: 2px 6px; border-radius: 4px; background: var(--ground); font-size: 13px; }
"""


def hashed(source: str) -> str:
    """What names a style or a script in the page's policy."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def plain_page(title: str, body: str, style: str = "", script: str = "") -> str:
    """The page; the body is markup in which every text has been escaped."""
    style = STYLE + style
    policy = f"default-src 'none'; style-src '{hashed(style)}'; img-src data:; base-uri 'none'"
    if script:
        policy += f"; script-src '{hashed(script)}'"
        body += f"\n<script>{script}</script>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="attnviz">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""
