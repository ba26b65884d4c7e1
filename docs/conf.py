"""The documentation: `make docs` builds it into build/docs, without a network."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from numpy.typing import ArrayLike
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import stringify_annotation

import slicegraph

project = "slicegraph"
author = copyright = "The slicegraph authors"
version = release = slicegraph.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"slicegraph {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # the tables that benchmarks write begin at level 3

# Only the names of `__all__`, which mostly come from the files of a folder.
autodoc_default_options = {"members": True, "imported-members": True}
autodoc_inherit_docstrings = False  # not those of torch
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
default_role = "literal"  # single backticks in docstrings
napoleon_custom_sections = ["Shapes"]
napoleon_use_ivar = True
napoleon_use_param = False  # "rtol, atol: ..." stays one entry

_log = logging.getLogger(__name__)
_ARRAY_LIKE = stringify_annotation(ArrayLike, "smart")
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']((?:https?:)?//[^"']+)"""
    r"""|@import\s+["'(]?([^"')]+)|url\(["']?((?:https?:)?//[^"')]+)"""
)


def _mathml(node: nodes.math | nodes.math_block) -> str:
    """Convert a formula to MathML, which every current browser draws by itself."""
    block = isinstance(node, nodes.math_block)
    # The converter sets no space next to log, and knows neither \_ nor rows without an environment.
    text = node.astext().replace(r"\log", r"\,\log\,").replace(r"\_", "_")
    if r"\\" in text and r"\begin" not in text:
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    formula = convert(text, display="block" if block else "inline")
    if "\\" in formula:  # the converter copies what it does not know
        _log.warning("a formula that cannot be converted: %s", text, location=node)
    return formula


def _visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_mathml(node)}</div>\n')
    raise nodes.SkipNode


def _mend_signature(*arguments: Any) -> tuple[str | None, str | None]:
    """Write defaults that a dataclass makes as `...`, and the types of an ArrayLike as its name."""
    *_, signature, returns = arguments
    if signature:
        signature = signature.replace("<factory>", "...").replace(_ARRAY_LIKE, "ArrayLike")
    return signature, returns


def _skip_aliases(app: Sphinx, what: str, name: str, member: Any, *_: Any) -> bool | None:
    """Leave out the fields of named tuples that only have the docstring of collections."""
    return True if str(member.__doc__).startswith("Alias for field number") else None


def _drop_source_links(app: Sphinx, document: nodes.document) -> None:
    """Keep only the text of the README's links to files of the source, which the site lacks."""
    for node in list(document.findall(addnodes.pending_xref)):
        if (Path(app.srcdir).parent / node["reftarget"]).is_file():
            node.replace_self(node.children)


def _check_reference(app: Sphinx, exception: Exception | None) -> None:
    """Warn about public names without an entry: autodoc leaves out what has no docstring."""
    found = {name.rpartition(".")[2] for name in app.env.domains.python_domain.objects}
    for page in sorted(Path(app.srcdir, "api").glob("*.rst")):
        if page.stem != "index":
            module = import_module(f"slicegraph.{page.stem}")
            for name in set(module.__all__) - found:
                _log.warning("%s.%s is not in the reference", module.__name__, name)


def _check_offline(app: Sphinx, exception: Exception | None) -> None:
    """Warn about everything that a page would load from a network; links may lead anywhere."""
    if exception is not None or app.builder.name != "html":
        return
    for file in sorted(Path(app.outdir).rglob("*")):
        if file.suffix in (".html", ".css"):
            for found in _LOADED.finditer(file.read_text(encoding="utf-8")):
                _log.warning("%s loads %s", file.name, next(filter(None, found.groups())))


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("autodoc-process-signature", _mend_signature)
    app.connect("autodoc-skip-member", _skip_aliases)
    app.connect("doctree-read", _drop_source_links)
    app.connect("build-finished", _check_reference)
    app.connect("build-finished", _check_offline)
