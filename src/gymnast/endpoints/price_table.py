"""Prices of models by name, from the table that ships or from a file of the same form.

Providers change prices: the table says when it was made, and a configuration uses it only if it says `prices: table`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.endpoints.usage import Prices
from gymnast.errors import ConfigError, DataError, NotFoundError, suggest

SHIPPED: Final = "table"
"""The value of `prices` that means the table that ships."""
TABLE: Final = Path(__file__).with_name("prices.yaml")
_VERSION: Final = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_FORM: Final = "docs/how-to/providers.md shows the form of a price table"


class PriceTable(BaseModel):
    """Prices per million tokens of the models of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    date: str = Field(min_length=1)
    """When the prices were looked up."""
    currency: str
    models: dict[str, Prices]


def find_prices(source: str, model: str) -> Prices:
    """The prices of a model, which may have a date at its end. An unknown model is an error that lists similar ones."""
    file = TABLE if source == SHIPPED else Path(source).expanduser()
    table = read_price_table(file)
    prices = table.models.get(model) or table.models.get(_VERSION.sub("", model))
    if prices is None:
        raise NotFoundError(
            f"the price table of {table.date} has no prices of '{model}'",
            where=str(file),
            next=f"{suggest(model, table.models) or 'the table is empty'}; or set `prices` of the model instance",
        )
    return prices


def read_price_table(file: Path) -> PriceTable:
    """Read a table. Raises DataError with what is wrong in it."""
    try:
        values: Any = plain(read_yaml(file, shown=str(file)))
        return PriceTable.model_validate({**values, "date": str(values.get("date") or "")})
    except OSError as error:
        raise DataError(f"cannot read the price table: {error.strerror}", where=str(file), next=_FORM) from error
    except ConfigError as error:
        raise DataError(f"the price table is not valid YAML: {error.what}", where=str(file), next=_FORM) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise DataError(f"the price table is wrong at '{key}': {first['msg']}", where=str(file), next=_FORM) from error
    except (TypeError, AttributeError) as error:
        raise DataError("the price table is not a mapping", where=str(file), next=_FORM) from error
