"""The site of what is written for GitHub: README is its front page, notebooks are pages, and so is code that is linked to.

A link in README or docs is relative to its file, as GitHub wants it. Here every one is read as a path in the repository, and
what it names gets a place on the site: other pages where they are, notebooks as pages, code as pages that show it, folders as
lists, and other files as they are. A link to something that is not there fails the build.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FRONT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
SHOWN = {".py": "python", ".toml": "toml", ".cff": "yaml"}
COPIED = {".csv", ".json", ".png", ".svg"}
log = logging.getLogger("mkdocs.hooks.ex2")


def source_of(page: str) -> str:
    """The file in the repository that a page of the site is made of."""
    if page in FRONT:
        return FRONT[page]
    notebook = f"docs/{page.removesuffix('.md')}.ipynb"
    return notebook if page.endswith(".md") and (ROOT / notebook).exists() else f"docs/{page}"


def place_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    for page, file in FRONT.items():
        if path == file:
            return page
    if path.startswith("docs/") and not path.endswith(".py") and (ROOT / path).is_file():
        return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}.md" if Path(path).suffix in SHOWN else f"source/{path}"


def linked(source: str, text: str) -> list[str]:
    """The files of the repository that a page links to."""
    return [os.path.normpath(os.path.join(os.path.dirname(source), found[2])) for found in LINK.finditer(outside_code(text))]


def outside_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", lambda found: " " * len(found[0]), text, flags=re.DOTALL)


def shown(path: str) -> str:
    """A page for a file of code, or for a folder."""
    if (ROOT / path).is_dir():
        inside = sorted(child for child in (ROOT / path).iterdir() if child.name[0] not in "._" and child.suffix != ".md")
        kept = [child for child in inside if child.is_dir() or child.suffix in SHOWN or child.suffix in COPIED]
        names = [f"{path}/{child.name}" for child in kept]
        return f"# {path}\n\n" + "\n".join(f"- [{Path(name).name}]({Path(name).name})" for name in names) + "\n"
    text = (ROOT / path).read_text()
    return f"# {Path(path).name}\n\n`{path}`\n\n````{SHOWN[Path(path).suffix]}\n{text.rstrip()}\n````\n"


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with the text and pictures that it printed."""
    parts = [f"[This notebook]({path.name}){{ download }} is a file to run.\n"]
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(
                    f'<img alt="what the cell above draws" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
                )
            elif printed := "".join(output.get("text", data.get("text/plain", []))):
                parts.append(f"```text\n{printed.rstrip()}\n```")
    title = parts.pop(1)
    return "\n\n".join([title, *parts]) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the front page, notebooks, and whatever is linked to outside docs."""
    for page, file in FRONT.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text()))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook)))
    waiting = [(source_of(file.src_uri), file.content_string) for file in files.documentation_pages()]
    while waiting:
        source, text = waiting.pop()
        for path in linked(source, text):
            place = place_of(path)
            if path.startswith("..") or not (ROOT / path).exists():
                log.warning("%s links to %s, which is not there.", source, path)
            elif files.get_file_from_path(place) is None and (ROOT / path).is_dir() | (Path(path).suffix in SHOWN):
                files.append(File.generated(config, place, content=shown(path)))
                if (ROOT / path).is_dir():
                    waiting.append((f"{path}/index", shown(path)))
            elif files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links as they are on the site."""
    here = page.file.src_uri
    source = here.removeprefix("source/") if here.startswith("source/") else source_of(here)

    def replaced(found: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(source), found[2]))
        own = page.file.src_uri.startswith("notebooks/") and path.endswith(".ipynb") and path == source
        place = path.removeprefix("docs/") if own else place_of(path)
        return found[1] + os.path.relpath(place, os.path.dirname(here)) + (found[3] or "")

    spans = [match.span() for match in LINK.finditer(outside_code(markdown))]
    for start, end in reversed(spans):
        markdown = markdown[:start] + LINK.sub(replaced, markdown[start : end + 1], count=1) + markdown[end + 1 :]
    return markdown
