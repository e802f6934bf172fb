"""Texts that models really write, made from other texts: each function changes one thing. Seeded, pure.

A mutation takes a text and random numbers and returns a text. `mutate_text` applies some of them.
"""

from __future__ import annotations

import base64
import codecs
import html
import json
import random
import re
import unicodedata
from collections.abc import Callable
from typing import Final, Literal

Mutation = Callable[[str, random.Random], str]

_INVISIBLE: Final = tuple("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\u202a\u202c\u202e\u2066\u2069\u180e\ufe0f")
_SPACES: Final = tuple("\u00a0\u2003\u2009\u202f\u3000\t\u1680\u205f")
_BREAKS: Final = ("\r\n", "\r", "\n\n", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\\n", "<br>")
_CONTROLS: Final = ("\x00", "\x08", "\x1b[31m", "\x7f", "\ufffd", "\ufffe", "\U000e0041")
_EMOJI: Final = ("😀", "👩‍👩‍👧", "✅", "🇩🇪", "👍🏽", "①", "🄰", "1️⃣", "𝟜", "🅰")
_LATIN: Final = "ABCEHIKMOPTXYaceiopxyjs"
_LOOKALIKES: Final = str.maketrans(_LATIN, "АВСЕНІКМОРТХУасеіорхујѕ")
_GREEK: Final = str.maketrans("ABEZHIKMNOPTYXov", "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧον")
_DIGITS: Final = (
    "٠١٢٣٤٥٦٧٨٩",
    "۰۱۲۳۴۵۶۷۸۹",
    "०१२३४५६७८९",
    "০১২৩৪৫৬৭৮৯",
    "０１２３４５６７８９",
    "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗",
    "⁰¹²³⁴⁵⁶⁷⁸⁹",
    "₀₁₂₃₄₅₆₇₈₉",
)
_DASHES: Final = ("\u2212", "\u2013", "\u2014", "\u2010", "\uff0d", "\u00ad")
_NUMBERS: Final = (
    *("NaN", "Infinity", "-Infinity", "inf", "1e400", "-0", "-0.0", "1e-400", "9007199254740993", "1" * 40),
    *("18446744073709551616", "0x1F", "0b11", "1_000", "1,000", "1.000,5", "007", ".5", "5.", "+3", "1/2", "½", "50%"),
    *(
        "1'000",
        "1\u202f000",
        "1.000.000",
        "0o17",
        "1j",
        "１．５",
        "1٫5",
        "∞",
        "+0",
        "--1",
        "1..2",
        "e5",
        "1L",
        "0x1p3",
        "5!",
        "1;2",
        "2/0",
    ),
    *("1e3", "1E+3", "3.0", "10^2", "2^{10}", "1 000", "−3", "0.1+0.2", "٣", "Ⅳ", "１２", "3.14159265358979323846"),
)
_PROSE: Final = (
    *("The answer is ", "Final answer: ", "**Answer:** ", "Answer:\n", "Sure! Here it is:\n\n", "### Answer\n", "=> "),
    *("Let me think.\n", "Okay, so ", "ANSWER — ", "答案：", "الإجابة: ", "I'm not sure, but ", "\n\n\n", "A: ", "> "),
    *("assistant\n", "<|im_start|>assistant\n", "<|start_header_id|>assistant<|end_header_id|>\n\n", "[/INST] ", "- "),
)
_ENDS: Final = (
    *(".", "!", " ", "\n", "...", "…", ".\n\nHope this helps!", " (see above)", "</s>", "<|im_end|>", "<|eot_id|>"),
    *(
        "<|endoftext|>",
        "\n---",
        "\n\nWait, ",
        "\n\nI hope it is correct.",
        ";",
        "。",
        "\u200b",
        "\x00",
        "[EOS]",
        " QED ∎",
    ),
)
_TAGS: Final = (
    "think",
    "thinking",
    "answer",
    "solution",
    "THINK",
    "reasoning",
    "final",
    "action",
    "reflection",
    "think ",
)
_FENCES: Final = ("json", "python", "yaml", "sql", "", "py", "Python", "xml", "JSON", "text", "latex", "diff", "json5")
_WRAPS: Final = (
    *(("\\boxed{", "}"), ("$\\boxed{", "}$"), ("\\boxed{\\text{", "}}"), ("\\fbox{", "}"), ("\\boxed {", "}")),
    *(("\\boxed{\\boxed{", "}}"), ("\\boxed{", ""), ("\\boxed{", "}}"), ("\\boxed\n{", "}"), ("\\\\boxed{", "}")),
    *(("\\boxed{\\mathrm{", "}}"), ("\\boxed{\\left(", "\\right)}"), ("\\boxed{\\{", "\\}}"), ("\\boxed{$", "$}")),
    *(("$", "$"), ("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("*", "*"), ("__", "__"), ("`", "`")),
    *(('"', '"'), ("'", "'"), ("“", "”"), ("«", "»"), ("(", ")"), ("[", "]"), ("{", "}"), ("[[", "]]"), ("<", ">")),
    *(
        ("\\text{", "}"),
        ("\\mathbf{", "}"),
        ("\\textbf{", "}"),
        ("\\frac{", "}{1}"),
        ("\\begin{aligned}", "\\end{aligned}"),
    ),
    *(("<!-- ", " -->"), ("<b>", "</b>"), ("<![CDATA[", "]]>"), ("```", "```"), ("~~~\n", "\n~~~"), ("(((", ")))")),
    *(
        ("<answer>", "</answer>"),
        ("<answer>", ""),
        ("", "</answer>"),
        ("<Answer>", "</Answer>"),
        ("<answer >", "</answer>"),
    ),
)


def _pick(text: str, chance: random.Random) -> int:
    return chance.randint(0, len(text))


def _insert(text: str, chance: random.Random, piece: str) -> str:
    at = _pick(text, chance)
    return text[:at] + piece + text[at:]


def add_invisible(text: str, chance: random.Random) -> str:
    """A zero-width character, a byte order mark or a mark of direction, in front, at the end or inside."""
    piece = chance.choice(_INVISIBLE)
    return chance.choice(
        (piece + text, text + piece, _insert(text, chance, piece), piece.join(text[:200]) + text[200:])
    )


def change_spaces(text: str, chance: random.Random) -> str:
    """Other spaces, or other line breaks, one or all."""
    old, new = chance.choice(((" ", chance.choice(_SPACES)), ("\n", chance.choice(_BREAKS)), (" ", "\n"), ("\n", " ")))
    return text.replace(old, new, chance.choice((1, -1)))


def insert_break(text: str, chance: random.Random) -> str:
    """A line break where none was."""
    return _insert(text, chance, chance.choice(_BREAKS))


def insert_control(text: str, chance: random.Random) -> str:
    """A control character."""
    return _insert(text, chance, chance.choice(_CONTROLS))


def insert_emoji(text: str, chance: random.Random) -> str:
    """An emoji or an enclosed letter."""
    return _insert(text, chance, chance.choice(_EMOJI))


def use_lookalikes(text: str, chance: random.Random) -> str:
    """Letters of another alphabet that look the same; of all, or of one word."""
    table = chance.choice((_LOOKALIKES, _GREEK))
    if chance.random() < 0.5:
        return text.translate(table)
    words = re.split(r"(\W+)", text)
    at = chance.randrange(len(words))
    return "".join([*words[:at], words[at].translate(table), *words[at + 1 :]])


def use_wide_letters(text: str, chance: random.Random) -> str:
    """Full-width or mathematical letters."""
    start = chance.choice((0xFF21, 0x1D400, 0x1D5D4, 0x24B6))
    small = {0xFF21: 0xFF41, 0x1D400: 0x1D41A, 0x1D5D4: 0x1D5EE, 0x24B6: 0x24D0}[start]
    at = _pick(text, chance)
    to = at + chance.randint(1, 12)

    def widen(letter: str) -> str:
        if "A" <= letter <= "Z":
            return chr(start + ord(letter) - 65)
        return chr(small + ord(letter) - 97) if "a" <= letter <= "z" else letter

    return text[:at] + "".join(map(widen, text[at:to])) + text[to:]


def use_other_digits(text: str, chance: random.Random) -> str:
    """Digits of another script, all or one."""
    digits = chance.choice(_DIGITS)
    if chance.random() < 0.5:
        return text.translate(str.maketrans("0123456789", digits))
    return re.sub(r"[0-9]", lambda found: digits[int(found[0])], text, count=1)


def use_other_dashes(text: str, chance: random.Random) -> str:
    """A minus sign or dash that is not the keyboard's."""
    return text.replace("-", chance.choice(_DASHES), chance.choice((1, -1)))


def change_number(text: str, chance: random.Random) -> str:
    """Another number, or the same one written differently."""
    numbers = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
    if not numbers:
        return _insert(text, chance, chance.choice(_NUMBERS))
    number = chance.choice(numbers)
    value = number[0]
    forms = (
        *(
            value + ".0",
            value + "0",
            "0" + value,
            "+" + value,
            value + "e0",
            "-" + value,
            value + "%",
            value + " units",
        ),
        *(
            f"{value}/1",
            value[::-1],
            f"{value}.",
            f"\\text{{{value}}}",
            f"{{{value}}}",
            f"{value}\\,000",
            f"\\frac{{{value}}}{{1}}",
        ),
        *(
            f"{int(value):,}" if value.lstrip("-").isdigit() and len(value) < 400 else value.replace(".", ","),
            f"{value}^{{\\circ}}",
            f"${value}",
        ),
    )
    piece = chance.choice(_NUMBERS) if chance.random() < 0.4 else chance.choice(forms)
    return text[: number.start()] + piece + text[number.end() :]


def truncate(text: str, chance: random.Random) -> str:
    """Cut off at the end, as by a token limit, or at the start."""
    at = _pick(text, chance)
    return text[:at] if chance.random() < 0.8 else text[at:]


def damage(text: str, chance: random.Random) -> str:
    """A character dropped, doubled or swapped with its neighbour."""
    if not text:
        return text
    at = chance.randrange(len(text))
    return chance.choice(
        (
            text[:at] + text[at + 1 :],
            text[:at] + text[at] * 2 + text[at + 1 :],
            text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :],
            text[:at] + text[at].swapcase() + text[at + 1 :],
        )
    )


def add_prose(text: str, chance: random.Random) -> str:
    """Something before, or after."""
    return chance.choice((chance.choice(_PROSE) + text, text + chance.choice(_ENDS)))


def wrap(text: str, chance: random.Random) -> str:
    """All of it, or a word of it, in a box, in LaTeX, in marks, in quotes."""
    before, after = chance.choice(_WRAPS)
    if chance.random() < 0.6:
        return before + text + after
    words = text.split(" ")
    at = chance.randrange(len(words))
    words[at] = before + words[at] + after
    return " ".join(words)


def add_thinking(text: str, chance: random.Random) -> str:
    """Thinking that leaks into the reply: whole, unclosed, unopened, nested, empty, after the answer."""
    tag = chance.choice(_TAGS)
    thought = chance.choice(
        ("so", "", text, "Maybe \\boxed{7}?", "<think>again</think>", "A or B", "```python\nx\n```")
    )
    return chance.choice(
        (
            f"<{tag}>{thought}</{tag}>{text}",
            f"<{tag}>\n{thought}\n</{tag}>\n\n{text}",
            f"{thought}</{tag}>{text}",
            f"<{tag}>{thought}{text}",
            f"{text}<{tag}>{thought}",
            f"{text}\n<{tag}>{thought}</{tag}>",
            f"<{tag}>{text}</{tag}>",
            f"<{tag}><{tag}>{thought}</{tag}>{text}</{tag}>",
            f"<|channel|>analysis<|message|>{thought}<|end|><|channel|>final<|message|>{text}",
            f"</{tag}>{text}</{tag}>",
        )
    )


def add_fence(text: str, chance: random.Random) -> str:
    """In a code block: with a language, unclosed, indented, twice, in one line."""
    language = chance.choice(_FENCES)
    indented = "\n".join("    " + line for line in text.splitlines())
    return chance.choice(
        (
            f"```{language}\n{text}\n```",
            f"```{language}\n{text}",
            f"{text}\n```",
            f"```{language} {text}```",
            f"````{language}\n```\n{text}\n```\n````",
            f"Here:\n\n```{language}\n{text}\n```\n\nDone.",
            f"```{language}\r\n{text}\r\n```",
            f"- item\n    ```{language}\n{indented}\n    ```",
            f"```{language}\n```\n{text}",
            f"```{language}\nwrong\n```\n```{language}\n{text}\n```",
            f"```{language}\n{text}\n```\n```{language}\nwrong\n```",
            f"~~~{language}\n{text}\n~~~",
        )
    )


def change_case(text: str, chance: random.Random) -> str:
    """Upper, lower, title or swapped case, and letters whose case is special."""
    changed = chance.choice((text.upper(), text.lower(), text.title(), text.swapcase(), text.capitalize()))
    return chance.choice((changed, text.replace("i", "ı"), text.replace("I", "İ"), text.replace("ss", "ß"), changed))


def escape(text: str, chance: random.Random) -> str:
    """Escaped for another place: HTML, JSON, LaTeX, Markdown, Python, URL."""
    return chance.choice(
        (
            html.escape(text),
            json.dumps(text),
            json.dumps(text, ensure_ascii=False)[1:-1],
            text.replace("\\", "\\\\"),
            text.replace("_", "\\_"),
            text.replace("\\", ""),
            repr(text),
            text.replace(" ", "%20"),
            text.replace("&lt;", "<").replace("<", "&lt;"),
            text.encode("utf-8", "replace").decode("latin-1"),
        )
    )


def change_quotes(text: str, chance: random.Random) -> str:
    """Other quotes, all or the first."""
    old, new = chance.choice((('"', "'"), ("'", '"'), ('"', "“"), ("'", "’"), ('"', "`"), ('"', "''"), ("`", "´")))
    return text.replace(old, new, chance.choice((1, -1)))


def change_syntax(text: str, chance: random.Random) -> str:
    """What is nearly JSON: trailing commas, comments, Python's constants, doubled keys, missing braces."""
    old, new = chance.choice(
        (
            *(
                ("}", ",}"),
                ("]", ",]"),
                ("true", "True"),
                ("null", "None"),
                (":", " ="),
                (",", ";"),
                ("{", "{{"),
                (":", ":\n"),
            ),
            *(
                ("{", "{ // note\n"),
                ("false", "False"),
                ("}", "}}"),
                ("{", "["),
                ("[", "("),
                ("null", "NaN"),
                (": ", ":"),
            ),
            *(("{", '{"a": 1, "a": 2, '), (",", ",,"), (", ", "\n"), ("\n", "\n# note\n"), ("}", ""), ("[", "[null, ")),
        )
    )
    return text.replace(old, new, chance.choice((1, 1, -1)))


def repeat(text: str, chance: random.Random) -> str:
    """The whole reply or its end again, as of a model in a loop."""
    tail = text[_pick(text, chance) :]
    return chance.choice(
        (text + text, f"{text}\n\n{text}", text + tail * 3, f"{text}\n\nNo wait.\n\n{text}", tail + text)
    )


def normalise(text: str, chance: random.Random) -> str:
    """Another Unicode normal form, or an accent on a letter."""
    forms: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
    changed = unicodedata.normalize(chance.choice(forms), text)
    return changed if chance.random() < 0.6 else _insert(text, chance, "\u0301")


def shuffle_lines(text: str, chance: random.Random) -> str:
    """Lines in another order, dropped or indented."""
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines)) if lines else 0
    return chance.choice(
        ("".join(lines[::-1]), "".join(lines[:at] + lines[at + 1 :]), "".join("  " + line for line in lines))
    )


