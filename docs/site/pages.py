"""Which files of the repository are in the site: a hook of MkDocs, named in mkdocs.yml.

MkDocs knows one folder of pages. The pages of `docs/` link to others of the repository, and must go on doing so where
they are read on GitHub. So every page keeps the path that it has in the repository, and whatever a page links to is in
the site as well: a file as it is, a folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset|href)=\")(?P<target>[^\s)\"#:]+)(?P<after>[#)\"])")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "conf/*.md", "docs/**/*.md", "docs/site/*.css")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the pages, and what pages link to."""
    root = Path(config.config_file_path).parent
    found = [file for file in files if file.inclusion is InclusionLevel.UNDEFINED and file.src_dir != config.docs_dir]
    pages = sorted(page for pattern in PAGES for page in root.glob(pattern))
    found += [_file(str(page.relative_to(root)), root, config) for page in pages]
    for target in sorted({target for page in pages for target in _linked(page, root)} - {f.src_uri for f in found}):
        place = root / target
        if place.is_file():
            found.append(_file(target, root, config))
        elif place.is_dir():
            listing = f"{target}/index.md"
            content = _listing(place, root)
            found.append(File.generated(config, listing, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
            listed = (f"{target}/{path.name}" for path in place.iterdir() if path.is_file())
            found += [_file(path, root, config) for path in listed if path not in {f.src_uri for f in found}]
    return Files(found)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Its links to folders lead to the lists of their files."""
    del config
    folder = posixpath.dirname(page.file.src_uri)

    def resolved(link: re.Match[str]) -> str:
        listing = posixpath.normpath(posixpath.join(folder, link["target"], "index.md"))
        if link["target"].endswith(".md") or files.get_file_from_path(listing) is None:
            return link[0]
        return f"{link['before']}{link['target'].rstrip('/')}/index.md{link['after']}"

    return LINK.sub(resolved, markdown)


def _file(path: str, root: Path, config: MkDocsConfig) -> File:
    return File(path, str(root), config.site_dir, config.use_directory_urls)


def _linked(page: Path, root: Path) -> set[str]:
    """What the page links to, as paths in the repository. Whether it exists is for MkDocs to say."""
    folder = page.parent.relative_to(root).as_posix()
    targets = (posixpath.normpath(posixpath.join(folder, link["target"])) for link in LINK.finditer(page.read_text()))
    return {target for target in targets if not target.startswith((".", "/"))}


def _listing(folder: Path, root: Path) -> str:
    """A page with a link to each file of a folder, under its heading if it has one."""
    lines = [f"# {folder.relative_to(root).as_posix()}", ""]
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        heading = re.match(r"# (.+)", path.read_text()) if path.suffix == ".md" else None
        lines.append(f"- [{heading[1] if heading else path.name}]({path.name})")
    return "\n".join([*lines, ""])
