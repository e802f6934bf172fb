"""Mathematical answers: an expression as a row expects it, and an equal or a slightly wrong one of a model."""

from __future__ import annotations

import random
from typing import Any, Final

Tree = tuple[Any, ...]
"""The kind of an expression, and its parts: trees, or text."""
_NAMES: Final = ("x", "y", "n", "a", "\\pi", "e", "\\theta", "\\alpha", "i")
_FUNCTIONS: Final = ("\\sin", "\\cos", "\\log", "\\ln", "\\tan", "\\arctan")
_UNITS: Final = ("\\text{ cm}", "\\%", "^\\circ", "\\text{ units}", " cm^2", "\\,\\text{m/s}", "\\$", " dollars", "°")
_TIMES: Final = ("\\cdot ", "\\times ", " ", "*", "×", "·")
_RELATIONS: Final = ("=", "<", "\\leq ", "\\ge ", "\\neq ", "≤", "\\in ", ":=")
_FRAMES: Final = (
    *("\\boxed{{{0}}}", "$\\boxed{{{0}}}$", "So the answer is \\boxed{{{0}}}.", "${0}$", "The answer is ${0}$.", "{0}"),
    *(
        "\\[ x = {0} \\]",
        "\\boxed{{x = {0}}}",
        "Therefore, the final answer is: $\\boxed{{{0}}}$. I hope it is correct.",
    ),
    *("\\begin{{align*}} x &= {1} \\\\ &= \\boxed{{{0}}} \\end{{align*}}", "First ${1}$, then \\boxed{{{0}}}"),
    *(
        "\\boxed{{{1}}}, no: \\boxed{{{0}}}",
        "\\boxed{{{0}}} and \\boxed{{{1}}}",
        "\\boxed{{\\text{{{0}}}}}",
        "answer: {0}",
    ),
    *("$$\\boxed{{\n{0}\n}}$$", "\\boxed{{ {0} }}", "\\boxed{{{0}.}}", "**{0}**", "# Answer\n\n$${0}$$", "\\({0}\\)"),
    *("\\boxed{{({0})}}", "\\boxed{{\\left\\{{{0}\\right\\}}}}", "$x={1}$ or $x={0}$", "`{0}`", "\\fbox{{{0}}}"),
    *(
        "\\boxed{{{0}}}\\boxed{{{1}}}",
        "Final answer: ${0}",
        "\\boxed{{\\begin{{array}}{{l}}{0}\\end{{array}}}}",
        "\\boxed {{{0}}}",
    ),
    *(
        "\\boxed{{\\text{{The answer is }} {0}}}",
        "x \\in \\boxed{{{0}}}",
        "\\boxed{{{0}\\text{{ and }}{1}}}",
        "$\\boxed{{{0}}}$ or ${1}$",
    ),
    *(
        "答案：$\\boxed{{{0}}}$。",
        "\\boxed{{\\mathbf{{{0}}}}}",
        "\\boxed{{\\left.{0}\\right|}}",
        "$\\boxed{{{0}$",
        "\\boxed{{\\$ {0}}}",
    ),
    *("\\boxed{{{0} \\text{{ or }} {1}}}", "\\boxed{{{0}, {1}}}", "\\boxed{{{0}}}$", "\\boxed{{{0}}}\n\\boxed{{}}"),
)


def make_answers(chance: random.Random) -> tuple[str, str]:
    """An expected answer and a reply to it, right or nearly."""
    tree = _grow(chance, 2)
    other = tree if chance.random() < 0.6 else _rewrite(tree, chance)
    wrong = _grow(chance, 1)
    expected = _write(tree, chance)
    if chance.random() < 0.15:
        expected = chance.choice(("${0}$", "\\({0}\\)", "$${0}$$", "x = {0}", "{0}.", " {0} ")).format(expected)
    return expected, chance.choice(_FRAMES).format(_write(other, chance), _write(wrong, chance))


