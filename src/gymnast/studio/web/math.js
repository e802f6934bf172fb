// LaTeX formulas as MathML. What is not understood is shown as it was written.

import { make } from "./dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const MAX_LENGTH = 3000;
const MAX_DEPTH = 24;
const LETTERS =
  "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ ell ℓ hbar ℏ partial ∂ nabla ∇ emptyset ∅ varnothing ∅ aleph ℵ Re ℜ Im ℑ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ degree ° circ ∘ prime ′ angle ∠ triangle △ square □ blacksquare ■ checkmark ✓";
const SIGNS =
  "times × cdot ⋅ div ÷ pm ± mp ∓ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝ to → rightarrow → leftarrow ← Rightarrow ⇒ Leftarrow ⇐ implies ⟹ iff ⟺ leftrightarrow ↔ Leftrightarrow ⇔ mapsto ↦ longrightarrow ⟶ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ cup ∪ cap ∩ setminus ∖ forall ∀ exists ∃ neg ¬ lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ oplus ⊕ otimes ⊗ perp ⊥ parallel ∥ mid ∣ nmid ∤ ll ≪ gg ≫ star ⋆ ast ∗ bullet ∙ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lbrace { rbrace } vert | Vert ‖ backslash \\ colon : therefore ∴ because ∵";
const BIG = "sum ∑ prod ∏ int ∫ iint ∬ oint ∮ bigcup ⋃ bigcap ⋂ coprod ∐";
const NAMES = new Set(
  "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln lg exp lim max min sup inf det dim ker gcd lcm deg arg mod Pr hom bmod".split(
    " ",
  ),
);
const LIMITS = new Set("lim max min sup inf gcd Pr".split(" "));
const SPACES = { ",": "0.17em", ":": "0.22em", ";": "0.28em", " ": "0.25em", quad: "1em", qquad: "2em", "!": "0" };
const ACCENTS = { hat: "^", widehat: "^", bar: "¯", overline: "¯", vec: "→", tilde: "~", widetilde: "~", dot: "˙", ddot: "¨" };
const VARIANTS = { mathbb: "double-struck", mathcal: "script", mathfrak: "fraktur" };
const DOUBLE = { R: "ℝ", N: "ℕ", Z: "ℤ", Q: "ℚ", C: "ℂ", P: "ℙ", E: "𝔼", F: "𝔽" };

const table = (text) => {
  const words = text.split(" ");
  return new Map(words.flatMap((word, at) => (at % 2 ? [] : [[word, words[at + 1]]])));
};
const LETTER = table(LETTERS);
const SIGN = table(SIGNS);
const LARGE = table(BIG);

