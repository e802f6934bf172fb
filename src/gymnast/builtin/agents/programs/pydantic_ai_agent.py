"""An agent of Pydantic AI: the environment's tools over MCP, the policy over Chat Completions."""

import os
import sys

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url = os.environ.get("GYMNAST_MCP_URL")
headers = {"Authorization": f"Bearer {os.environ['GYMNAST_API_KEY']}"}
provider = OpenAIProvider(base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = Agent(
    OpenAIChatModel(os.environ["OPENAI_MODEL"], provider=provider),
    toolsets=[MCPToolset(url, headers=headers)] if url else [],
)
result = agent.run_sync(sys.stdin.read(), usage_limits=UsageLimits(request_limit=None))
print(result.output)
