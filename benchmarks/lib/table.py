"""Tables in plain text."""

from collections.abc import Sequence


def table_lines(title: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table: the first column to the left, the others to the right, under a rule.

    Args:
      title: what stands over each column.
      rows: of as many cells.
    """
    widths = [max(map(len, column)) for column in zip(title, *rows)]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths))
        )
        return "  ".join([first, *rest]).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return [line(title), rule, *map(line, rows)]
