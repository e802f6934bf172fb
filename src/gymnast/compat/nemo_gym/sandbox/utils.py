"""`nemo_gym.sandbox.utils`."""

from gymnast.compat.nemo_gym.surface import missing_from

__all__ = [
    "rewrite_image",
]


def rewrite_image(image: str | None, rewrites: list[dict[str, str]]) -> str | None:
    """An image's name with the first fitting rewrite applied: `{from: <beginning>, to: <another>}`."""
    if image is None:
        return None
    for rewrite in rewrites:
        begins = rewrite.get("from", rewrite.get("prefix", ""))
        if begins and image.startswith(begins):
            return rewrite.get("to", rewrite.get("replacement", "")) + image.removeprefix(begins)
    return image


__getattr__ = missing_from("nemo_gym.sandbox.utils")
