"""A hook of mkdocs: pictures that follow the light and dark switch, pages from files outside docs/, what search finds.

The SVG pictures of docs/ follow `prefers-color-scheme`, which is right in a repository browser. On the site the reader
chooses light or dark, so each picture is built twice, and the theme shows the one that fits (`#only-light`,
`#only-dark`).
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SEARCH = {"cookbook.md": {"boost": 4}, "changelog.md": {"exclude": True}}
"""Questions find their short answer first, and never what changed once."""
OUTSIDE = {"contributing.md": ROOT / "CONTRIBUTING.md", "changelog.md": ROOT / "CHANGELOG.md"}
DARK = re.compile(r"@media \(prefers-color-scheme:dark\)\{(:root\{[^}]*\})\}")
PICTURE = re.compile(r"!\[(.*?)\]\(([\w-]+)\.svg\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add both variants of the pictures, and the pages that lie outside docs/."""
    for name, path in OUTSIDE.items():
        files.append(File.generated(config, name, content=path.read_text().replace("](docs/", "](")))
    for picture in list(files):
        if picture.src_uri.endswith(".svg") and (text := picture.content_string) and DARK.search(text):
            stem = picture.src_uri.removesuffix(".svg")
            files.append(File.generated(config, f"{stem}.light.svg", content=DARK.sub("", text)))
            files.append(File.generated(config, f"{stem}.dark.svg", content=DARK.sub(r"\1", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the variant of the reader's choice, and link to the pages from outside docs/."""
    page.meta |= {"search": SEARCH[page.file.src_uri]} if page.file.src_uri in SEARCH else {}
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(f"](../{path.name})", f"]({name})")

    def both(found: re.Match[str]) -> str:
        alt, stem = found.groups()
        if files.get_file_from_path(f"{stem}.dark.svg") is None:
            return found[0]
        return f"![{alt}]({stem}.light.svg#only-light)\n![{alt}]({stem}.dark.svg#only-dark)"

    return PICTURE.sub(both, markdown)
