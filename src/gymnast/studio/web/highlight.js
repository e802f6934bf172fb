// Code with its strings, numbers, comments and keywords in colour. One linear pass, one set of words for all languages.

import { make } from "./dom.js";

const MAX_LENGTH = 40000;
const WORDS = new Set(
  (
    "and as assert async await break case catch class const continue def del do elif else enum except export extends false False final finally fn for from func function global go if impl import in int is " +
    "lambda let loop match mod mut new nil None nonlocal not null or package pass private pub public raise return self static struct super switch this throw true True try type typeof use var void while with yield " +
    "select SELECT FROM WHERE JOIN GROUP ORDER BY LIMIT INSERT UPDATE DELETE echo fi then done"
  ).split(" "),
);
const TOKEN = /(#[^\n]*|\/\/[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(\b\d[\d_.]*(?:[eE][+-]?\d+)?\b)|([A-Za-z_]\w*)/g;

export function highlight(code, language = "") {
  if (code.length > MAX_LENGTH || language === "text" || language === "diff") return [code];
  const nodes = [];
  let from = 0;
  for (const match of code.matchAll(TOKEN)) {
    const [text, comment, string, number, word] = match;
    const name = comment
      ? "comment"
      : string
        ? isKey(code, match.index + text.length)
          ? "key"
          : "string"
        : number
          ? "number-literal"
          : WORDS.has(word)
            ? "keyword"
            : null;
    if (!name) continue;
    nodes.push(code.slice(from, match.index), make("span", { class: name }, text));
    from = match.index + text.length;
  }
  nodes.push(code.slice(from));
  return nodes;
}

function isKey(code, at) {
  return /^\s{0,4}:/.test(code.slice(at, at + 6));
}
