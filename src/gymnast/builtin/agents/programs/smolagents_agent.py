"""An agent of smolagents: the environment's tools over MCP, the policy over Chat Completions.

With `--code` it is a CodeAgent, which writes Python that calls the tools; else a ToolCallingAgent.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from smolagents import CodeAgent, MCPClient, OpenAIModel, ToolCallingAgent

model = OpenAIModel(
    os.environ["OPENAI_MODEL"], api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
)
with ExitStack() as stack:
    tools = []
    if url := os.environ.get("GYMNAST_MCP_URL"):
        headers = {"Authorization": f"Bearer {os.environ['GYMNAST_API_KEY']}"}
        server = {"url": url, "headers": headers, "transport": "streamable-http"}
        tools = stack.enter_context(MCPClient(server, structured_output=False))
    kind = CodeAgent if "--code" in sys.argv else ToolCallingAgent
    answer = kind(tools=tools, model=model, max_steps=256, verbosity_level=1).run(sys.stdin.read())
    Path(os.environ["GYMNAST_ANSWER_FILE"]).write_text(str(answer))
