"""Values of a row's own fields that other programs write: other types, spellings, settings, nothing. Seeded, pure."""

from __future__ import annotations

import random
from typing import Any, Final

_INSTRUCTION_TEXTS: Final = ("sun", "", "a.b", "(", "É", "the", "A", " ", "sun moon", "ß", "[x]", "\\w", "1")
_COUNTS: Final[tuple[Any, ...]] = (0, 1, 2, 3, 5, -1, 1.5, "2", None, True, 100)
_RELATIONS: Final[tuple[Any, ...]] = ("at least", "less than", "around", "exactly", "", None, "At least", "more than")
_KWARGS: Final[dict[str, tuple[Any, ...]]] = {
    "keywords": (["sun"], ["sun", "moon"], [], ["a.b"], ["("], ["É"], "sun", None, [""], ["SUN", "sun"]),
    "forbidden_words": (["sun"], ["."], [], ["é"], "the", [""], None),
    "keyword": _INSTRUCTION_TEXTS,
    "keyword1": _INSTRUCTION_TEXTS,
    "keyword2": _INSTRUCTION_TEXTS,
    "letter": ("a", "A", "é", "ab", "", "!", "1", "ß", "#", None),
    "language": ("en", "de", "xx", "zh-cn", "", None, "EN"),
    "first_word": _INSTRUCTION_TEXTS,
    "last_word": _INSTRUCTION_TEXTS,
    "end_phrase": ("The end.", "", '"The end"', " end ", "É", None),
    "postscript_marker": ("P.S.", "P.P.S", "Note", "p.s.", "", None),
    "section_spliter": ("Section", "SECTION", "", "Part (a)", None),
    "prompt_to_repeat": ("Say it.", "", " say IT. ", "a b c d e f", None),
    "phrase": ("the sun is up", "sun", "", "a b", None),
    "starter": ("So", "", None),
    "relation": _RELATIONS,
    "let_relation": _RELATIONS,
    "capital_relation": _RELATIONS,
}
"""By name; what has no entry here is a number."""
_INSTRUCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "keywords:existence": ("keywords",),
    "keywords:frequency": ("keyword", "frequency", "relation"),
    "keywords:forbidden_words": ("forbidden_words",),
    "keywords:letter_frequency": ("letter", "let_frequency", "let_relation"),
    "keywords:no_adjacent_consecutive": (),
    "keywords:word_once": ("keyword",),
    "keywords:word_count_different_numbers": ("keyword", "frequency", "relation"),
    "keywords:exclude_word_harder": ("keyword", "instruction"),
    "keywords:palindrome": (),
    "keywords:keyword_specific_position": ("keyword", "n", "m"),
    "keywords:start_end": (),
    "language:response_language": ("language",),
    "length_constraints:number_sentences": ("num_sentences", "relation"),
    "length_constraints:number_paragraphs": ("num_paragraphs",),
    "length_constraints:number_words": ("num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": ("num_paragraphs", "nth_paragraph", "first_word"),
    "detectable_content:number_placeholders": ("num_placeholders",),
    "detectable_content:postscript": ("postscript_marker",),
    "detectable_format:number_bullet_lists": ("num_bullets",),
    "detectable_format:constrained_response": (),
    "detectable_format:number_highlighted_sections": ("num_highlights",),
    "detectable_format:multiple_sections": ("section_spliter", "num_sections"),
    "detectable_format:json_format": (),
    "detectable_format:title": (),
    "detectable_format:sentence_hyphens": (),
    "detectable_format:square_brackets": (),
    "detectable_format:bigram_wrapping": (),
    "combination:two_responses": (),
    "combination:repeat_prompt": ("prompt_to_repeat",),
    "startend:end_checker": ("end_phrase",),
    "startend:quotation": (),
    "change_case:capital_word_frequency": ("capital_frequency", "capital_relation"),
    "change_case:english_capital": (),
    "change_case:english_lowercase": (),
    "punctuation:no_comma": (),
    "punctuation:punctuation_dot": (),
    "punctuation:punctuation_exclamation": (),
    "copy:repeat_phrase": ("phrase", "small_n"),
    "copy:copy": ("prompt_to_repeat",),
    "copy:copying_simple": ("prompt_to_repeat",),
    "copy:copying_multiple": ("prompt_to_repeat", "N"),
    "new:copy_span_idx": ("prompt_to_repeat", "n_start", "n_end"),
    "paragraphs:paragraphs": (),
    "paragraphs:paragraphs2": (),
    "first_word:first_word_sent": ("first_word",),
    "first_word:first_word_answer": ("first_word",),
    "last_word:last_word_sent": ("last_word",),
    "last_word:last_word_answer": ("last_word",),
    "count:lowercase_counting": ("N",),
    "letters:letter_counting": ("N", "relation"),
    "letters:letter_counting2": ("letter", "let_frequency", "let_relation"),
    "count:counting_composition": ("n_sent", "n_words"),
    "count:count_unique": (),
    "count:count_increment_word": ("keyword1", "keyword2"),
}
"""The arguments of each instruction."""
_TESTS: Final[tuple[dict[str, Any], ...]] = (
    {"inputs": ["1 2\n"], "outputs": ["3\n"]},
    {"inputs": ["1 2"], "outputs": ["3.0"]},
    {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]},
    {"inputs": ["1 2", "3 4"], "outputs": ["3"]},
    {"inputs": [""], "outputs": ["3\n\n"]},
    {"inputs": ["1 2"], "outputs": [" 3 \n"]},
    {"inputs": ["1\r\n2"], "outputs": ["3\r\n"]},
    {"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"},
    {"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "Solution.add"},
    {"inputs": ["1"], "outputs": ["1"], "fn_name": "f"},
    {"inputs": ["[1, 2]"], "outputs": ["[[1, 2]]"], "fn_name": "f"},
    {"inputs": ["true"], "outputs": ["1"], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ["true"], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ["1.0"], "fn_name": "f"},
    {"inputs": ['"1"'], "outputs": ['"1"'], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ['{"1": 1}'], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ["null"], "fn_name": "f"},
    {"inputs": ["NaN"], "outputs": ["NaN"], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ["[0, 1]"], "fn_name": "f"},
    {"inputs": ["1"], "outputs": ["1"], "fn_name": "g"},
    {"inputs": ["1\n\n2"], "outputs": ["3"], "fn_name": "add"},
    {"inputs": ["12345678901234567890"], "outputs": ["12345678901234567890"], "fn_name": "f"},
)
_DIALECTS: Final = ("Postgres ", "PG", "sqlite3", "MySQL", "mssql", "", " sqlite\n", "postgresql", "ſqlite", None)
_PATTERNS: Final[tuple[Any, ...]] = (
    *(
        r"Answer: ([A-D])",
        r"Answer: ([A-D])(x)?",
        [r"\[(.)\]", r"Answer: (.*)"],
        [],
        [""],
        "",
        None,
        "(",
        r"(?i)answer\s(.)",
    ),
    *(
        r"(?<=: )\w",
        r"(?P<a>[A-D])$",
        r"^.",
        r"(?s).*",
        r"()",
        r"\b",
        "ß",
        r"[\W_]([a-d])[\W_]",
        7,
        {"a": 1},
        ["(", "(.)"],
    ),
)
_CONSTRAINTS: Final[tuple[Any, ...]] = (
    *(
        "before 10am",
        "between 9am and 5pm",
        "between 9am and 5pm and 6pm",
        "at 10am",
        "After 9am",
        None,
        "",
        "at",
        "before",
    ),
    *(
        "after 09:00",
        "before 24:00",
        "at 10:00 ",
        "between 10am  and 11am",
        "at 12am",
        "after after 9am",
        "around 10am",
        "at noon",
    ),
)
_EXPECTED_EVENTS: Final = tuple(
    {"duration": duration, "constraint": constraint, "min_time": low, "max_time": high}
    for constraint in _CONSTRAINTS
    for duration, low, high in ((30, "9am", "5pm"), (60.0, "09:00", "17:00"), (30, "10am", "10:30am"))
)
_RUBRICS: Final[tuple[Any, ...]] = (
    *(
        [{"question": "Is it?", "pass_criteria": "YES"}],
        [{"question": "Is it?"}],
        [{"pass_criteria": "NO"}],
        [{}],
        [],
        None,
    ),
    *(
        [{"question": "a", "weight": 2}, {"question": "b", "weight": 0}],
        [{"question": "a", "weight": "2"}],
        [{"question": 7}],
    ),
    *(
        [{"question": "a", "weight": True}],
        [{"question": None}],
        [{"question": "a", "pass_criteria": None}],
        [{"question": "{context}"}],
    ),
    *(
        [{"question": "a", "pass_criteria": " no "}] * 3,
        [{"question": "a", "x": {"y": []}}],
        [{"question": "", "weight": -1}],
    ),
)
_GROUND_TRUTHS: Final[tuple[Any, ...]] = (
    *([], "", "[]", [{"name": "x", "arguments": "{}"}], [{"name": "email_send_email", "arguments": "{}"}], "done"),
    *([{"name": "email_send_email"}], [{"arguments": "{}"}], [{"name": "", "arguments": ""}], [{"a": "b"}]),
)
ROWS: Final[dict[str, tuple[tuple[str, tuple[Any, ...]], ...]]] = {
    "blackjack": (("seed", (0, 1, 7, -3, 2**40)), ("verifier_metadata", (None, {}, {"a": 1}))),
    "calendar": (
        ("exp_cal_state", tuple({"0": event} for event in _EXPECTED_EVENTS)),
        ("exp_cal_state", ({}, {"1": _EXPECTED_EVENTS[0]})),
    ),
    "code_gen": (
        ("verifier_metadata", tuple({"unit_tests": tests} for tests in _TESTS)),
        ("difficulty", ("easy", None, "")),
    ),
    "equivalence_llm_judge": (
        ("expected_answer", ("", None, "x" * 121, "{question}", "[[A=B]]", "٣", " 42 ")),
        (
            "metadata",
            (
                {"expected_answer": "42"},
                {"expected_answer": 42},
                {"expected_answer": None},
                {"expected_answer": [1]},
                {},
                None,
            ),
        ),
        (
            "template_metadata",
            tuple({"output_regex": pattern} for pattern in _PATTERNS if isinstance(pattern, str | None)),
        ),
        ("uuid", (7, "u", None)),
    ),
    "example_multi_step": (
        ("expected_synonym_values", ([1], [1, 1], [0, -1], [True], [2**70], [1.0, 2.0], ["3"])),
        ("minefield_label", ("", "1", "Warm")),
        ("minefield_label_value", (1, 0, -1, "7", 2.0)),
    ),
    "example_multi_turn_gymnasium": (
        (
            "verifier_metadata",
            tuple(
                {"follow_ups": follow_ups, "expected_answer": answer}
                for follow_ups in ([], ["a"], ["", "b"], "ab", ["a"] * 9)
                for answer in ("blue", "", "İ", "ẞ", " ", "ΣΑΣ", "K", "\u0301")
            ),
        ),
    ),
    "genrm_compare": (("principle", ("Be brief.", "", None, "{x}")),),
    "google_search": (("expected_answer", ("A", "", " A", "é", "a{b", "\\n", "it's", "😀", '"')),),
    "imo_gradingbench": (
        (
            "expected_answer",
            (" Correct ", "correct.", None, "", "İ", "Almost\n", "PARTIAL", "incorrect\u00a0", "\x1fcorrect"),
        ),
        ("grading_id", ("g", "", None)),
    ),
    "math_with_code": (
        (
            "expected_result",
            (
                "42",
                "$42$",
                r"\(42\)",
                "$",
                "$$",
                " 4  2 ",
                "nan",
                "inf",
                "1e3",
                r"\text{42}",
                r"\text{$4$}",
                "",
                "٤٢",
                "-0",
                "1e-7",
            ),
        ),
        ("expected_code_contains", ("", "print", None)),
    ),
    "math_with_judge": (
        (
            "expected_answer",
            ("", " ", "$", "$$5$$", "x=", "\\boxed{5}", "5%", "\\text{A}", "5 cm", "[1,2)", "none", "{}", "1,2"),
        ),
        ("question", ("", "{question}", "é" * 50)),
    ),
    "mcqa": (
        (
            "options",
            (
                [{"a": "red"}, {"B": "blue"}],
                [{"A": "red", "B": "red blue"}],
                [{"AB": "x"}, {"C": "y"}],
                [{"ß": "x"}, {"ǆ": "y"}],
            ),
        ),
        (
            "options",
            (
                [],
                [{}],
                None,
                [{"A": ""}, {"B": " "}],
                [{"A": None}],
                [{"أ": "x"}, {"Ａ": "y"}],
                [{"A": "İ"}, {"B": "i̇"}],
                [{"1": "x"}],
            ),
        ),
        ("expected_answer", (" b ", "b.", "ß", "", None, "(B)", "ǆ", "AB", "ı")),
        ("template_metadata", tuple({"output_regex": pattern} for pattern in _PATTERNS)),
        (
            "grading_mode",
            ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"),
        ),
    ),
    "multichallenge": (
        ("rubric", _RUBRICS),
        ("context", ("", None, "[USER]: {response}", "x\n" * 40)),
        ("uuid", (7, None, "u")),
        ("task_id", (0, "3", None)),
    ),
    "reasoning_gym": (("answer", (None, "", "15", "0", "nan")), ("question", ("", "7 + 8 =", "{}"))),
    "ruler": (
        (
            "subset",
            ("qa_1", "qa_2", "vt", "cwe", "niah_single_1", "niah_multikey_3", "qa_3", "", "length", "QA_1", "index"),
        ),
        ("outputs", (["a"], [""], ["İ"], ["ß", "SS"], ["a", "a"], ["\u212a"], ["ΣΑΣ"], ["1", "٢"], [" a"], ["a\nb"])),
        ("length", (0, -1, "4096", 4096.0, True)),
    ),
    "single_step_tool_use_with_argument_comparison": (
        (
            "expected_action",
            (
                {"type": "message", "content": ""},
                {"type": "function_call", "name": "f", "arguments": "{}"},
                {"type": "function_call", "name": "f", "arguments": '{"v": [1, 1.0, true, null, "a b"]}'},
                {"type": "function_call", "name": "f", "arguments": '{"v": {"a": {"b": "the red car"}}}'},
                {"type": "function_call", "name": "f", "arguments": "[1]"},
                {"type": "function_call", "name": "f", "arguments": "null"},
                {"type": "function_call", "name": "", "arguments": '{"v": NaN}'},
                {"type": "function_call", "name": "f", "arguments": '{"v": 1, "v": 2}'},
                {"type": "function_call", "name": "f", "arguments": '{"v": 1e999, "w": 123456789012345678901}'},
                {
                    "type": "function_call_batch",
                    "calls": [{"type": "function_call", "name": "f", "arguments": '{"v": 1}'}] * 2,
                },
                {
                    "type": "function_call_batch",
                    "calls": [
                        {"type": "function_call", "name": "f", "arguments": '{"v": "a b c"}'},
                        {"type": "function_call", "name": "f", "arguments": '{"v": "a b"}'},
                        {"type": "function_call", "name": "g", "arguments": "{}"},
                    ],
                },
            ),
        ),
    ),
    "structured_outputs": (
        ("schema_type", ("json", "yaml", "xml", "toml", "csv")),
        ("response_mode", ("text", "tool_call", None, "", "TOOL_CALL")),
        ("tool_name", ("f", "", None, "no_such_tool")),
        ("tool_payload_key", ("x", "p", "", None)),
        ("num_turns", (0, "3", None)),
        (
            "schema_str",
            ("", "{", "null", "[]", "true", "{}", "7", '{"$ref": "#"}', '{"type": "unknown"}', '{"type": 7}'),
        ),
        (
            "schema_str",
            ('{"properties": {"x": true}}', '{"properties": []}', '{"type": ["object"]}', '{"required": "x"}'),
        ),
    ),
    "swerl_gen": (("mode", ("eval", "repro-gen")),),
    "text_to_sql": (
        ("sql_dialect", _DIALECTS),
        ("sql", ("SELECT 1;", "", " ", "[[A=B]]", "{x}")),
        ("sql_context", ("", "CREATE TABLE t (a INT);", None)),
        ("uuid", (7, 7.0, None, "u", True)),
        ("metadata", ({}, None, {"a": [1]})),
    ),
    "workplace_assistant": (("ground_truth", _GROUND_TRUTHS), ("id", (0, "3", 1.0)), ("category", ("", "x"))),
}
"""Fields of rows with values, by environment."""


def change_row(environment: str, row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The row with another value of one of its fields."""
    if environment == "instruction_following" and chance.random() < 0.9:
        return {**row, **make_instructions(row, chance)}
    choices = ROWS.get(environment, ())
    if not choices:
        return row
    name, values = chance.choice(choices)
    return {**row, name: chance.choice(values)}


def make_instructions(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """One to three instructions with any arguments, where the row has its own."""
    names = chance.sample(list(_INSTRUCTIONS), chance.choice((1, 1, 2, 3)))
    kwargs: list[Any] = [
        {key: chance.choice(_KWARGS.get(key, _COUNTS)) for key in _INSTRUCTIONS[name] if chance.random() < 0.93}
        for name in names
    ]
    if chance.random() < 0.05:
        kwargs = chance.choice(([None] * len(names), kwargs[:-1], [{**one, "x": 1} for one in kwargs]))
    fields = {"instruction_id_list": names, "kwargs": kwargs, "prompt": "p"}
    fields["grading_mode"] = chance.choice(("binary", "fraction"))
    return {"verifier_metadata": fields} if "verifier_metadata" in row else dict(fields)
