"""Matrix products whose rows are independent: a row has the same bits alone and in any batch.

BLAS chooses a kernel, and with it the order of summation, by the shape of the product, and some kernels treat the last
rows of a tile differently. Therefore every product here is cut into tiles of the same few rows. Tiles of four rows are
uniform on all x86 kernels of OpenBLAS (larger ones are not: Haswell's and Zen's differ from 6 rows on). On any BLAS
this is probed when weights are loaded; if it does not hold, rows are multiplied one by one, which is always uniform.
The choice depends on the machine alone, never on timing or load.
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
        """Products with the largest tile that keeps rows of these (inner, outer) sizes independent."""
        return cls(_TILE if all(_rows_are_independent(_TILE, *shape) for shape in set(shapes)) else 1)

    def padded_count(self, rows: int) -> int:
        """The number of rows rounded up to whole tiles."""
        return -(-rows // self.tile) * self.tile

    def pad(self, left: Floats) -> Floats:
        """A copy, (…, rows, inner), padded with zero rows to whole tiles."""
        *stack, rows, inner = left.shape
        padded: Floats = np.zeros((*stack, self.padded_count(rows), inner), np.float32)
        padded[..., :rows, :] = left
        return padded

    def multiply(self, left: Floats, right: Floats) -> Floats:
        """(…, rows, inner) times (…, inner, outer). The rows must be contiguous whole tiles."""
        *stack, rows, inner = left.shape
        product = left.reshape(*stack, rows // self.tile, self.tile, inner) @ right[..., None, :, :]
        return product.reshape(*product.shape[:-3], rows, product.shape[-1])


def _rows_are_independent(tile: int, inner: int, outer: int) -> bool:
    """Whether a row gives the same bits at every index of a tile, next to other rows, in both memory layouts."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2 * tile, inner), np.float32)
    for right in (
        rng.standard_normal((inner, outer), np.float32),
        rng.standard_normal((outer, inner), np.float32).T,
    ):
        products = [np.roll(rows, shift, axis=0)[:tile] @ right for shift in range(tile)]
        if not all(np.array_equal(product[index], products[0][0]) for index, product in enumerate(products)):
            return False
    return True