def lengthen(text: str, chance: random.Random) -> str:
    """Very long: a piece over and over, deep brackets, thousands of digits, blanks or fences."""
    at = _pick(text, chance)
    piece = text[at : at + chance.randint(1, 40)] or "word "
    times = chance.choice((60, 400, 1500))
    digits = "9" * chance.choice((400, 4300, 5000))
    return chance.choice(
        (
            text + piece * times,
            piece * times + text,
            "[" * times + text + "]" * times,
            "{" * times + text,
            "(" * times + text + ")" * times,
            re.sub(r"\d+", digits, text, count=1),
            f"\\boxed{{{digits}}}",
            f"{text}\n" + "\n" * times + text,
            " " * times + text,
            "```\n" * times + text,
            "\\boxed{" * times + text,
            "<think>" * times + text,
            "<answer>" * times + text,
            "Let me think. " * 8_000 + text,
        )
    )


def restyle(text: str, chance: random.Random) -> str:
    """Laid out as a list, a heading, a table, a quotation, steps, a letter or HTML; in another language's words."""
    lines = text.splitlines() or [""]
    return chance.choice(
        (
            "\n".join(f"- {line}" for line in lines),
            "\n".join(f"{at}. {line}" for at, line in enumerate(lines, 1)),
            "\n".join(f"> {line}" for line in lines),
            f"| answer |\n|---|\n| {text} |",
            f"## Answer\n\n{text}\n\n---\n*End*",
            f"Step 1: {text}\nStep 2: {text}",
            f"<p>{text}</p>",
            f"Dear user,\n\n{text}\n\nP.S. {text}",
            f"答案是：{text}。",
            f"Réponse : {text}",
            f"Antwort: {text}",
            f"Ответ: {text}",
            f"{text}\n\n**Explanation:** because {text}.",
            f"Option {text} is correct.",
            f"{text} (not {text[::-1]})",
            "\t".join(lines),
        )
    )


