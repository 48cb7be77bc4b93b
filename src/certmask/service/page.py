"""The OpenAPI schema as a plain page: no script, nothing from another address."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}code{background:#eee;padding:0 .2em}"
)


def schema_page(schema: dict[str, Any]) -> str:
    """What can be asked for, what comes back, and why not."""
    told = schema["info"]
    parts = [
        f"<h1>{escape(told['title'])} {escape(told['version'])}</h1>",
        f"<p>{escape(told['summary'])}</p><p>{escape(told['description'])}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>',
        *(_route(path, method, route) for path, own in schema["paths"].items() for method, route in own.items()),
        "<h2>What comes back</h2>",
        *(_object(name, one) for name, one in schema["components"]["schemas"].items()),
    ]
    head = f'<meta charset="utf-8"><title>{escape(told["title"])}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _route(path: str, method: str, route: dict[str, Any]) -> str:
    takes = ", ".join(f"<code>{escape(kind)}</code>" for kind in route.get("requestBody", {}).get("content", {}))
    asks = ", ".join(f"<code>{escape(one['name'])}</code>" for one in route.get("parameters", ()))
    lines = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(route.get('description', ''))}</p>",
        f"<p>Body: {takes}</p>" if takes else "",
        f"<p>Query: {asks}</p>" if asks else "",
        f"<p>Answers: {', '.join(_answers(route))}</p>",
    ]
    return "".join(lines)


def _answers(route: dict[str, Any]) -> Iterator[str]:
    for status, answer in route["responses"].items():
        kinds = [content.get("schema", {}).get("$ref", "") for content in answer.get("content", {}).values()]
        names = [f" <code>{escape(kind.rsplit('/', 1)[1])}</code>" for kind in kinds if kind]
        yield f"{escape(status)}{''.join(names)}"


def _object(name: str, schema: dict[str, Any]) -> str:
    fields = (
        f"<li><code>{escape(field)}</code> {escape(told.get('description', ''))}</li>"
        for field, told in schema.get("properties", {}).items()
    )
    return f"<h3>{escape(name)}</h3><p>{escape(schema.get('description', ''))}</p><ul>{''.join(fields)}</ul>"
