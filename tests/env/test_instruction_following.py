"""instruction_following: every instruction, answers that only seem to keep them, languages, rows of all shapes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.instruction_following import english, nemo_gym_rules
from gymnast.builtin.resources_servers.instruction_following.app import (
    InstructionFollowing,
    InstructionFollowingSettings,
)
from gymnast.builtin.resources_servers.instruction_following.counting import sentences
from gymnast.builtin.resources_servers.instruction_following.languages import KNOWN, detect
from gymnast.builtin.resources_servers.instruction_following.nemo_gym_rules import RULES
from gymnast.builtin.resources_servers.instruction_following.strict_rules import (
    INSTRUCTIONS,
    check_all,
    parse_all,
    parse_arguments,
)
from tests.helpers.environments import called, check_cases, collect_examples, started, thought
from tests.helpers.jsonl import example_rows, read_jsonl

PARAGRAPHS = {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "Whale"}
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("keywords:existence", {"keywords": ["sun", "moon"]}, "Moonlight and SUNSHINE", True),
    ("keywords:existence", {"keywords": ["sun", "moon"]}, "only the sun", False),
    ("keywords:existence", {"keywords": ["c++ (new)"]}, "C++ (new) it is", True),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "at least"}, "Go, go", True),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "less than"}, "Go, go", False),
    ("keywords:frequency", {"keyword": ".", "frequency": 1, "relation": "exactly"}, "a.bc", True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "dog"]}, "a category of dogma", True),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "The CAT.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["c++"]}, "I like c++!", False),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 3, "let_relation": "at least"}, "Eel bee", True),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 3, "let_relation": "less than"}, "Eel bee", False),
    ("language:response_language", {"language": "de"}, "Das ist ein Haus und es ist sehr schön.", True),
    ("language:response_language", {"language": "de"}, "This is a house and it is very nice.", False),
    ("language:response_language", {"language": "de"}, "12345 !!", False),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, "One. Two!", True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "One. Two!", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\none\n***\ntwo\n***", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\n***\ntwo", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n\ntwo", False),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one, two: three", True),
    ("length_constraints:number_words", {"num_words": 3.0, "relation": "less than"}, "one, two: three", False),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "a\n\n'Whale, ho'\n\nb", True),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "a\n\nwhale\n\nb", True),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "a\n\nwhales\n\nb", False),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "a\n\nwhale", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[[a] ] [b\nc]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. One more thing.", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S more", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.S. more", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "* a\n  - b\n* c\n**no**", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "* a\n* b", False),
    ("detectable_format:constrained_response", {}, "Well: My answer is maybe.", True),
    ("detectable_format:constrained_response", {}, "My answer is perhaps.", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b c**", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and ** ** and * *", False),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "PART", "num_sections": 2},
        "PART 1\nx\nPART2\ny",
        True,
    ),
    ("detectable_format:multiple_sections", {"section_spliter": "PART", "num_sections": 2}, "Part 1\nx\nPART 2", False),
    ("detectable_format:json_format", {}, '```JSON\n{"a": [1, null]}\n```', True),
    ("detectable_format:json_format", {}, 'Here you are: {"a": 1}', False),
    ("detectable_format:json_format", {}, "[" * 100_000, False),
    ("detectable_format:title", {}, "<<poem of joy>>\ntext", True),
    ("detectable_format:title", {}, "<<>> << >> <poem>", False),
    ("combination:two_responses", {}, "one\n******\ntwo", True),
    ("combination:two_responses", {}, "one\n******\none", False),
    ("combination:two_responses", {}, "one\n******\n\n******\ntwo", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Do IT. "}, "do it. Done.", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Do it."}, "I will do it.", False),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So it goes. the END."', True),
    ("startend:end_checker", {"end_phrase": "The end."}, "The end. Or not?", False),
    ("startend:quotation", {}, ' "all of it" ', True),
    ("startend:quotation", {}, '"', False),
    ("startend:quotation", {}, "“all of it”", False),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "at least"},
        "NASA, I am **LOUD**.",
        True,
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "less than"},
        "NASA! Esa. 42",
        True,
    ),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "more than"}, "OH no", False),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "DON'T", True),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "I'm I", True),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "at least"},
        "YES,NO 1,A",
        True,
    ),
    ("change_case:english_capital", {}, "THE CAT IS ON THE MAT.", True),
    ("change_case:english_capital", {}, "YES.", True),
    ("change_case:english_capital", {}, "DER HUND IST IM GARTEN.", False),
    ("change_case:english_capital", {}, "THE CAT is ON THE MAT.", False),
    ("change_case:english_lowercase", {}, "the cat is on the mat.", True),
    ("change_case:english_lowercase", {}, "le chat est sur la table.", False),
    ("change_case:english_lowercase", {}, "42", False),
    ("punctuation:no_comma", {}, "no commas here; none", True),
    ("punctuation:no_comma", {}, "well, one", False),
]


@pytest.mark.parametrize(("name", "kwargs", "text", "followed"), CASES)
def test_instructions(name: str, kwargs: dict[str, Any], text: str, followed: Literal[True, False]) -> None:
    assert check_all(text, [name], [parse_arguments(name, {**kwargs, "other": None})]) == [followed]


def test_every_instruction_is_tested_both_ways_and_not_kept_by_silence() -> None:
    for outcome in (True, False):
        assert len({case[0] for case in CASES if case[3] is outcome}) == 25
    for name, kwargs, _, _ in CASES:
        assert check_all(" \n", [name], [parse_arguments(name, kwargs)]) == [False]
    assert set(INSTRUCTIONS) == set(RULES)
    assert len(RULES) == 54


def test_every_instruction_has_scoring_cases_both_ways() -> None:
    seen = {
        (name, followed)
        for case in read_jsonl(Path(__file__).parent / "scoring_cases" / "instruction_following.jsonl")
        for name, followed in zip(
            case["row"].get("verifier_metadata", case["row"])["instruction_id_list"],
            case["nemo_gym"]["follow_instruction_list"],
            strict=False,
        )
    }
    assert {(name, followed) for name in RULES for followed in (True, False)} - seen == set()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("No mark at all", 1),
        ("One. Two! Three?! Four... and a rest", 5),
        ("Mr. Smith met Dr. J. R. Jones at 3.30 p.m. in the U.S. embassy. He left.", 2),
        ("It was at 9 p.m. Then we left.", 2),
        ("1. Buy milk.\n2. Drink it.", 2),
        ('"Stop!" he said. (Really.) *Yes.*', 4),
        ("So am I. You too.", 2),
        ("今日は晴れです。明日は雨です。", 2),
        ("यह एक है। यह दो है।", 2),
        (". . . !", 0),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert sentences(text) == count


LANGUAGES = {
    "en": "Cats sleep most of the day, and they love warm places.",
    "es": "Me gusta mucho leer libros cuando llueve en la ciudad.",
    "pt": "Gosto muito de ler livros quando está a chover na cidade.",
    "ar": "أحب قراءة الكتب عندما تمطر في المدينة.",
    "hi": "जब शहर में बारिश होती है तो मुझे किताबें पढ़ना पसंद है।",
    "fr": "J'aime beaucoup lire des livres quand il pleut en ville.",
    "ru": "Я очень люблю читать книги, когда в городе идёт дождь.",
    "de": "Ich lese sehr gerne Bücher, wenn es in der Stadt regnet.",
    "ja": "街に雨が降るとき、本を読むのが大好きです。",
    "it": "Mi piace molto leggere libri quando piove in città.",
    "bn": "কুকুরটি প্রতিদিন সকালে তার মালিকের সাথে পার্কে দৌড়ায়।",
    "uk": "Я дуже люблю читати книги, коли в місті йде дощ.",
    "th": "สุนัขวิ่งในสวนสาธารณะทุกเช้ากับเจ้าของ",
    "ur": "جب شہر میں بارش ہوتی ہے تو مجھے کتابیں پڑھنا پسند ہے۔",
    "ta": "நாய் தினமும் காலையில் தன் உரிமையாளருடன் பூங்காவில் ஓடுகிறது.",
    "te": "కుక్క ప్రతి ఉదయం తన యజమానితో పార్కులో పరుగెత్తుతుంది.",
    "bg": "Аз много обичам да чета книги, когато в града вали дъжд.",
    "ko": "도시에 비가 올 때 책 읽는 것을 좋아합니다.",
    "pl": "Bardzo lubię czytać książki, kiedy w mieście pada deszcz.",
    "he": "הכלב רץ בפארק כל בוקר עם בעליו.",
    "fa": "من خواندن کتاب را وقتی در شهر باران می‌بارد دوست دارم.",
    "vi": "Tôi rất thích đọc sách khi trời mưa ở thành phố.",
    "ne": "सहरमा पानी पर्दा मलाई किताब पढ्न धेरै मन पर्छ, यो राम्रो छ।",
    "sw": "Ninapenda sana kusoma vitabu wakati mvua inanyesha mjini.",
    "kn": "ನಾಯಿ ಪ್ರತಿದಿನ ಬೆಳಿಗ್ಗೆ ತನ್ನ ಮಾಲೀಕನೊಂದಿಗೆ ಉದ್ಯಾನದಲ್ಲಿ ಓಡುತ್ತದೆ.",
    "mr": "शहरात पाऊस पडतो तेव्हा मला पुस्तके वाचायला खूप आवडते आणि ते छान आहे.",
    "gu": "કૂતરો દરરોજ સવારે તેના માલિક સાથે બગીચામાં દોડે છે.",
    "pa": "ਕੁੱਤਾ ਹਰ ਸਵੇਰ ਆਪਣੇ ਮਾਲਕ ਨਾਲ ਪਾਰਕ ਵਿੱਚ ਦੌੜਦਾ ਹੈ।",
    "ml": "നായ എല്ലാ ദിവസവും രാവിലെ ഉടമയോടൊപ്പം പാർക്കിൽ ഓടുന്നു.",
    "fi": "Koira juoksee puistossa joka aamu omistajansa kanssa.",
    "nl": "Ik lees graag boeken als het in de stad regent, maar niet te lang.",
    "zh": "狗每天早上和主人一起在公园里跑步。",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages(language: str) -> None:
    text = LANGUAGES[language]
    assert detect(text) == detect(text.upper()) == detect(f"{text} {text} (see OpenAI, 2024)") == language


def test_what_gives_no_sign_is_in_no_language() -> None:
    assert detect("") is detect("123 …") is detect("xyzzy plugh") is None
    assert detect("xyzzy plugh", default="en") == "en"
    assert set(LANGUAGES) <= KNOWN


ARGUMENTS: dict[str, Any] = {
    **{name: value for _, kwargs, _, _ in CASES for name, value in kwargs.items()},
    "N": 2,
    "n": 1,
    "m": 2,
    "n_start": 1,
    "n_end": 4,
    "n_sent": 2,
    "n_words": 3,
    "small_n": 2,
    "phrase": "a b c",
    "keyword1": "sun",
    "keyword2": "moon",
    "last_word": "end",
    "prompt_to_repeat": "Say it.",
}


@given(st.text(max_size=200))
def test_any_text_can_be_checked(text: str) -> None:
    names = list(INSTRUCTIONS)
    arguments = [parse_arguments(name, ARGUMENTS) for name in names]
    assert len(check_all(text, names, arguments)) == len(nemo_gym_rules.check_all(text, names, arguments)) == 54


def test_an_argument_that_is_left_out_is_drawn_and_the_same_each_time() -> None:
    for name in RULES:
        outcomes = {tuple(nemo_gym_rules.check_all("The cat, the sun.", [name], [None])) for _ in range(5)}
        assert len(outcomes) == 1, name


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("No mark at all", ["No mark at all"]),
        ("Mr. Smith has a Ph.D. in art. He left!", ["Mr. Smith has a Ph.D. in art.", "He left!"]),
        ('See a.com or 3.5 of it. "Stop!" he said', ["See a.com or 3.5 of it.", '"Stop"!', "he said"]),
        ("Acme Inc. He works there... since May", ["Acme Inc", "He works there...", "since May"]),
        ("In the U.S. We live. At 9 p.m. it rains.", ["In the U.S.", "We live.", "At 9 p.m. it rains."]),
    ],
)
def test_sentences_by_rules_for_english(text: str, sentences: list[str]) -> None:
    assert english.split_sentences(text) == sentences


def test_the_packages_decide_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class UndecidedError(Exception):
        pass

    def detect(text: str) -> str:
        if text == "?":
            raise UndecidedError
        return "fr"

    punkt = SimpleNamespace(tokenize=str.split)
    package = SimpleNamespace(detect=detect, LangDetectException=UndecidedError)
    monkeypatch.setattr(english, "_punkt", lambda: punkt)
    monkeypatch.setattr(english, "_langdetect", lambda: package)
    assert english.count_sentences("a b c") == 3
    assert (english.is_language("oui", "fr"), english.is_language("oui", "de"), english.is_language("?", "de")) == (
        True,
        False,
        True,
    )
    assert english.missing_packages() == []
    monkeypatch.setattr(english, "_punkt", lambda: None)
    monkeypatch.setattr(english, "_langdetect", lambda: None)
    assert english.missing_packages() == ["langdetect", "nltk with its data 'punkt_tab'"]
    assert english.tokenize_words("Well-known: 3.5 km, isn't it?") == [
        "Well-known",
        ":",
        "3.5",
        "km",
        ",",
        "isn't",
        "it",
        "?",
    ]


async def test_verifier_cases() -> None:
    async with started(InstructionFollowing, InstructionFollowingSettings()) as subject:
        await check_cases(subject, "instruction_following")


async def test_unknown_instructions_are_named_with_those_that_are_known() -> None:
    row = {**example_rows("instruction_following")[4], "instruction_id_list": ["keywords:exists"]}
    async with started(InstructionFollowing, InstructionFollowingSettings(scoring="strict")) as subject:
        for path in ("/seed_session", "/verify"):
            told = await subject.refusal(row, path)
            assert "unknown instruction 'keywords:exists'; known: keywords:existence, " in told


@pytest.mark.parametrize(
    ("name", "kwargs", "told"),
    [
        ("length_constraints:number_words", None, "needs 'num_words'"),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": "at least"}, "expected an integer"),
        ("length_constraints:number_words", {"num_words": float("1e400"), "relation": "at least"}, "num_words"),
        ("length_constraints:number_words", {"num_words": 2, "relation": "about"}, "expected one of less than"),
        ("language:response_language", {"language": "tlh"}, "unsupported language"),
        (
            "keywords:letter_frequency",
            {"letter": "ab", "let_frequency": 1, "let_relation": "at least"},
            "expected a single character",
        ),
        ("keywords:existence", {"keywords": []}, "expected a list of strings"),
    ],
)
def test_arguments_that_do_not_fit_are_named(name: str, kwargs: dict[str, Any] | None, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        parse_arguments(name, kwargs)
    assert name in str(raised.value)


def test_a_row_needs_as_many_kwargs_as_instructions() -> None:
    with pytest.raises(ValueError, match="2 instructions have 1 kwargs"):
        parse_all(["punctuation:no_comma", "punctuation:no_comma"], [{}])
    with pytest.raises(ValueError, match="empty"):
        parse_all([], [])
    with pytest.raises(ValueError, match="not an object"):
        parse_all(["punctuation:no_comma"], ["x"])


@pytest.mark.parametrize(
    "change",
    [{"instruction_id_list": None}, {"instruction_id_list": 7}, {"kwargs": 7}, {"grading_mode": "half"}],
)
async def test_rows_that_cannot_be_read_are_refused(change: dict[str, Any]) -> None:
    row = {**example_rows("instruction_following")[4], **change}
    async with started(InstructionFollowing, InstructionFollowingSettings()) as subject:
        assert next(iter(change)) in await subject.refusal(row)


@pytest.mark.parametrize(
    ("change", "followed"),
    [({"instruction_id_list": "a"}, [False]), ({"kwargs": {}}, []), ({"kwargs": {"a": 1}}, [False])],
)
async def test_rows_with_a_text_or_an_object_for_a_list_are_scored_as_there(change: Any, followed: list[bool]) -> None:
    row = {**example_rows("instruction_following")[4], "verifier_metadata": {}, **change}
    async with started(InstructionFollowing, InstructionFollowingSettings()) as subject:
        assert (await subject.verify(row, "yes"))["follow_instruction_list"] == followed


async def test_a_long_answer_is_checked_elsewhere_and_only_the_last_item_counts() -> None:
    row = example_rows("instruction_following")[0]
    good = "[a] [b] [c]"
    async with started(InstructionFollowing, InstructionFollowingSettings()) as subject:
        assert (await subject.verify(row, good + " word" * 200_000))["reward"] == 1.0
        assert (await subject.verify(row, "[" * 1_000_000))["follow_instruction_list"] == [True, False]
        assert (await subject.verify(row, "well, no", thought(""), good))["reward"] == 1.0
        assert (await subject.verify(row, good, called("x", {})))["reward"] == 0.0
        bare = {"id": 1, "verifier_metadata": {"instruction_id_list": ["punctuation:no_comma"]}}
        row = {**bare, "responses_create_params": row["responses_create_params"]}
        assert (await subject.verify(row, "a, b"))["follow_instruction_list"] == [False]


@pytest.mark.parametrize(
    "text", ["\n" * 200_000, "<<" * 100_000, "*" * 200_000, "[" * 200_000, "- " * 100_000, "p." * 100_000]
)
def test_no_text_takes_long(text: str) -> None:
    names = ["number_bullet_lists", "title", "number_highlighted_sections", "multiple_sections", "json_format"]
    ids = [*(f"detectable_format:{name}" for name in names), "detectable_content:postscript", "paragraphs:paragraphs"]
    assert len(nemo_gym_rules.check_all(text, ids, [None] * len(ids))) == len(ids)


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = [
        "Dear [name] water the [plant] on [day].",
        "light light light",
        "Die Blätter sind bunt und es ist kühl. Das war schön.",
        "<<rules>>\n* a\n* b\n* c\n* d",
        "Portugal!",
    ]
    records = await collect_examples(tmp_path, "instruction_following", replies)
    assert [record["reward"] for record in records] == [1.0, 0.5, 1.0, 1.0, 0.0]
    assert records[1]["follow_instruction_list"] == [False, True]
    assert records[4]["verifier_metadata"]["instruction_id_list"] == ["detectable_format:json_format"]
