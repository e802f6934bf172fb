"""For authors of environments, agents and models: everything they import from Gymnast.

Names are loaded when first used, so that importing this package is cheap. The built-in servers import nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gymnast.config.environ import child_environ as child_environ
    from gymnast.config.environ import inherited_environ as inherited_environ
    from gymnast.config.instances import ServerKind as ServerKind
    from gymnast.config.server_settings import ModelRef as ModelRef
    from gymnast.config.server_settings import ResourcesRef as ResourcesRef
    from gymnast.config.server_settings import Settings as Settings
    from gymnast.endpoints.gateway import KEY_HEADER as KEY_HEADER
    from gymnast.endpoints.gateway import Gateway as Gateway
    from gymnast.endpoints.gateway import RolloutAddress as RolloutAddress
    from gymnast.endpoints.ledgers import TokenLedgers as TokenLedgers
    from gymnast.endpoints.model_server import Model as Model
    from gymnast.endpoints.model_server import ModelCall as ModelCall
    from gymnast.endpoints.model_server import add_overflow as add_overflow
    from gymnast.endpoints.model_server import new_id as new_id
    from gymnast.endpoints.model_server import unix_time as unix_time
    from gymnast.endpoints.rollout_endpoint import RolloutEndpoint as RolloutEndpoint
    from gymnast.endpoints.rollout_endpoint_rules import EndpointTargets as EndpointTargets
    from gymnast.endpoints.rollout_endpoint_rules import RolloutLimits as RolloutLimits
    from gymnast.endpoints.token_path import TokenOptions as TokenOptions
    from gymnast.endpoints.token_path import TokenPath as TokenPath
    from gymnast.endpoints.token_path import attach_tokens as attach_tokens
    from gymnast.endpoints.token_path import make_rejection as make_rejection
    from gymnast.endpoints.upstream import EndpointSettings as EndpointSettings
    from gymnast.endpoints.upstream import Upstream as Upstream
    from gymnast.endpoints.usage import ModelSettings as ModelSettings
    from gymnast.endpoints.usage import Prices as Prices
    from gymnast.errors import CallError as CallError
    from gymnast.errors import DataError as DataError
    from gymnast.errors import JudgeError as JudgeError
    from gymnast.errors import NotFoundError as NotFoundError
    from gymnast.errors import StartError as StartError
    from gymnast.errors import UserError as UserError
    from gymnast.errors import suggest as suggest
    from gymnast.kit.agent import Agent as Agent
    from gymnast.kit.agent import AgentSettings as AgentSettings
    from gymnast.kit.agent import input_items as input_items
    from gymnast.kit.attempt import Attempt as Attempt
    from gymnast.kit.attempt import Task as Task
    from gymnast.kit.attempt import ToolCall as ToolCall
    from gymnast.kit.attempt import Verdict as Verdict
    from gymnast.kit.attempt import parse_arguments as parse_arguments
    from gymnast.kit.custom_metrics import Collector as Collector
    from gymnast.kit.custom_metrics import CustomMetrics as CustomMetrics
    from gymnast.kit.custom_metrics import GroupField as GroupField
    from gymnast.kit.custom_metrics import MeanRewards as MeanRewards
    from gymnast.kit.custom_metrics import PassMajority as PassMajority
    from gymnast.kit.environment import Environment as Environment
    from gymnast.kit.extract import last_boxed as last_boxed
    from gymnast.kit.extract import unwrap_text as unwrap_text
    from gymnast.kit.judge import Judge as Judge
    from gymnast.kit.judge import JudgedSettings as JudgedSettings
    from gymnast.kit.judge import JudgeLimits as JudgeLimits
    from gymnast.kit.judge import JudgeModel as JudgeModel
    from gymnast.kit.judging import MAX_SHOWN_CHARS as MAX_SHOWN_CHARS
    from gymnast.kit.judging import JudgeEvaluation as JudgeEvaluation
    from gymnast.kit.judging import Labels as Labels
    from gymnast.kit.judging import Opinion as Opinion
    from gymnast.kit.judging import Template as Template
    from gymnast.kit.judging import load_template as load_template
    from gymnast.kit.judging import truncate_start as truncate_start
    from gymnast.kit.offered_tools import OfferTools as OfferTools
    from gymnast.kit.offered_tools import list_tools as list_tools
    from gymnast.kit.packages import require_package as require_package
    from gymnast.kit.pass_majority import highest_k as highest_k
    from gymnast.kit.precompiled import precompile as precompile
    from gymnast.kit.process_pool import CpuTimeExceededError as CpuTimeExceededError
    from gymnast.kit.process_pool import ProcessPool as ProcessPool
    from gymnast.kit.process_pool import WorkerCrashedError as WorkerCrashedError
    from gymnast.kit.process_pool import WorkerError as WorkerError
    from gymnast.kit.process_pool import WorkerTimeoutError as WorkerTimeoutError
    from gymnast.kit.sandboxed_environment import SandboxedEnvironment as SandboxedEnvironment
    from gymnast.kit.sandboxed_environment import SandboxedSettings as SandboxedSettings
    from gymnast.kit.scoring import Scoring as Scoring
    from gymnast.kit.scoring import ScoringSettings as ScoringSettings
    from gymnast.kit.step_environment import Step as Step
    from gymnast.kit.step_environment import StepEnvironment as StepEnvironment
    from gymnast.kit.step_environment import ToolOutput as ToolOutput
    from gymnast.kit.task_server import EnvironmentSettings as EnvironmentSettings
    from gymnast.kit.tools import Tool as Tool
    from gymnast.kit.tools import ToolError as ToolError
    from gymnast.kit.tools import collect_tools as collect_tools
    from gymnast.kit.tools import tool as tool
    from gymnast.kit.verify_call import request_verdict as request_verdict
    from gymnast.runtime.command import CommandResult as CommandResult
    from gymnast.runtime.command import CommandRunner as CommandRunner
    from gymnast.runtime.command import CommandSpec as CommandSpec
    from gymnast.runtime.command import run_locally as run_locally
    from gymnast.runtime.listener import Listener as Listener
    from gymnast.runtime.managed_servers import ManagedServer as ManagedServer
    from gymnast.runtime.managed_servers import ManagedServerSpec as ManagedServerSpec
    from gymnast.runtime.ports import advertised_host as advertised_host
    from gymnast.runtime.ports import bind_socket as bind_socket
    from gymnast.sandbox.command_jail import CommandJail as CommandJail
    from gymnast.sandbox.command_jail import CommandSandboxSettings as CommandSandboxSettings
    from gymnast.sandbox.command_jail import open_command_jail as open_command_jail
    from gymnast.sandbox.drivers import open_sandbox as open_sandbox
    from gymnast.sandbox.interface import Execution as Execution
    from gymnast.sandbox.interface import Limits as Limits
    from gymnast.sandbox.interface import Program as Program
    from gymnast.sandbox.interface import PythonSession as PythonSession
    from gymnast.sandbox.interface import Sandbox as Sandbox
    from gymnast.sandbox.interface import SandboxError as SandboxError
    from gymnast.sandbox.settings import SandboxSettings as SandboxSettings
    from gymnast.tokens.backend import BadGeneration as BadGeneration
    from gymnast.tokens.backend import Caller as Caller
    from gymnast.tokens.backend import ContextOverflow as ContextOverflow
    from gymnast.tokens.backend import Finish as Finish
    from gymnast.tokens.backend import GeneratedTokens as GeneratedTokens
    from gymnast.tokens.backend import LogprobMode as LogprobMode
    from gymnast.tokens.backend import Sampling as Sampling
    from gymnast.tokens.backend import WeightSpan as WeightSpan
    from gymnast.tokens.backend import check_generation as check_generation
    from gymnast.tokens.chat_template import ChatTemplate as ChatTemplate
    from gymnast.tokens.conversation import remaining_tokens as remaining_tokens
    from gymnast.tokens.families.registry import get_family as get_family
    from gymnast.tokens.load import load_renderer as load_renderer
    from gymnast.tokens.messages import make_render_request as make_render_request
    from gymnast.tokens.probing import probe_template as probe_template
    from gymnast.tokens.template import TemplateRenderer as TemplateRenderer
    from gymnast.types.call_tree import CallReason as CallReason
    from gymnast.types.failure import FailureDetail as FailureDetail
    from gymnast.types.failure import FailureKind as FailureKind
    from gymnast.types.failure import Stage as Stage
    from gymnast.types.failure import bounded as bounded
    from gymnast.types.items import CreateParams as CreateParams
    from gymnast.types.items import FunctionTool as FunctionTool
    from gymnast.types.items import Item as Item
    from gymnast.types.items import Response as Response
    from gymnast.types.items import Usage as Usage
    from gymnast.types.json import JsonObject as JsonObject
    from gymnast.types.responses import is_model_turn as is_model_turn
    from gymnast.types.responses import make_response as make_response
    from gymnast.types.responses import make_usage as make_usage
    from gymnast.types.responses import message_text as message_text
    from gymnast.types.responses import reasoning_texts as reasoning_texts
    from gymnast.types.responses import sum_usage as sum_usage
    from gymnast.types.responses import with_defaults as with_defaults
    from gymnast.types.task import PARAMS as PARAMS
    from gymnast.wire.asgi import ServerApp as ServerApp
    from gymnast.wire.calls import Scope as Scope
    from gymnast.wire.classify import kind_of_reply as kind_of_reply
    from gymnast.wire.classify import reply_failure as reply_failure
    from gymnast.wire.dialects.chat_replies import BadCompletion as BadCompletion
    from gymnast.wire.dialects.chat_replies import completion_to_response as completion_to_response
    from gymnast.wire.dialects.chat_replies import split_thinking as split_thinking
    from gymnast.wire.dialects.chat_requests import NotConvertible as NotConvertible
    from gymnast.wire.dialects.chat_requests import params_to_chat as params_to_chat
    from gymnast.wire.dialects.chat_requests import read_metadata_json as read_metadata_json
    from gymnast.wire.dialects.chat_requests import wrap_thinking as wrap_thinking
    from gymnast.wire.dialects.messages_upstream import BadMessage as BadMessage
    from gymnast.wire.dialects.messages_upstream import message_to_response as message_to_response
    from gymnast.wire.dialects.messages_upstream import params_to_messages as params_to_messages
    from gymnast.wire.endpoint_errors import Cause as Cause
    from gymnast.wire.endpoint_errors import cause_of as cause_of
    from gymnast.wire.endpoint_errors import is_context_overflow as is_context_overflow
    from gymnast.wire.http_client import HttpClient as HttpClient
    from gymnast.wire.message import PlainText as PlainText
    from gymnast.wire.message import Reply as Reply
    from gymnast.wire.message import Request as Request
    from gymnast.wire.server import HttpError as HttpError
    from gymnast.wire.server import ReplyError as ReplyError
    from gymnast.wire.server import Server as Server
    from gymnast.wire.server import ServerContext as ServerContext
    from gymnast.wire.validate import InvalidBody as InvalidBody
    from gymnast.wire.validate import error_detail as error_detail
    from gymnast.wire.validate import require_field as require_field
    from gymnast.wire.validate import require_object as require_object
    from gymnast.wire.validate import validate_response as validate_response

_MODULES: Final = {
    "gymnast.config.environ": "child_environ inherited_environ",
    "gymnast.config.instances": "ServerKind",
    "gymnast.config.server_settings": "ModelRef ResourcesRef Settings",
    "gymnast.endpoints.gateway": "Gateway KEY_HEADER RolloutAddress",
    "gymnast.endpoints.ledgers": "TokenLedgers",
    "gymnast.endpoints.model_server": "Model ModelCall add_overflow new_id unix_time",
    "gymnast.endpoints.rollout_endpoint": "RolloutEndpoint",
    "gymnast.endpoints.rollout_endpoint_rules": "EndpointTargets RolloutLimits",
    "gymnast.endpoints.token_path": "TokenOptions TokenPath attach_tokens make_rejection",
    "gymnast.endpoints.upstream": "EndpointSettings Upstream",
    "gymnast.endpoints.usage": "ModelSettings Prices",
    "gymnast.errors": "CallError DataError JudgeError NotFoundError StartError UserError suggest",
    "gymnast.kit.agent": "Agent AgentSettings input_items",
    "gymnast.kit.attempt": "Attempt Task ToolCall Verdict parse_arguments",
    "gymnast.kit.custom_metrics": "Collector CustomMetrics GroupField MeanRewards PassMajority",
    "gymnast.kit.environment": "Environment",
    "gymnast.kit.extract": "last_boxed unwrap_text",
    "gymnast.kit.judge": "Judge JudgeLimits JudgeModel JudgedSettings",
    "gymnast.kit.judging": "JudgeEvaluation Labels MAX_SHOWN_CHARS Opinion Template load_template truncate_start",
    "gymnast.kit.packages": "require_package",
    "gymnast.kit.pass_majority": "highest_k",
    "gymnast.kit.precompiled": "precompile",
    "gymnast.kit.process_pool": "CpuTimeExceededError ProcessPool WorkerCrashedError WorkerError WorkerTimeoutError",
    "gymnast.kit.sandboxed_environment": "SandboxedEnvironment SandboxedSettings",
    "gymnast.kit.scoring": "Scoring ScoringSettings",
    "gymnast.kit.step_environment": "Step StepEnvironment ToolOutput",
    "gymnast.kit.task_server": "EnvironmentSettings",
    "gymnast.kit.offered_tools": "OfferTools list_tools",
    "gymnast.kit.tools": "Tool ToolError collect_tools tool",
    "gymnast.kit.verify_call": "request_verdict",
    "gymnast.runtime.command": "CommandResult CommandRunner CommandSpec run_locally",
    "gymnast.runtime.listener": "Listener",
    "gymnast.runtime.managed_servers": "ManagedServer ManagedServerSpec",
    "gymnast.runtime.ports": "advertised_host bind_socket",
    "gymnast.sandbox.command_jail": "CommandJail CommandSandboxSettings open_command_jail",
    "gymnast.sandbox.drivers": "open_sandbox",
    "gymnast.sandbox.interface": "Execution Limits Program PythonSession Sandbox SandboxError",
    "gymnast.sandbox.settings": "SandboxSettings",
    "gymnast.tokens.backend": (
        "BadGeneration Caller ContextOverflow Finish GeneratedTokens LogprobMode Sampling WeightSpan check_generation"
    ),
    "gymnast.tokens.chat_template": "ChatTemplate",
    "gymnast.tokens.conversation": "remaining_tokens",
    "gymnast.tokens.families.registry": "get_family",
    "gymnast.tokens.load": "load_renderer",
    "gymnast.tokens.messages": "make_render_request",
    "gymnast.tokens.probing": "probe_template",
    "gymnast.tokens.template": "TemplateRenderer",
    "gymnast.types.call_tree": "CallReason",
    "gymnast.types.failure": "FailureDetail FailureKind Stage bounded",
    "gymnast.types.items": "CreateParams FunctionTool Item Response Usage",
    "gymnast.types.json": "JsonObject",
    "gymnast.types.responses": (
        "is_model_turn make_response make_usage message_text reasoning_texts sum_usage with_defaults"
    ),
    "gymnast.types.task": "PARAMS",
    "gymnast.wire.asgi": "ServerApp",
    "gymnast.wire.calls": "Scope",
    "gymnast.wire.classify": "kind_of_reply reply_failure",
    "gymnast.wire.dialects.chat_replies": "BadCompletion completion_to_response split_thinking",
    "gymnast.wire.dialects.chat_requests": "NotConvertible params_to_chat read_metadata_json wrap_thinking",
    "gymnast.wire.dialects.messages_upstream": "BadMessage message_to_response params_to_messages",
    "gymnast.wire.endpoint_errors": "Cause cause_of is_context_overflow",
    "gymnast.wire.http_client": "HttpClient",
    "gymnast.wire.message": "PlainText Reply Request",
    "gymnast.wire.server": "HttpError ReplyError Server ServerContext",
    "gymnast.wire.validate": "InvalidBody error_detail require_field require_object validate_response",
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names is enough


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gymnast.kit' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
