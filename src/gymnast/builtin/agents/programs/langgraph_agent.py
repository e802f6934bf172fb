"""A ReAct agent of LangGraph: the environment's tools over MCP, the policy over Chat Completions."""

import asyncio
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


async def main() -> None:
    url = os.environ.get("GYMNAST_MCP_URL")
    headers = {"Authorization": f"Bearer {os.environ['GYMNAST_API_KEY']}"}
    servers = {"gymnast": {"transport": "streamable_http", "url": url, "headers": headers}} if url else {}
    tools = await MultiServerMCPClient(servers).get_tools()
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"], max_retries=0)
    agent = create_react_agent(model, tools)
    messages = [{"role": "user", "content": sys.stdin.read()}]
    state = await agent.ainvoke({"messages": messages}, {"recursion_limit": 10_000})
    print(state["messages"][-1].content)


asyncio.run(main())
