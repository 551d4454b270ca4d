"""Sphinx settings of the documentation; `make docs` builds it into out/docs."""

import os
import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

_PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())

project = "Assay"
author = "The Assay authors"
release = _PROJECT["project"]["version"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"  # Docstrings write `name` for code.

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# Notebooks are committed without outputs and run here. `make docs NOTEBOOKS=off` leaves them out.
nb_execution_mode = os.environ.get("NOTEBOOKS", "force")
nb_execution_raise_on_error = True
nb_execution_timeout = 1800  # Seconds for one cell, on a busy machine.
nb_output_stderr = "remove"  # Notes of libraries; an exception fails the build.
nb_ipywidgets_js = {}  # No page may load anything from a network.
suppress_warnings = ["mystnb.unknown_mime_type"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = f"Assay {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["assay.css"]


_LOGGER = logging.getLogger(__name__)  # A warning fails the build.


def setup(app: Sphinx) -> None:
    """Reads docstrings as they are written, and refuses pages that need a network."""
    app.connect("autodoc-process-docstring", _as_text)
    app.connect("build-finished", _refuse_network)


def _as_text(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keeps the first paragraph of a module's docstring, and `|t|` as it is written."""
    lines[:] = [re.sub(r"\|(\w+)\|", r"\\|\1\\|", line) for line in lines]
    if what == "module" and "" in lines:
        del lines[lines.index("") :]
        lines.append("")


def _refuse_network(app: Sphinx, exception: Exception | None) -> None:
    """Refuses a page that loads a script, a style, a font or an image from a network."""
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.https?:|url\(.?https?:")
    for page in [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]:
        if exception is None and (found := loads.search(page.read_text(encoding="utf-8"))):
            _LOGGER.warning("%s: loads something from a network: %s", page, found[0])
