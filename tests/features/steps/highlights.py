"""Which numbers a number is made of, worked out from what the page is told: as its script does."""

from attnviz.features.steps.arithmetic import Matrix
from attnviz.features.steps.show import operand_cells

Cell = tuple[str, int, int, int]
"""A matrix, which of its slices, row and column."""


def shape(matrix: Matrix) -> tuple[int, int, int]:
    values = matrix.values
    return (len(values) if matrix.stack else 1, *values.shape[-2:])


def sources(matrix: Matrix, operand: Matrix, place: tuple[int, int, int]) -> set[Cell]:
    """The cells of an operand that light up for a number of a matrix."""
    number, row, column = place
    count, (slices, height, width) = shape(matrix)[0], shape(operand)
    found: set[Cell] = set()
    for read in operand_cells(matrix, operand):
        if read["by"] == "split":
            found.add((operand.name, 0, row, number * shape(matrix)[2] + column))
            continue
        if read["by"] == "join":
            found.add((operand.name, column // width, row, column % width))
            continue
        each = slices / count
        first = int(number * each + 1e-9)
        which = [first + row] if read["by"] == "row" else range(first, first + max(1, int(each)))

        def chosen(code: str, most: int) -> range | list[int]:
            known = {"i": [row], "j": [column], "s": [number % most]}
            return known.get(code, range(most))

        found |= {
            (operand.name, one, y, x)
            for one in which
            for y in chosen(read["rows"], height)
            for x in chosen(read["columns"], width)
        }
    return found
