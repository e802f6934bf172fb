"""The tree of a rollout's model calls: what continues what, why something does not, and that nothing said is lost."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gymnast.types.call_tree import CallReason, CallTree
from gymnast.types.trace import Trace, history_of

SYSTEM = "You are careful."
TEXT = st.text(max_size=12)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=2)


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed", "content": [part]}


def called(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": orjson.dumps(arguments).decode()}


def result(output: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


class Talk:
    """Calls of one rollout, written as they happen."""

    def __init__(self) -> None:
        self.trace = Trace()

    def ask(self, items: list[Any], output: list[Any] | None, *, system: str | None = SYSTEM) -> CallReason:
        """One call; without output it fails."""
        params = {"input": items, "instructions": system}
        call = self.trace.begin(params, dialect="chat", model_call_id="x", at=0.0)
        if output is None:
            self.trace.fail(call, "upstream_error", at=1.0, latency_ms=1.0, status=500, error="no")
        else:
            response = {"id": f"resp_{call.node.index}", "output": output, "model": "m", "status": "completed"}
            self.trace.finish(call, response, at=1.0, latency_ms=1.0)
        return call.node.reason

    @property
    def reasons(self) -> list[str]:
        return [call.node.reason.value for call in self.trace.calls]

    def texts(self) -> list[str]:
        return [str(item.get("output") or _text(item) or item.get("name")) for item in self.trace.main_output()]


def _text(item: dict[str, Any]) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- properties ------------------------------------------------------------------------------------------------------

TURN = st.one_of(
    st.builds(lambda text: [said(text)], TEXT),
    st.builds(lambda name, arguments: [called(name, **arguments)], st.sampled_from("fg"), ARGUMENTS),
    st.builds(lambda text, arguments: [thought(text), called("h", **arguments)], TEXT, ARGUMENTS),
)
HEARD = st.one_of(st.builds(user, TEXT), st.builds(result, TEXT))


@given(st.lists(st.tuples(st.lists(HEARD, min_size=1, max_size=3), TURN), min_size=1, max_size=8))
def test_a_conversation_that_only_grows_is_one_segment(turns: list[Any]) -> None:
    talk, history = Talk(), list[Any]()
    for heard, output in turns:
        history += heard
        talk.ask(list(history), output)
        history += output
    assert talk.reasons == ["first"] + ["extends"] * (len(turns) - 1)
    assert talk.trace.main_output() == history[len(turns[0][0]) :]


@given(st.data())
def test_every_prompt_can_be_put_together_again(data: st.DataObject) -> None:
    """Whatever a program sends: histories grown, cut, edited, mixed."""
    talk, pool, prompts = Talk(), [user("start")], list[list[Any]]()
    for _ in range(data.draw(st.integers(1, 8))):
        base = data.draw(st.sampled_from([[], *prompts]))
        cut = data.draw(st.integers(0, len(base)))
        more = data.draw(st.lists(st.one_of(st.sampled_from(pool), HEARD, TURN.map(lambda turn: turn[-1])), max_size=4))
        prompt = base[:cut] + more
        output = data.draw(st.one_of(TURN, st.none()))
        talk.ask(prompt, output, system=data.draw(st.sampled_from([None, SYSTEM, "other"])))
        prompts.append(prompt + (output or []))
        pool += more
    capture = orjson.loads(orjson.dumps(talk.trace.capture("1-0", {})))
    for index, call in enumerate(talk.trace.calls):
        indices = talk.trace.tree.prompt_of(call.node)
        assert len(indices) == call.node.length
        assert [entry.key for entry in map(talk.trace.tree.entries.__getitem__, indices)] == _keys(talk, index, prompts)
        assert history_of(capture, index) == orjson.loads(orjson.dumps(talk.trace.tree.items(indices)))


def _keys(talk: Talk, index: int, prompts: list[list[Any]]) -> list[bytes]:
    from gymnast.types.conversation import make_entries

    call = talk.trace.calls[index]
    output = [] if call.node.output is None else talk.trace.tree.entries[call.node.output].items
    prompt = prompts[index][: len(prompts[index]) - len(output)]
    first = next(iter(talk.trace.tree.prompt_of(call.node)), None)
    entry = talk.trace.tree.entries[first] if first is not None else None
    system = entry.items[0]["content"] if entry is not None and entry.role == "system" else None
    return [entry.key for entry in make_entries(prompt, system)]


def test_storage_grows_with_what_is_said_not_with_prompts() -> None:
    talk, history = Talk(), [user("begin " * 50)]
    for turn in range(200):
        output = [called("run", call_id=f"c{turn}", step=turn)]
        talk.ask(list(history), output)
        history += [*output, result(f"output {turn} " * 20, f"c{turn}")]
    size = len(orjson.dumps(talk.trace.capture("1-0", {})))
    assert size < 3 * len(orjson.dumps(history)) + 200 * 800


def test_a_system_prompt_that_changes_every_time_does_not_make_storage_quadratic() -> None:
    talk, history = Talk(), [user("begin")]
    for turn in range(100):
        output = [called("run", call_id=f"c{turn}", step=turn)]
        talk.ask(list(history), output, system=f"It is {turn} o'clock.")
        history += [*output, result(f"output {turn}", f"c{turn}")]
    assert talk.reasons[1:] == ["history_edited"] * 99
    assert sum(len(call.node.parts) for call in talk.trace.calls) < 400
    assert len(talk.trace.main_output()) == len(history) - 2


# --- reasons ---------------------------------------------------------------------------------------------------------


def test_what_clients_change_in_an_echo_is_not_an_edit() -> None:
    talk = Talk()
    talk.ask([user("hi")], [thought("hm"), said("Hello. "), called("look", call_id="a", at="x", to="y")])
    echo = [
        {"role": "assistant", "content": "Hello."},
        {"type": "function_call", "call_id": "b", "name": "look", "arguments": '{"to": "y",  "at":"x"}'},
    ]
    assert talk.ask([{"role": "user", "content": "hi"}, *echo, result("sky", "b")], [said("done")]) == "extends"


def test_a_failed_call_is_replaced_by_its_retry() -> None:
    talk = Talk()
    talk.ask([user("hi")], None)
    talk.ask([user("hi")], [called("look")])
    talk.ask([user("hi"), called("look"), result("x")], None)
    talk.ask([user("hi"), called("look"), result("x")], [said("done")])
    assert talk.reasons == ["first", "first", "extends", "extends"]
    assert talk.texts() == ["look", "x", "done"]


def test_asking_again_is_a_branch() -> None:
    talk = Talk()
    talk.ask([user("hi")], [said("one")])
    assert talk.ask([user("hi")], [said("two")]) == "branch"
    talk.ask([user("hi"), said("two"), user("more")], [said("three")])
    assert talk.ask([user("hi"), said("two"), user("else")], [said("four")]) == "branch"
    assert talk.texts() == ["two", "else", "four"]


def test_an_edited_history_is_named() -> None:
    talk = Talk()
    talk.ask([user("hi")], [called("look")])
    talk.ask([user("hi"), called("look"), result("a long output")], [called("go", "c2")])
    cut = [user("hi"), called("look"), result("[cut]"), called("go", "c2"), result("there", "c2")]
    assert talk.ask(cut, [said("done")]) == "history_edited"
    assert talk.texts() == ["look", "a long output", "go", "there", "done"]


def test_an_answer_told_in_other_words_stays_what_it_was() -> None:
    """Some programs show a model its own calls as text."""
    talk = Talk()
    talk.ask([user("hi")], [called("look")])
    talk.ask([user("hi"), said("I called look."), user("It said: a")], [called("go")])
    retold = [user("hi"), said("I called look."), user("It said: a"), said("I called go."), user("It said: b")]
    assert talk.ask(retold, [said("done")]) == "history_edited"
    assert talk.texts() == ["look", "It said: a", "go", "It said: b", "done"]


def test_thoughts_sent_back_as_text_are_not_an_edit() -> None:
    talk = Talk()
    talk.ask([user("hi")], [thought("hm"), said("Hello.")])
    told = [user("hi"), said("<think>\nhm\n</think>"), said("Hello."), user("more")]
    assert talk.ask(told, [said("done")]) == "extends"


def long_talk(talk: Talk) -> list[Any]:
    history: list[Any] = [user("the task")]
    for turn in range(4):
        output = [called("run", f"c{turn}", step=turn)]
        talk.ask(list(history), output)
        history += [*output, result(f"output {turn}", f"c{turn}")]
    return history


def test_a_summary_made_by_the_model_is_a_compaction() -> None:
    talk = Talk()
    history = long_talk(talk)
    talk.ask([*history, user("Summarize.")], [said("Steps 0 to 3 are done.")])
    begun = [user("the task. So far: Steps 0 to 3 are done.")]
    assert talk.ask(begun, [called("run", "c9", step=9)]) == "compacted"
    assert talk.ask([*begun, called("run", "c9", step=9), result("ok", "c9")], [said("finished")]) == "extends"
    assert talk.texts()[-3:] == ["run", "ok", "finished"]
    assert talk.texts()[0] == "run"
    assert "Summarize." in talk.texts()


def test_leaving_out_the_oldest_part_is_a_compaction() -> None:
    talk = Talk()
    history = long_talk(talk)
    assert talk.ask([history[0], *history[-2:]], [said("finished")]) == "compacted"
    talk = Talk()
    history = long_talk(talk)
    assert talk.ask(history[-2:], [said("finished")]) == "compacted"
    assert talk.texts()[-1] == "finished"
    assert talk.texts().count("output 3") == 1


def test_a_sub_agent_is_beside_the_main_conversation() -> None:
    talk = Talk()
    start = [user("the task")]
    delegation = called("delegate", "d", prompt="Find the capital of France.")
    talk.ask(start, [delegation])
    inner = [user("Find the capital of France.")]
    assert talk.ask(inner, [called("search", "s", q="France")], system="You search.") == "sub_agent"
    talk.ask([*inner, called("search", "s", q="France"), result("Paris", "s")], [said("Paris")], system="You search.")
    assert talk.ask([*start, delegation, result("Paris", "d")], [said("It is Paris.")]) == "extends"
    assert talk.texts() == ["delegate", "Paris", "It is Paris."]
    segments = talk.trace.capture("1-0", {})["segments"]
    assert [(found["reason"], found["main"], found["calls"]) for found in segments] == [
        ("first", True, [0, 3]),
        ("sub_agent", False, [1, 2]),
    ]


def test_a_conversation_beside_shows_itself_when_the_other_goes_on() -> None:
    talk = Talk()
    talk.ask([user("the task")], [said("I will ask around first.")])
    assert talk.ask([user("something else entirely")], [said("yes")], system="judge") == "new_conversation"
    talk.ask([user("the task"), said("I will ask around first."), user("go on")], [said("done")])
    assert talk.reasons == ["first", "sub_agent", "extends"]
    assert talk.texts()[-1] == "done"


def test_conversations_one_after_the_other_all_count() -> None:
    talk = Talk()
    talk.ask([user("make a plan")], [said("first a, then b")], system="planner")
    talk.ask([user("the plan: first a, then b")], [said("executed")], system="worker")
    talk.ask([user("anything wrong?")], [said("no")], system="critic")
    assert talk.reasons == ["first", "compacted", "new_conversation"]
    assert talk.texts() == ["first a, then b", "the plan: first a, then b", "executed", "anything wrong?", "no"]


def test_calls_at_the_same_time_do_not_share_a_segment() -> None:
    tree = CallTree()
    first = tree.begin([user("hi")])
    tree.finish(first, [said("hello")])
    grown = [user("hi"), said("hello"), user("more")]
    assert [tree.begin(grown).reason, tree.begin(grown).reason] == [CallReason.EXTENDS, CallReason.BRANCH]


def test_many_calls_are_not_a_recursion() -> None:
    talk, history = Talk(), list[Any]()
    for turn in range(350):
        history.append(user(str(turn)))
        talk.ask(list(history), [said(f"a{turn}")])
        history.append(said(f"a{turn}"))
    assert len(talk.trace.main_output()) == 699
