"""`nemo_gym.sandbox.utils`."""

from gymnast.compat.nemo_gym.surface import missing_from


def rewrite_image(image: str | None, rewrites: list[dict[str, str]]) -> str | None:
    """Apply the first matching rewrite `{from: <prefix>, to: <replacement>}` to the name of an image."""
    if image is None:
        return None
    for rewrite in rewrites:
        prefix = rewrite.get("from", rewrite.get("prefix", ""))
        if prefix and image.startswith(prefix):
            return rewrite.get("to", rewrite.get("replacement", "")) + image.removeprefix(prefix)
    return image


__getattr__ = missing_from("nemo_gym.sandbox.utils")