def use_case_pairs(text: str, chance: random.Random) -> str:
    """Letters that are equal to others only if case is ignored, or whose case has another length."""
    pairs = (
        ("k", "\u212a"),
        ("K", "\u212a"),
        ("s", "ſ"),
        ("å", "\u212b"),
        ("ss", "ẞ"),
        ("i", "i\u0307"),
        ("I", "İ"),
        ("fi", "ﬁ"),
    )
    old, new = chance.choice(
        (*pairs, ("st", "ﬆ"), ("σ", "ς"), ("u", "µ"), ("dz", "ǆ"), ("n", "ŉ"), ("j", "ǰ"), ("o", "Ω"))
    )
    return text.replace(old, new, chance.choice((1, -1))) if old in text else _insert(text, chance, new)


def use_rare_spaces(text: str, chance: random.Random) -> str:
    """White space on which regular expressions, `strip` and `split` do not agree in every language."""
    space = chance.choice("\x1c\x1d\x1f\x0b\x0c\x85\u2000\u2007\u200a\u2028\u202f\u3164\u2800\u180e\ufeff\x00")
    return chance.choice((space + text, text + space, text.replace(" ", space), _insert(text, chance, space * 2)))


def encode(text: str, chance: random.Random) -> str:
    """The same in another notation: references, escapes, base64, percent signs, marks of Markdown and TeX."""
    at = _pick(text, chance)
    letter, rest = text[at : at + 1] or "x", text[at + 1 :]
    number = ord(letter)
    one = chance.choice(
        (
            *(
                f"&#{number};",
                f"&#x{number:x};",
                f"\\u{number:04x}",
                f"\\x{number % 256:02x}",
                f"\\N{{{number}}}",
                f"U+{number:04X}",
            ),
            *(
                f"\\{letter}",
                f"{letter}\u0336",
                f"{letter}\u20dd",
                f"\\mathbf{letter}",
                f"^{letter}",
                f"_{{{letter}}}",
                f"\\char{number}",
            ),
            *(
                f"%{number % 256:02X}",
                f"{letter}\u200d",
                f"**{letter}**",
                f"<sub>{letter}</sub>",
                f"[{letter}](x)",
                f"~~{letter}~~",
            ),
        )
    )
    whole = (
        base64.b64encode(text.encode("utf-8", "replace")).decode(),
        text.encode("utf-8", "replace").hex(),
        text[::-1],
        codecs.encode(text, "rot13"),
    )
    return chance.choice(whole) if chance.random() < 0.1 else text[:at] + one + rest


