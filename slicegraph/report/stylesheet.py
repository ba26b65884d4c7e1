"""The look of the page: one column, system font, light and dark, and on paper."""

from slicegraph.report.theme import DARK, LIGHT, Theme


def stylesheet() -> str:
    """The style sheet of the page."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_colours(DARK)} }} }}"
    return f":root {{ color-scheme: light dark; {_colours(LIGHT)} }}\n{dark}\n{_RULES}"


def _colours(theme: Theme) -> str:
    names = ("background", "page", "text", "muted", "line", "first", "second")
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in names)


_RULES = """
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 40px 20px 64px; max-width: 960px;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  color: var(--text); background: var(--page); overflow-wrap: break-word;
}
h1 { margin: 0; font-size: 15px; font-weight: 600; }
h2 { margin: 44px 0 12px; font-size: 20px; font-weight: 600; letter-spacing: -0.01em; }
h3 { margin: 0 0 8px; font-size: 14px; font-weight: 600; }
h4 { margin: 20px 0 6px; font-size: 14px; font-weight: 600; }
p { margin: 0 0 10px; }
code, pre { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre {
  margin: 0 0 12px; padding: 12px 14px; white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--background); border: 1px solid var(--line); border-radius: 8px;
}
.muted, figcaption { color: var(--muted); }
.headline { margin: 14px 0 4px; line-height: 1.1; }
.headline .what { display: block; margin-bottom: 4px; font-size: 17px; color: var(--muted); }
.headline .value { font-size: 60px; font-weight: 650; letter-spacing: -0.035em; }
.headline .unit { font-size: 28px; font-weight: 400; color: var(--muted); }
.banner {
  margin: 16px 0 0; padding: 10px 14px; border-radius: 8px; background: var(--background);
  border: 1px solid var(--line); border-left: 4px solid var(--second);
}
.facts { display: grid; grid-template-columns: repeat(4, 1fr); margin: 24px 0 0;
  overflow: hidden; background: var(--background); border: 1px solid var(--line);
  border-radius: 10px; }
.facts div { margin: 0 -1px -1px 0; padding: 11px 14px; border: solid var(--line);
  border-width: 0 1px 1px 0; }
.facts dt { font-size: 12.5px; color: var(--muted); }
.facts dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; }
.gallery { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; margin: 16px 0; }
figure {
  margin: 0; padding: 14px 16px; min-width: 0; break-inside: avoid;
  background: var(--background); border: 1px solid var(--line); border-radius: 10px;
}
figure.wide { grid-column: 1 / -1; }
figure img { display: block; width: 100%; height: auto; }
figcaption { margin-top: 8px; font-size: 13px; line-height: 1.45; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 50%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 6px 18px 6px 0; text-align: left; border-bottom: 1px solid var(--line); }
th { font-weight: 400; }
thead th { font-size: 12.5px; color: var(--muted); }
.numbers td, .numbers thead td { text-align: right; }
thead td { font-size: 12.5px; color: var(--muted); }
.after { margin-top: 10px; color: var(--muted); }
section > h3 { margin-top: 24px; }
.molecules { display: grid; grid-template-columns: repeat(5, 1fr); gap: 12px; margin: 0; padding: 0;
  list-style: none; }
.molecules li { display: flex; flex-direction: column; padding: 8px 10px 10px; min-width: 0;
  break-inside: avoid; background: var(--background); border: 1px solid var(--line);
  border-radius: 10px; }
.drawing svg { display: block; width: 100%; height: auto; }
.undrawn { display: grid; place-items: center; aspect-ratio: 160 / 110; margin: 0;
  color: var(--muted); font-size: 13px; }
.molecules code { flex: 1; margin: 4px 0 8px; font-size: 11px; line-height: 1.35;
  color: var(--muted); overflow-wrap: anywhere; display: -webkit-box; overflow: hidden;
  -webkit-line-clamp: 3; -webkit-box-orient: vertical; }
.molecules dl { margin: 0; font-size: 13px; font-variant-numeric: tabular-nums; }
.molecules dl div { display: flex; justify-content: space-between; }
.molecules dt { color: var(--muted); }
.molecules dd { margin: 0; }
.molecules dl div:last-child dd { font-weight: 600; }
.settings { columns: 3; column-gap: 32px; margin: 0; font-size: 13px; }
.settings div { display: flex; justify-content: space-between; gap: 12px; padding: 3px 0;
  break-inside: avoid; border-bottom: 1px solid var(--line); }
.settings dt { color: var(--muted); }
.settings dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
details { margin: 12px 0 0; padding: 10px 16px; background: var(--background);
  border: 1px solid var(--line); border-radius: 10px; }
details .scroll { margin-bottom: 14px; }
summary { cursor: pointer; font-weight: 600; font-size: 14px; }
@media (max-width: 720px) {
  body { padding: 24px 16px 48px; }
  .headline .value { font-size: 48px; }
  .gallery { grid-template-columns: 1fr; }
  .facts, .molecules { grid-template-columns: repeat(2, 1fr); }
  .settings { columns: 1; }
  figure.wide img { width: 680px; }
}
@media print {
  body { padding: 0; max-width: none; font-size: 10pt; background: none; }
  h2, h3 { break-after: avoid; }
  .gallery { gap: 10px; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
