"""Matrix products whose rows do not depend on each other: a row has the same bits alone and in any batch.

BLAS chooses a kernel, and with it the order of summation, by the shape of the product, and some kernels treat the rows
at the end of a tile differently. So every product here is cut into tiles of the same few rows. A tile of four rows is
uniform on all x86 kernels of OpenBLAS (larger ones are not: Haswell's and Zen's differ from 6 rows on). Any other BLAS
is probed when weights are loaded; where a tile is not uniform, rows are multiplied one by one, which always is. The
choice depends on the machine alone, never on timing or load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_TILE: Final = 4


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Products in tiles of `tile` rows."""

    tile: int

    @classmethod
    def for_shapes(cls, shapes: Iterable[tuple[int, int]]) -> RowProducts:
        """With the largest tile in which the rows of products with these (inner, outer) sizes are independent."""
        return cls(_TILE if all(_rows_are_independent(_TILE, *shape) for shape in set(shapes)) else 1)

    def padded_count(self, rows: int) -> int:
        """The rows of whole tiles that hold so many."""
        return -(-rows // self.tile) * self.tile

    def pad(self, left: Floats) -> Floats:
        """A copy, (…, rows, inner), with rows of zeros up to whole tiles."""
        *stack, rows, inner = left.shape
        padded: Floats = np.zeros((*stack, self.padded_count(rows), inner), np.float32)
        padded[..., :rows, :] = left
        return padded

    def multiply(self, left: Floats, right: Floats) -> Floats:
        """(…, rows, inner) times (…, inner, outer). The rows are contiguous and make whole tiles."""
        *stack, rows, inner = left.shape
        product = left.reshape(*stack, rows // self.tile, self.tile, inner) @ right[..., None, :, :]
        return product.reshape(*product.shape[:-3], rows, product.shape[-1])


def _rows_are_independent(tile: int, inner: int, outer: int) -> bool:
    """Whether a row gives the same bits at every place of a tile, next to other rows, against both memory layouts."""
    chance = np.random.default_rng(0)
    rows = chance.standard_normal((2 * tile, inner), np.float32)
    for right in (
        chance.standard_normal((inner, outer), np.float32),
        chance.standard_normal((outer, inner), np.float32).T,
    ):
        places = [np.roll(rows, shift, axis=0)[:tile] @ right for shift in range(tile)]
        if not all(np.array_equal(product[place], places[0][0]) for place, product in enumerate(places)):
            return False
    return True