def _grow(chance: random.Random, depth: int) -> Tree:
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        return _grow_leaf(chance)
    parts = [_grow(chance, depth - 1) for _ in range(chance.randint(2, 3))]
    kinds = ("sum", "product", "fraction", "power", "root", "call", "set", "tuple", "interval", "union", "equation")
    rare = (
        "text",
        "sum_over",
        "complex",
        "vector",
        "ratio",
        "chain",
        "scientific",
        "empty",
        "date",
        "function",
        "subscript",
    )
    odd = (
        *rare,
        "matrix",
        "unit",
        "mixed",
        "choose",
        "absolute",
        "plus_minus",
        "negative",
        "repeating",
        "base",
        "factorial",
    )
    return (chance.choice((*kinds, *kinds, *odd)), *parts)


def _grow_leaf(chance: random.Random) -> Tree:
    whole = chance.choice((0, 1, 2, 3, 5, 7, 10, 12, 100, 1000, 12345, 10**9 + 7))
    return chance.choice(
        (
            ("number", str(chance.choice((whole, -whole)))),
            ("number", str(whole)),
            ("number", f"{whole}.{chance.randint(0, 999)}"),
            ("name", chance.choice(_NAMES)),
            ("quotient", str(whole), str(chance.randint(1, 12))),
        )
    )


def _rewrite(tree: Tree, chance: random.Random) -> Tree:
    """An expression that is equal, or differs in one place."""
    kind, parts = tree[0], tree[1:]
    if kind == "number":
        value = parts[0]
        forms = (value, value + ".0", value + "0", "-" + value, f"{float(value):e}", value.lstrip("-"))
        return ("number", chance.choice(forms))
    if kind == "quotient":
        top, bottom = map(int, parts)
        decimal = f"{top / bottom:.{chance.choice((1, 2, 4, 12))}f}".rstrip("0")
        return chance.choice((("number", decimal), ("quotient", str(top * 2), str(bottom * 2)), ("unit", tree)))
    if kind == "name":
        return ("name", chance.choice(_NAMES))
    at = chance.randrange(len(parts))
    changed = (*parts[:at], _rewrite(parts[at], chance), *parts[at + 1 :])
    return chance.choice(
        ((kind, *changed), (kind, *reversed(parts)), ("negative", tree), ("sum", tree, ("number", "0")))
    )


