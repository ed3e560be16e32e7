"""For the site: links to files outside docs/ become the files' paths."""

import re


def on_page_markdown(markdown: str, **_) -> str:
    """Replaces `[text](../towers/x.py)`, which the site does not hold, by its text."""
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", markdown)
