"""Render an executed notebook as HTML: as a page, or as separate cells for the comparison page.

Only this module uses nbconvert.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import nh3
from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from ..files import write_atomically
from ..settings.units import size
from . import mathematics
from .metadata import metadata_of
from .reading import read_notebook
from .state_cell import with_state

#: A text output is shortened to `_MOST_OF_TEXT` characters. Any other output is replaced if it has
#: more than `_MOST_OF_OUTPUT` characters. Both are chosen, not measured. The comparison page loads
#: many notebooks into one browser tab.
_MOST_OF_TEXT, _MOST_OF_OUTPUT = 100_000, 4_000_000
#: Random part of the HTML comment that marks the beginning and the end of each cell. As it is
#: random, no notebook can contain this comment.
_KEY = secrets.token_hex(8)
_CELL = f"<!--{_KEY}cell-->"
#: Template for nbconvert. It puts `_CELL` before and after each cell, so that the page can be
#: split into cells. It replaces outputs that run scripts or are too large.
_TEMPLATE = """
{%- extends 'index.html.j2' -%}
{% block any_cell %}CELL{{ super() }}CELL{% endblock %}
{% block data_priority %}{{ output | still or super() }}{% endblock %}
{% block stream %}{{ output | still or super() }}{% endblock %}
{% block error %}{{ output | still or super() }}{% endblock %}
""".replace("CELL", _CELL)
_IMAGES = ("image/png", "image/jpeg")
_SCRIPTS = ("application/javascript", "application/vnd.jupyter.widget-view+json")
_HEAD = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
)
#: Styles that hide the link next to each heading, because links do not work in a frame with
#: `srcdoc`, which has no URL. They also add a sentence below the parameters cell if the next cell
#: is the one that papermill has injected.
_STYLE = """
a.anchor-link { display: none; }
.celltag_parameters:has(+ .celltag_injected-parameters) .jp-InputArea-editor::after {
  display: block; padding: 0 0 .5em .7em; color: var(--jp-ui-font-color2, #616161);
  font: italic .85em sans-serif; content: "The next cell replaces values of this one.";
}
"""

# --- HTML tags and attributes that stay in a notebook's outputs ----------------------------------

_TAGS = nh3.ALLOWED_TAGS | {"button", "fieldset", "input", "label", "section", "style"}
_TAGS |= mathematics.TAGS
_EVERYWHERE = {"class", "id", "style", "title", "hidden", "role", "tabindex", "align", "dir"}
_ATTRIBUTES = {
    **{tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()},
    "*": _EVERYWHERE,
    "img": {"src", "alt", "width", "height"},
    "input": {"type", "checked", "disabled", "value"},
    "label": {"for"},
    "details": {"open"},
    **dict.fromkeys(mathematics.TAGS, mathematics.ATTRIBUTES),
}
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);", re.IGNORECASE)


def render(path: Path) -> list[str]:
    """Return the cells of an executed notebook as HTML.

    The HTML has no scripts, no event handlers, and nothing that a browser would load from a server.
    An output that needs a script, or that is too large, is replaced by one line.

    Raises:
        NotebookError: The file is missing or is not a notebook.
    """
    node = read_notebook(path)
    metadata = metadata_of(node)
    text = _rendered(with_state(node, metadata) if metadata else node)
    cells = text.split(_CELL)[1::2]  # Each cell is between two of these comments.
    return [_cleaned(cell) for cell in cells]


def page_of(cells: Sequence[str]) -> str:
    """Return an HTML page with rendered cells. The page runs no scripts."""
    sheets = _styles()
    style = "\n".join(sheets[name] for name in ("base", "light", "code"))
    body = "\n".join(cells)
    return f'{_HEAD}<style>{style}</style><body class="jp-Notebook">{body}</body>'


def write_cells(folder: Path, run_id: str, cells: Sequence[str]) -> None:
    """Write a trial's rendered cells for the comparison page, and the style sheets if missing.

    A page that is a local file can load other files only as scripts. So each file that is written
    is a script with one call.

    Args:
        folder: Folder for the files. The folder and its parent are made if they are missing.
        run_id: Run id of the trial.
        cells: Cells as HTML.

    Raises:
        OSError: A file cannot be written.
    """
    folder.parent.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    styles = folder / "styles.js"
    if not styles.exists():
        write_atomically(styles, f"sweeper.styles({json.dumps(_styles())});")
    call = f"sweeper.notebook({json.dumps(run_id)}, {json.dumps(cells)});"
    write_atomically(folder / f"{run_id}.js", call)


@cache
def _styles() -> Mapping[str, str]:
    """Return the style sheets of rendered cells: `base`, `code`, and `light` and `dark` colours."""
    from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor

    environment = _exporter().environment
    names = {"base": "index", "light": "theme-light", "dark": "theme-dark"}
    sheets = {
        key: environment.loader.get_source(environment, f"static/{name}.css")[0]
        for key, name in names.items()
    }
    no_folder = {"config_dir": os.devnull}  # Ignore the style sheet in the user's configuration.
    _, resources = CSSHTMLHeaderPreprocessor().preprocess(new_notebook(), no_folder)
    sheets["base"] += mathematics.STYLE + _STYLE
    return {**sheets, "code": "\n".join(resources["inlining"]["css"])}


def _cleaned(html: str) -> str:
    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        clean_content_tags={"script"},
        generic_attribute_prefixes={"data-", "aria-"},
        url_schemes={"http", "https", "mailto", "data"},
        attribute_filter=_allowed,
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _allowed(tag: str, name: str, value: str) -> str | None:
    """Return the value of an HTML attribute, or None if the attribute has to be removed.

    A `src` is kept only if it is a `data:` URL of a picture. An `href` is kept only if it is no
    `data:` URL.
    """
    if name == "src" and not _PICTURE.match(value):
        return None
    if name == "href" and value.lower().startswith("data:"):
        return None
    return value


def _still(output: Mapping[str, Any]) -> str | None:
    """Return HTML that replaces an output that runs scripts or is too large.

    Returns:
        None if the output can be shown unchanged.
    """
    if output["output_type"] == "stream":
        return _shortened(output["text"])
    if output["output_type"] == "error":
        return _shortened("\n".join(output["traceback"]))
    data = output["data"]
    html = str(data.get("text/html", ""))
    is_script = any(kind in data for kind in _SCRIPTS)
    if is_script or ("<script" in html and not _visible(html)):
        for kind in _IMAGES:
            if kind in data:
                image = f'<img src="data:{kind};base64,{data[kind]}">'
                return f'<div class="jp-RenderedImage">{image}</div>'
        return _line("interactive: open the notebook")
    sizes = [len(str(value)) for value in data.values()]
    if max(sizes, default=0) > _MOST_OF_OUTPUT:
        return _line(f"{size(max(sizes))}: open the notebook")
    if "text/latex" in data and not html:
        return str(_exporter().environment.filters["markdown2html"]({}, data["text/latex"]))
    if [*data] == ["text/plain"]:
        return _shortened(data["text/plain"])
    return None


def _visible(html: str) -> bool:
    """Return whether HTML displays anything without its scripts."""
    left = _cleaned(html[:_MOST_OF_OUTPUT])
    text = nh3.clean(left, tags=set(), clean_content_tags={"style"})
    return "<img" in left or bool(text.strip())


def _shortened(text: str) -> str | None:
    if len(text) <= _MOST_OF_TEXT:
        return None
    half = _MOST_OF_TEXT // 2
    left = size(len(text) - _MOST_OF_TEXT)
    return _pre(f"{text[:half]}\n… {left} more: open the notebook …\n{text[-half:]}")


def _line(text: str) -> str:
    return _pre(f"[{text}]")


def _pre(text: str) -> str:
    return f'<div class="jp-RenderedText"><pre>{nh3.clean_text(text)}</pre></div>'


# --- nbconvert ----------------------------------------------------------------------------------


def _rendered(node: NotebookNode) -> str:
    """Return a notebook as nbconvert renders it.

    The last step of nbconvert's exporter for HTML is left out: it would parse the whole page again,
    only to add descriptions to images.
    """
    from nbconvert.exporters.templateexporter import TemplateExporter
    from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter

    exporter = _exporter()
    kinds = WidgetsDataTypeFilter(notebook_metadata={"": node.metadata}, parent=exporter)
    exporter.register_filter("filter_data_type", kinds)
    resources = exporter._init_resources(None)
    body, _ = TemplateExporter.from_notebook_node(exporter, node, resources)
    return str(body)


# Make one exporter for all notebooks: compiling its templates takes four times as long as rendering
# a small notebook.
@cache
def _exporter() -> Any:
    from jinja2 import pass_context
    from nbconvert import HTMLExporter  # Imported only to render: it takes 0.5 s or more.
    from nbconvert.filters import Highlight2HTML, clean_html
    from nbconvert.filters.markdown_mistune import (
        InvalidNotebook,
        IPythonRenderer,
        MarkdownWithMath,
    )

    class Renderer(IPythonRenderer):
        """nbconvert's Markdown renderer, with formulas as MathML, which needs no script."""

        def block_math(self, body: str) -> str:
            return mathematics.rendered(body, is_block=True) or super().block_math(body)

        def inline_math(self, body: str) -> str:
            return mathematics.rendered(body) or super().inline_math(body)

        def image(self, text: str, url: str, title: str | None = None) -> str:
            try:
                return str(super().image(text, url, title))
            except InvalidNotebook:  # The image is an attachment that the cell lacks.
                return text  # The alternative text, which is HTML already.

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    @pass_context
    def markdown(context: Mapping[str, Any], source: str) -> str:
        attachments = context.get("cell", {}).get("attachments", {})
        renderer = Renderer(escape=False, attachments=attachments, embed_images=True)
        return str(MarkdownWithMath(renderer=renderer).render(source))

    exporter: Any = HTMLExporter(
        raw_template=_TEMPLATE,
        mathjax_url="",
        require_js_url="",
        jquery_url="",
        mermaid_js_url="",
        embed_images=True,
        optimistic_validation=True,  # Validate the notebook once, not after each step.
    )

    # Highlighted code is cached, because the notebooks of trials differ only in one cell and the
    # outputs.
    @lru_cache(maxsize=1000)
    def highlighted(lexer: str | None, source: str) -> str:
        return str(Highlight2HTML(pygments_lexer=lexer, parent=exporter)(source))

    @pass_context
    def highlight(
        context: Mapping[str, Any], source: str, metadata: Mapping[str, Any] | None = None, **_: Any
    ) -> str:
        language = context["nb"].metadata.get("language_info", {})
        lexer = language.get("pygments_lexer", language.get("name"))
        # Code of a magic such as %%bash has the colours of its own language.
        return highlighted((metadata or {}).get("magics_language", lexer), source)

    exporter.register_filter("highlight_code", highlight)
    exporter.register_filter("clean_html", lru_cache(maxsize=1000)(clean_html))
    exporter.register_filter("still", _still)
    exporter.register_filter("markdown2html", markdown)
    return exporter