def strike(text: str, chance: random.Random) -> str:
    """Taken back and said again, or put under a condition."""
    return chance.choice(
        (
            *(
                f"~~{text}~~",
                f"{text} — no.",
                f"Not {text}",
                f"<del>{text}</del>{text}",
                f"If so, {text}; if not, nothing.",
                f"{text}?",
            ),
            *(
                f"{text}\n\nCorrection: see above.",
                f"[{text}]^1\n\n[^1]: {text}",
                f"{text}\\\\ {text}",
                f"<details>{text}</details>",
            ),
        )
    )


def insert_private(text: str, chance: random.Random) -> str:
    """Private characters, and characters that Unicode does not have."""
    return _insert(text, chance, chance.choice(("\ue000", "\uf8ff", "\uffff", "\U0010ffff", "\U000e0001", "\ufdd0")))


def blank(_text: str, chance: random.Random) -> str:
    """Nothing, or next to nothing."""
    return chance.choice(
        ("", " ", "\n", "\u200b", "\ufeff", "\u00a0", ".", "\x00", "\u3000\n", "null", "None", "{}", "[]")
    )


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(add_invisible, change_spaces, insert_break, insert_control, insert_emoji, use_lookalikes, use_wide_letters),
    *(
        use_other_digits,
        use_other_dashes,
        change_number,
        change_number,
        truncate,
        damage,
        add_prose,
        wrap,
        wrap,
        repeat,
    ),
    *(
        add_thinking,
        add_thinking,
        add_fence,
        change_case,
        escape,
        change_quotes,
        change_syntax,
        normalise,
        shuffle_lines,
        restyle,
        lengthen,
    ),
    *(use_case_pairs, use_rare_spaces, encode, strike, insert_private),
)


def mutate_text(text: str, chance: random.Random) -> str:
    """The text with some mutations; now and then a blank one."""
    if chance.random() < 0.02:
        return blank(text, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        text = chance.choice(MUTATIONS)(text, chance)
    return text