function element(name, attributes, ...children) {
  const node = document.createElementNS(MATHML, name);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function formula(text, isBlock) {
  const source = text.trim();
  const plain = () => make("code", { class: "formula" }, source);
  if (!source || source.length > MAX_LENGTH) return plain();
  try {
    const parser = new Parser(source);
    const row = parser.row(() => false, 0);
    return element("math", isBlock ? { display: "block" } : {}, element("semantics", {}, element("mrow", {}, ...row)));
  } catch {
    return plain();
  }
}

class Parser {
  constructor(text) {
    this.tokens = text.match(/\\[A-Za-z]+\*?|\\.|\s+|\d+(?:\.\d+)?|[\s\S]/gu) ?? [];
    this.at = 0;
  }

  peek() {
    while (/^\s+$/.test(this.tokens[this.at] ?? "")) this.at += 1;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    this.at += 1;
    return token;
  }

  row(ends, depth) {
    if (depth > MAX_DEPTH) throw new Error("too deep");
    const nodes = [];
    for (let token = this.peek(); token !== undefined && !ends(token); token = this.peek()) {
      const node = this.atom(depth);
      if (node) nodes.push(this.scripts(node, depth));
    }
    return nodes;
  }

  scripts(base, depth) {
    let [below, above] = [null, null];
    for (let token = this.peek(); token === "_" || token === "^" || token === "'"; token = this.peek()) {
      this.next();
      if (token === "_") below = this.argument(depth);
      else if (token === "^") above = this.argument(depth);
      else above = element("mo", {}, "′");
    }
    if (!below && !above) return base;
    const name = base.isLarge ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return element(name[2], {}, base, below, above);
    return below ? element(name[0], {}, base, below) : element(name[1], {}, base, above);
  }

  argument(depth) {
    if (this.peek() === "{") return this.group(depth);
    const token = this.peek() ?? "";
    if (/^\d\d/.test(token)) {
      this.tokens.splice(this.at, 1, token[0], token.slice(1));
    }
    return this.atom(depth + 1) ?? element("mrow", {});
  }

  group(depth) {
    this.next();
    const nodes = this.row((token) => token === "}", depth + 1);
    if (this.next() !== "}") throw new Error("no closing brace");
    return nodes.length === 1 ? nodes[0] : element("mrow", {}, ...nodes);
  }

  // The text of a group, spaces included.
  words() {
    if (this.next() !== "{") throw new Error("no group");
    let [text, open] = ["", 1];
    for (;;) {
      const token = this.tokens[this.at];
      this.at += 1;
      if (token === undefined) throw new Error("no closing brace");
      if (token === "{") open += 1;
      if (token === "}" && (open -= 1) === 0) return text;
      text += token.startsWith("\\") && token.length === 2 ? token[1] : token;
    }
  }

  atom(depth) {
    const token = this.peek();
    if (token === "{") return this.group(depth);
    this.next();
    if (token.startsWith("\\")) return this.command(token.slice(1), depth);
    if (/^\d/.test(token)) return element("mn", {}, token);
    if (/^\p{L}$/u.test(token)) return element("mi", {}, token);
    if (token === "&" || token === "~") return element("mspace", { width: "0.3em" });
    if (token === "}" || token === "^" || token === "_" || token === "$") throw new Error("unexpected sign");
    return element("mo", "()[]|".includes(token) ? { stretchy: "false" } : {}, token === "-" ? "−" : token === "*" ? "∗" : token);
  }

  command(name, depth) {
    if (LETTER.has(name)) return element("mi", {}, LETTER.get(name));
    if (SIGN.has(name)) return element("mo", {}, SIGN.get(name));
    if (LARGE.has(name)) return Object.assign(element("mo", {}, LARGE.get(name)), { isLarge: !name.endsWith("int") });
    if (NAMES.has(name)) return Object.assign(element("mi", { mathvariant: "normal" }, name), { isLarge: LIMITS.has(name) });
    if (name in SPACES) return element("mspace", { width: SPACES[name] });
    if (/^[dt]?frac$/.test(name) || name === "cfrac") return element("mfrac", {}, this.argument(depth), this.argument(depth));
    if (/^[dt]?binom$/.test(name))
      return element(
        "mrow",
        {},
        element("mo", {}, "("),
        element("mfrac", { linethickness: "0" }, this.argument(depth), this.argument(depth)),
        element("mo", {}, ")"),
      );
    if (name === "sqrt") return this.root(depth);
    if (name === "boxed" || name === "fbox") return this.boxed(depth);
    if (/^(text|textbf|textit|textrm|mbox|operatorname|mathrm|mathsf|texttt)\*?$/.test(name)) return element("mtext", {}, this.words());
    if (name in ACCENTS) return element("mover", { accent: "true" }, this.argument(depth), element("mo", {}, ACCENTS[name]));
    if (name === "underline") return element("munder", {}, this.argument(depth), element("mo", {}, "_"));
    if (name in VARIANTS) return this.variant(name);
    if (name === "mathbf" || name === "boldsymbol" || name === "bm" || name === "mathit") return this.argument(depth);
    if (name === "left" || name === "right" || /^[bB]igg?[lr]?$/.test(name)) return this.fence();
    if (name === "not") return element("mo", {}, `${SIGN.get((this.next() ?? "").slice(1)) ?? "="}\u0338`);
    if (name === "begin") return this.environment(depth);
    if (["displaystyle", "textstyle", "limits", "nolimits", "scriptstyle"].includes(name)) return null;
    if (name === "\\") return element("mspace", { linebreak: "newline" });
    if (name.length === 1) return element("mo", {}, name);
    throw new Error("unknown command");
  }

  root(depth) {
    if (this.peek() !== "[") return element("msqrt", {}, this.argument(depth));
    this.next();
    const index = element("mrow", {}, ...this.row((token) => token === "]", depth + 1));
    this.next();
    return element("mroot", {}, this.argument(depth), index);
  }

  boxed(depth) {
    const content = this.argument(depth);
    return element("mrow", { class: "boxed" }, content);
  }

  variant(name) {
    const text = this.peek() === "{" ? this.words() : this.next();
    return element("mi", { mathvariant: "normal" }, name === "mathbb" ? [...text].map((letter) => DOUBLE[letter] ?? letter).join("") : text);
  }

  fence() {
    const token = this.next() ?? "";
    if (token === ".") return element("mrow", {});
    const sign = token.startsWith("\\") ? (SIGN.get(token.slice(1)) ?? token[1]) : token;
    return element("mo", { stretchy: "true" }, sign);
  }

  environment(depth) {
    const name = this.words();
    const braces = {
      pmatrix: ["(", ")"],
      bmatrix: ["[", "]"],
      vmatrix: ["|", "|"],
      cases: ["{", ""],
      matrix: ["", ""],
      aligned: ["", ""],
      align: ["", ""],
      "align*": ["", ""],
      array: ["", ""],
      smallmatrix: ["", ""],
    }[name];
    if (!braces) throw new Error("unknown environment");
    if (name === "array") this.words();
    const rows = [[]];
    for (;;) {
      const cell = this.row((token) => token === "&" || token === "\\\\" || token === "\\end", depth + 1);
      rows.at(-1).push(element("mtd", {}, ...cell));
      const end = this.next();
      if (end === "\\\\") rows.push([]);
      else if (end === "\\end") {
        this.words();
        break;
      } else if (end === undefined) throw new Error("no end");
    }
    const body = element("mtable", {}, ...rows.filter((row) => row.length).map((row) => element("mtr", {}, ...row)));
    return element("mrow", {}, ...(braces[0] ? [element("mo", {}, braces[0])] : []), body, ...(braces[1] ? [element("mo", {}, braces[1])] : []));
  }
}
