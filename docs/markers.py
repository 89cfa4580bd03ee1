"""Tables in pages: what stands between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations


def filled(page: str, texts: dict[str, str]) -> str:
    """The page with these texts between their markers."""
    for name, text in texts.items():
        head, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        if not end:
            raise ValueError(f"the page has no place for {name}")
        page = f"{head}{begin}\n{text}\n\n{end}{tail}"
    return page
