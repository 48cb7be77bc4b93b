"""HTML in which everything that is not markup is escaped, and how it looks."""

from __future__ import annotations

import base64
from html import escape

_ALONE = frozenset({"img", "meta"})


class Markup(str):
    """Finished HTML; plain strings become text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """One element; a trailing underscore keeps attribute names off Python's keywords, an inner one is a hyphen."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in _ALONE:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Elements and texts one after another."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def data_uri(content: bytes, kind: str) -> str:
    """Bytes as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


CSS = """
:root { --ink: #1d2430; --soft: #5c6675; --line: #d9dee6; --tint: #f5f7fa; --blue: #0072b2; --orange: #b84a00;
  --red: #b00020; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "Noto Sans", "Liberation Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 3rem 0 .6rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
p, li { max-width: 78ch; margin: .4rem 0; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; margin: .4rem 0; }
.lede, .note, figcaption, small { color: var(--soft); }
.lede { font-size: 1.05rem; }
.note, figcaption { font-size: .85rem; max-width: 105ch; }
.caution { border-left: 3px solid #e0a100; padding-left: .8rem; }
.broken { border: 2px solid var(--red); color: var(--red); padding: .6rem 1rem; font-weight: 600; max-width: none; }
nav { margin: 1rem 0; font-size: .92rem; }
nav a { color: var(--blue); margin-right: 1.1rem; display: inline-block; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; line-height: 1.3; }
caption { text-align: left; font-weight: 600; font-size: .95rem; padding: 0 0 .5rem; }
th { font-weight: 600; vertical-align: bottom; color: var(--soft); }
th, td { padding: .38rem .35rem; }
th.group { text-align: center; border-bottom: 1px solid var(--line); font-weight: 400; }
thead tr:last-child th, th[rowspan] { border-bottom: 1.5px solid var(--ink); }
thead tr:first-child th { border-top: 1.5px solid var(--ink); }
tbody td { border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 1.5px solid var(--ink); }
.figure { text-align: right; font-variant-numeric: tabular-nums; }
td.figure { white-space: nowrap; }
.words { text-align: left; overflow-wrap: anywhere; min-width: 6.7rem; }
td.words:first-child { position: sticky; left: 0; background: #fff; }
td small { display: block; font-size: .72rem; }
figure { margin: 1.2rem 0; }
figure img { display: block; width: 100%; height: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(290px, 1fr)); gap: 1.1rem; margin: .8rem 0; }
.card { border: 1px solid var(--line); border-radius: 6px; overflow: hidden; font-size: .82rem; line-height: 1.35;
  break-inside: avoid; background: #fff; }
.pairs { grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); }
.pairs figure { max-width: 50%; }
.card .pictures { display: flex; gap: 2px; background: var(--tint); }
.card figure { margin: 0; flex: 1; min-width: 0; }
.card figcaption { padding: .15rem .5rem; }
.card .note { font-size: inherit; }
.card .text { padding: .5rem .7rem .7rem; }
.card b { display: block; margin: .15rem 0; overflow-wrap: anywhere; }
.card dl { margin: .4rem 0 0; }
.card dl div { display: flex; justify-content: space-between; gap: .6rem; padding: .16rem 0;
  border-top: 1px solid var(--line); }
.card dt { color: var(--soft); overflow-wrap: anywhere; }
.card dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
.proved { color: var(--blue); font-weight: 600; }
.alert { color: var(--orange); }
.wrong { color: var(--red); }
.unproved { color: var(--soft); }
details { margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; }
table.facts td { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  font-size: .78rem; overflow-wrap: anywhere; }
table.facts td:first-child { width: 32%; color: var(--soft); }
dl.terms dt { font-weight: 600; margin-top: .5rem; }
dl.terms dd { margin: 0; max-width: 78ch; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 1000px) { table { font-size: .68rem; } td small { font-size: .58rem; }
  th, td { padding: .3rem .16rem; } .words { min-width: 5.3rem; } }
@media print { main { max-width: none; padding: 0; } nav { display: none; } body { font-size: 10.5pt; }
  h2 { break-after: avoid; } figure, tr { break-inside: avoid; } .scroll { overflow: visible; } }
"""
"""System fonts, dark on white, figures that line up, fit for print."""
