"""A template for SmolLM2 with tool support, which its own lacks; everything else renders the same."""

from __future__ import annotations

from typing import Final

TOOL_TEMPLATE: Final = """\
{%- set has_lead = messages[0]['role'] == 'system' %}
{%- set lead = messages[0]['content'] if has_lead else \
'You are a helpful AI assistant named SmolLM, trained by Hugging Face' %}
{{- '<|im_start|>system\\n' + lead }}
{%- if tools %}
    {{- '\\n\\nYou can call these functions:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\\n</tools>\\n\\nTo call functions, answer with a JSON list of the calls between tags, and nothing else:\\n' }}
    {{- '<tool_call>[{"name": <function-name>, "arguments": <args-json-object>}]</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in (messages[1:] if has_lead else messages) %}
    {%- if message['role'] == 'tool' %}
        {%- if loop.first or loop.previtem['role'] != 'tool' %}
            {{- '<|im_start|>user\\n' }}
        {%- endif %}
        {{- '<tool_response>\\n' + message['content'] + '\\n</tool_response>' }}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem['role'] != 'tool' else '\\n' }}
    {%- elif message['tool_calls'] %}
        {{- '<|im_start|>assistant\\n' }}
        {{- message['content'] + '\\n' if message['content'] else '' }}
        {{- '<tool_call>[' }}
        {%- for call in message['tool_calls'] %}
            {{- '{"name": ' + (call['function']['name'] | tojson) + ', "arguments": ' }}
            {{- (call['function']['arguments'] | tojson) + '}' + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- ']</tool_call><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