def _write(tree: Tree, chance: random.Random) -> str:
    kind = tree[0]
    if kind == "number":
        return _write_number(tree[1], chance)
    if kind == "name":
        return str(tree[1])
    parts = [str(part) if isinstance(part, str) else _write(part, chance) for part in tree[1:]]
    first, last = parts[0], parts[-1]
    forms = {
        "sum": ("+".join(parts), " + ".join(parts), "-".join(parts)),
        "product": (chance.choice(_TIMES).join(parts), "".join(f"({part})" for part in parts)),
        "fraction": _fractions(first, last),
        "quotient": _fractions(first, last),
        "power": (f"{{{first}}}^{{{last}}}", f"({first})^{{{last}}}", f"{first}^{last}", f"{first}**{last}"),
        "root": (f"\\sqrt{{{first}}}", f"\\sqrt[3]{{{first}}}", f"\\sqrt {first}", f"√{first}", f"sqrt({first})"),
        "call": (f"{chance.choice(_FUNCTIONS)}({first})", f"{chance.choice(_FUNCTIONS)}{{{first}}}", f"f({first})"),
        "set": (f"\\{{{', '.join(parts)}\\}}", f"\\left\\{{{','.join(parts)}\\right\\}}", ", ".join(parts)),
        "tuple": (f"({', '.join(parts)})", f"\\left({','.join(parts)}\\right)", f"({first}; {last})"),
        "interval": (f"[{first}, {last}]", f"({first},{last}]", f"\\left[{first},\\infty\\right)", f"[{first},{last})"),
        "union": (f"({first},{last})\\cup({last},\\infty)", f"(-\\infty, {first}) \\cup [{last}, \\infty)"),
        "equation": (f"x{chance.choice(_RELATIONS)}{first}", f"{first}{chance.choice(_RELATIONS)}{last}"),
        "matrix": (
            f"\\begin{{pmatrix}} {first} & {last} \\\\ {last} & {first} \\end{{pmatrix}}",
            f"\\begin{{bmatrix}}{first}\\\\{last}\\end{{bmatrix}}",
        ),
        "unit": (first + chance.choice(_UNITS), chance.choice(_UNITS) + first),
        "mixed": (f"3\\frac{{{first}}}{{{last}}}", f"2 {first}/{last}"),
        "choose": (f"\\binom{{{first}}}{{{last}}}", f"{{{first} \\choose {last}}}"),
        "absolute": (f"|{first}|", f"\\left|{first}\\right|", f"\\lfloor {first} \\rfloor"),
        "plus_minus": (f"{first} \\pm {last}", f"\\pm {first}", f"{first}±{last}"),
        "negative": (f"-{first}", f"-({first})", f"−{first}", f"\\minus {first}"),
        "repeating": (f"0.\\overline{{{first}}}", f"0.{first}\\ldots", f"{first}..."),
        "base": (f"{first}_{{{last}}}", f"{first}_2", f"({first})_{{10}}"),
        "text": (
            f"\\text{{{first}}}",
            f"\\mathrm{{{first}}}",
            "\\text{yes}",
            "True",
            f"\\text{{{first} apples}}",
            "(A)",
        ),
        "sum_over": (
            f"\\sum_{{k=1}}^{{3}} {first}",
            f"\\int_0^1 {first} dx",
            f"\\lim_{{x\\to 0}} {first}",
            f"\\prod_{{k=1}}^2 {first}",
        ),
        "complex": (
            f"{first}+{last}i",
            f"{first} - {last} i",
            f"i{first}",
            f"{first}+i",
            f"{first}e^{{i\\pi}}",
            f"\\overline{{{first}}}",
        ),
        "vector": (
            f"\\langle {first}, {last}\\rangle",
            f"\\vec{{{first}}}",
            f"{first}\\mathbf{{i}}+{last}\\mathbf{{j}}",
            f"\\hat{{{first}}}",
        ),
        "ratio": (
            f"{first}:{last}",
            f"{first} : {last}",
            f"{first} \\text{{ to }} {last}",
            f"{first}\\colon {last}",
            f"{first}/{last}/1",
        ),
        "chain": (
            f"{first}<x<{last}",
            f"{first} \\le x \\leq {last}",
            f"x<{first} \\text{{ or }} x>{last}",
            f"x\\ne {first},{last}",
        ),
        "scientific": (
            f"{first}\\times 10^{{-3}}",
            f"{first}e5",
            f"{first}E-2",
            f"{first} * 10**2",
            f"10^{{{first}}}",
            f"{first}·10⁵",
        ),
        "empty": (
            "\\emptyset",
            "\\varnothing",
            "\\{\\}",
            "\\mathbb{R}",
            "\\infty",
            "-\\infty",
            "\\text{none}",
            "\\mathbb{Z}^+",
        ),
        "date": (
            f"{first}^\\text{{th}}",
            "12:30",
            "May 5",
            "5/12/2024",
            f"{first}\\text{{ p.m.}}",
            f"\\${first}.50",
            f"£{first}",
            f"{first}€",
        ),
        "function": (
            f"f(x)={first}",
            f"y = {first}x + {last}",
            f"f^{{-1}}({first})",
            f"\\log_{{{first}}} {last}",
            f"f'({first})",
            f"x \\mapsto {first}",
        ),
        "subscript": (
            f"a_{{{first}}}",
            f"x_1={first}, x_2={last}",
            f"{first}_{last}",
            f"a_n = {first}",
            f"x_{{1,2}} = {first}",
        ),
        "factorial": (f"{first}!", f"{first} \\bmod {last}", f"\\gcd({first}, {last})"),
    }
    return chance.choice(forms[kind])


def _fractions(top: str, bottom: str) -> tuple[str, ...]:
    short = f"\\frac{top[:1]}{bottom[:1]}"
    return (*(f"\\{name}{{{top}}}{{{bottom}}}" for name in ("frac", "dfrac", "tfrac")), f"{top}/{bottom}", short)


def _write_number(value: str, chance: random.Random) -> str:
    whole = value.lstrip("-").replace(",", "")
    forms = [value] * 4
    if whole.isdigit():
        grouped = f"{int(whole):,}"
        forms += [grouped, grouped.replace(",", "{,}"), grouped.replace(",", "\\,"), grouped.replace(",", " ")]
        forms += [f"{value}.", f"{{{value}}}", f"\\text{{{value}}}", f"{value} \\times 10^{{2}}", f"{value}\\cdot10^3"]
    return chance.choice(forms)
