"""The JSON Schema dialect of OpenAPI 3.1, in which NeMo Gym validates: draft 2020-12 with discriminators.

A schema with a `discriminator` next to `anyOf`, `oneOf` or `allOf` is replaced by the one that the instance names.
`format` is not enforced, and `$ref` works only within the schema: nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


def first_error(value: Any, schema: Any) -> Exception | None:
    """The most relevant reason why a value does not match. Raises for an invalid schema."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - an extra
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with it

    kind = _validator_type()
    kind.check_schema(schema)
    error: Exception | None = best_match(kind(schema, registry=REGISTRY).iter_errors(value))
    return error


@cache
def _validator_type() -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - an extra
    from jsonschema.validators import extend  # noqa: PLC0415 - an extra

    keywords = {name: _discriminate(Draft202012Validator.VALIDATORS[name]) for name in ("allOf", "oneOf", "anyOf")}
    return extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]


def _discriminate(keyword: Keyword) -> Keyword:
    def validate(validator: Any, parts: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if "discriminator" in schema:
            return _validate_named(validator, schema["discriminator"], instance)
        return keyword(validator, parts, instance, schema) or iter(())

    return validate


def _validate_named(validator: Any, discriminator: Any, instance: Any) -> Iterator[Any]:
    from jsonschema import ValidationError  # noqa: PLC0415 - an extra

    field = discriminator["propertyName"]
    name = instance.get(field)
    if not name:
        yield ValidationError(f"{instance!r} does not contain discriminating property {field!r}")
        return
    reference = discriminator.get("mapping", {}).get(name) or f"#/components/schemas/{name}"
    if not isinstance(reference, str):
        yield ValidationError(f"{instance!r} mapped value for {name!r} should be a string, was {reference!r}")
        return
    try:
        validator._validate_reference(ref=reference, instance=instance)  # noqa: SLF001 - no public name for a lookup
    except Exception:  # noqa: BLE001 - the reference's own fault, whichever it is
        yield ValidationError(f"{instance!r} reference {reference!r} could not be resolved")
        return
    yield from validator.descend(instance, {"$ref": reference})
