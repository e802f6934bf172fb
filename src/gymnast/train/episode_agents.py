"""Episodes of several trained agents: one sample for each agent, with its own reward and its own sampled tokens. Pure.

A record names them: `"episode_agents": {"white": {"reward": 1.0, "calls": [0, 2]}, …}`, where calls are the numbers of
the agent's model calls (`token_call` on the last output item of each). Tokens of the other agents are context. Agents
may be different policies: model servers with their own weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from gymnast.train.estimators import is_finite_reward
from gymnast.train.samples import AgentPart, MaskReason
from gymnast.types.tokens import EPISODE_AGENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.tokens.media import Media
    from gymnast.train.samples import Group, Sample, Segment
    from gymnast.types.tokens import TokenCall


class _Part(msgspec.Struct):
    reward: float
    calls: list[int] = []
    mask: bool = False


_PARTS: Final = msgspec.json.Decoder(dict[str, _Part])


def parse_parts(raw: msgspec.Raw) -> tuple[AgentPart, ...]:
    """The agents of an episode. Raises ValueError if the field has another form or names a call twice."""
    try:
        parts = _PARTS.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    calls = [call for part in parts.values() for call in part.calls]
    if len(calls) != len(set(calls)):
        raise ValueError("two agents have the same model call")
    if not all(is_finite_reward(part.reward) for part in parts.values()):
        raise ValueError("a reward is not finite in 32 bits")
    return tuple(AgentPart(name, part.reward, tuple(part.calls), part.mask) for name, part in parts.items())


def assign_policies(parts: Sequence[AgentPart], calls: Sequence[TokenCall]) -> tuple[AgentPart, ...]:
    """The agents with the policies that sampled their calls.

    Raises ValueError for a call that is unknown, an agent of several policies, or calls of several policies without
    agents.
    """
    unknown = {call for part in parts for call in part.calls} - set(range(len(calls)))
    if unknown:
        raise ValueError(f"names call {min(unknown)}, which is unknown")
    if not parts and len({call.policy for call in calls}) > 1:
        raise ValueError("is missing, and the tokens come from several models")
    return tuple(part._replace(policy=_policy_of(part, calls)) for part in parts)


def _policy_of(part: AgentPart, calls: Sequence[TokenCall]) -> str:
    policies = sorted({calls[number].policy for number in part.calls})
    if len(policies) > 1:
        raise ValueError(f"gives {part.name} calls of several models: {', '.join(policies)}")
    return policies[0] if policies else ""


def split_agents(group: Group) -> list[Group]:
    """A group for each agent of the group's episodes, or the group itself if no episode names any.

    Agents are compared with themselves in the other episodes. An agent that made no call in an episode is a masked
    sample there, so that all groups have the same size. An agent that is not the same policy in all episodes is a group
    for each of them.
    """
    parts = [part for sample in group.samples for part in sample.agents]
    if not parts:
        return _split_policies(group)
    policies_of: dict[str, dict[str, None]] = {}
    for part in parts:
        policies_of.setdefault(part.name, {}).update({part.policy: None} if part.policy else {})
    return [
        _part_of(group, name, policy) for name, policies in policies_of.items() for policy in policies or {"": None}
    ]


def train_named_agents(sample: Sample) -> Sample:
    """An episode of several agents as one rollout, in which the tokens of masked or unnamed agents are context."""
    calls = {call for part in sample.agents if not part.mask for call in part.calls}
    if not sample.agents or all(calls.issuperset(segment.calls) for segment in sample.segments):
        return sample
    segments = _own_segments(sample, calls)
    if not segments:
        return sample.masked(MaskReason.ENVIRONMENT, f"{EPISODE_AGENTS} names no agent that is trained")
    return replace(sample, segments=segments)


def _part_of(group: Group, name: str, policy: str) -> Group:
    samples = tuple(_sample_of(sample, name, policy) for sample in group.samples)
    return replace(group, agent=name, policy=policy, samples=samples)


def _split_policies(group: Group) -> list[Group]:
    """Rollouts of one agent each: a group for each policy, usually one."""
    policies = dict.fromkeys(policy for sample in group.samples for policy in sample.policies)
    if len(policies) <= 1:
        return [replace(group, policy=next(iter(policies), ""))]
    return [
        replace(group, policy=policy, samples=tuple(_only_of(sample, policy) for sample in group.samples))
        for policy in policies
    ]


def _only_of(sample: Sample, policy: str) -> Sample:
    if sample.policies in {(policy,), ()}:
        return sample
    other = replace(sample, segments=(), reward=None)
    return other.masked(MaskReason.NOTHING_SAMPLED, f"{policy} is not in this episode")


def _sample_of(sample: Sample, name: str, policy: str) -> Sample:
    part = next((part for part in sample.agents if part.name == name and part.policy in {policy, ""}), None)
    if part is None:
        if not sample.is_scored:
            return replace(sample, agent=name)
        own = replace(sample, agent=name, segments=(), agents=(), reward=None)
        return own.masked(MaskReason.NOTHING_SAMPLED, f"{name} is not in this episode")
    segments = _own_segments(sample, part.calls)
    own = replace(sample, agent=name, reward=part.reward, segments=segments, agents=())
    if part.mask:
        return own.masked(MaskReason.ENVIRONMENT, f"episode_agents.{name}.mask is true")
    return own if segments else own.masked(MaskReason.NOTHING_SAMPLED)


def _own_segments(sample: Sample, calls: Iterable[int]) -> tuple[Segment, ...]:
    parts = [_own_part(segment, calls) for segment in sample.segments]
    return _with_shares([segment for segment in parts if segment is not None])


def _own_part(segment: Segment, calls: Iterable[int]) -> Segment | None:
    """The segment with only these calls trained on, or None if it has none of them."""
    numbers = set(calls)
    kept = [index for index, call in enumerate(segment.calls) if call in numbers]
    if not kept:
        return None
    own = np.zeros_like(segment.mask)
    for index in kept:
        start, end = segment.turns[index]
        own[start:end] = segment.mask[start:end]
    turns = tuple(segment.turns[index] for index in kept)
    end = turns[-1][1]  # what other agents said afterwards is no context of these tokens
    versions = tuple(span for span in segment.versions if any(a <= span.start and span.end <= b for a, b in turns))
    return replace(
        segment,
        ids=segment.ids[:end],
        mask=own[:end],
        logprobs=(segment.logprobs * own)[:end],
        turns=turns,
        versions=versions,
        calls=tuple(segment.calls[index] for index in kept),
        new_media=_media_at(segment, kept),
        parent=None,
        shared=0,
    )


def _media_at(segment: Segment, kept: list[int]) -> tuple[tuple[Media, ...], ...]:
    """What the prompts add from one of these turns to the next: other agents' turns between them are context."""
    if not segment.new_media:
        return ()
    starts = [0, *(index + 1 for index in kept[:-1])]
    return tuple(
        tuple(one for added in segment.new_media[start : index + 1] for one in added)
        for start, index in zip(starts, kept, strict=True)
    )


def _with_shares(segments: list[Segment]) -> tuple[Segment, ...]:
    total = sum(segment.trained for segment in segments)
    return tuple(
        replace(segment, share=segment.trained / total if total else 1 / len(segments)) for segment in segments
    )
