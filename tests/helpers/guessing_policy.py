"""A policy that guesses: one of the words in brackets of `… [3 3 4 - !]`; `-` is no answer, `!` an error."""

from __future__ import annotations

import re

from gymnast.builtin.responses_api_models.scripted_model.script import ScriptedCall, ScriptedReply


def answer(call: ScriptedCall) -> ScriptedReply:
    guesses = re.findall(r"\[([^]]*)\]", call.user_text)[-1].split()
    guess = call.random.choice(guesses)
    if guess == "!":
        raise RuntimeError("it refuses to guess")
    return ScriptedReply(text="I do not know." if guess == "-" else f"Answer: {guess}")
